"""What figures were measured on says whether the interpreter is slower than it could be."""

import platform
import sys
import sysconfig
from pathlib import Path

import pytest

from lab.measuring import this_machine


@pytest.mark.parametrize(
    ("flags", "prefix", "told"),
    [
        ("'--enable-shared' '--enable-optimizations' '--with-lto'", "/opt/python", ""),
        ("'--enable-shared'", "/opt/python", ", built without optimizations"),
        (None, "/usr/local", ", built without optimizations"),
        ("'--enable-shared'", "/usr", ""),
    ],
)
def test_an_interpreter_without_optimizations_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str | None, prefix: str, told: str
) -> None:
    """By the flags that it was configured with; those of the system's say nothing of it."""
    monkeypatch.setattr(sysconfig, "get_config_var", {"CONFIG_ARGS": flags}.get)
    monkeypatch.setattr(sys, "base_prefix", prefix)
    assert this_machine.describe(tmp_path)["python"] == platform.python_version() + told
