"""What all property tests share."""

from collections.abc import Iterator

import pytest

from lockstate.tables import crowds


@pytest.fixture(autouse=True, scope="module")
def _small_crowds() -> Iterator[None]:
    """Let a name have a crowd from its third holder on: histories are not long enough for more."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crowds, "SEARCHED_MAX", 2)
        yield
