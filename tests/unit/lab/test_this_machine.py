"""What figures were measured on: which interpreter it is, and which one is taken."""

import platform
import stat
import sys
import sysconfig
from pathlib import Path

import pytest

from lab.measuring import interpreters, this_machine

OPTIMIZED = "'--enable-shared' '--enable-optimizations' '--with-lto'"


@pytest.mark.parametrize(
    ("flags", "prefix", "how"),
    [
        (OPTIMIZED, "/opt/python", "with"),
        ("'--enable-shared'", "/opt/python", "without"),
        (None, "/usr/local", "without"),
        ("'--enable-shared'", "/usr", "with"),
    ],
)
def test_an_interpreter_without_optimizations_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, flags: str | None, prefix: str, how: str
) -> None:
    """By the flags that it was configured with; those of the system's say nothing of it."""
    monkeypatch.setattr(sysconfig, "get_config_var", {"CONFIG_ARGS": flags}.get)
    monkeypatch.setattr(sys, "base_prefix", prefix)
    told = this_machine.describe(tmp_path)["python"]
    assert told == f"{platform.python_version()}, built {how} optimizations"


def interpreter(folder: Path, told: str, code: int = 0) -> str:
    """Make an interpreter that says this of itself; return its folder."""
    folder.mkdir()
    program = folder / f"python{sys.version_info.major}.{sys.version_info.minor}"
    program.write_text(f'#!/bin/sh\necho "{told}"\nexit {code}\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(folder)


def test_an_optimized_interpreter_of_the_same_version_is_found(tmp_path: Path) -> None:
    """Interpreters that are slow, of another kind, or without our packages are passed over."""
    tag = sys.implementation.cache_tag
    folders = [
        str(tmp_path),
        interpreter(tmp_path / "slow", f"{tag} /opt '--enable-shared'"),
        interpreter(tmp_path / "other", f"pypy39 /opt {OPTIMIZED}"),
        interpreter(tmp_path / "bare", f"{tag} /opt {OPTIMIZED}", code=1),
    ]
    assert interpreters.optimized(folders) is None
    good = interpreter(tmp_path / "good", f"{tag} /opt {OPTIMIZED}")
    found = interpreters.optimized([*folders, good])
    assert found is not None
    assert Path(found).parent == Path(good)


@pytest.mark.parametrize(
    ("is_this_optimized", "found", "chosen", "program"),
    [
        (False, "/quick/python", "", "/quick/python"),
        (False, "/quick/python", "/slow/python", sys.executable),
        (False, None, "", sys.executable),
        (True, "/quick/python", "", sys.executable),
    ],
)
def test_a_better_interpreter_takes_over(
    monkeypatch: pytest.MonkeyPatch, *, is_this_optimized: bool, found: str | None, chosen: str, program: str
) -> None:
    """It finds our packages; where this one is as good, or the user has chosen, nothing changes."""
    became: list[tuple[str, list[str], dict[str, str]]] = []
    monkeypatch.setattr(interpreters, "is_this_optimized", lambda: is_this_optimized)
    monkeypatch.setattr(interpreters, "optimized", lambda _: found)
    monkeypatch.setattr("os.execve", lambda *arguments: became.append(arguments))
    monkeypatch.setenv("HOLDFAST_PYTHON", chosen)
    monkeypatch.setenv("PYTHONPATH", "/root")
    interpreters.main(["module", "--flag"])
    ((path, argv, environment),) = became
    assert (path, argv) == (program, [program, "-P", "-m", "module", "--flag"])
    is_other = program == found
    assert environment["PYTHONPATH"] == ("/root:" + interpreters.packages() if is_other else "/root")
