"""What every hazard test gets: files of the library and event loops are closed behind it."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from pysyncobj import journal as library_journal

from tests.support.hand_driven_loop import HandDrivenLoop


@pytest.fixture(autouse=True)
def _closed_journals(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close what the library leaves open."""
    opened: list[Any] = []
    open_journal = library_journal.ResizableFile.__init__

    def remembered(self: Any, *args: Any, **kwargs: Any) -> None:
        opened.append(self)
        open_journal(self, *args, **kwargs)

    monkeypatch.setattr(library_journal.ResizableFile, "__init__", remembered)
    yield
    for file in opened:
        file._destroy()
    if opened:
        gc.collect()


@pytest.fixture(autouse=True)
def _closed_loops() -> Iterator[None]:
    """Close the loops of whole nodes."""
    yield
    while HandDrivenLoop.opened:
        HandDrivenLoop.opened.pop().close()
