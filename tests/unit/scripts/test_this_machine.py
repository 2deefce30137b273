"""What figures were measured on says whether the interpreter is slower than it could be."""

import platform
import sysconfig
from pathlib import Path

import pytest

from scripts.lib import this_machine


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("'--enable-shared' '--enable-optimizations' '--with-lto'", ""),
        ("'--enable-shared'", ", built without optimizations"),
        (None, ", built without optimizations"),
    ],
)
def test_an_interpreter_without_optimizations_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str | None, told: str
) -> None:
    """By the flags that it was configured with."""
    monkeypatch.setattr(sysconfig, "get_config_var", {"CONFIG_ARGS": flags}.get)
    assert this_machine.describe(tmp_path)["python"] == platform.python_version() + told
