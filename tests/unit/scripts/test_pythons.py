"""Which versions of Python the gate finds: those that run and can make a virtual environment."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def put_python(folder: Path, minor: int, program: str) -> Path:
    """Put a program called python3.`minor` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"python3.{minor}"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    return path


def found(tmp_path: Path) -> list[str]:
    """Return what is found with the programs in `tmp_path` and the shell's own tools."""
    done = subprocess.run(
        ["bash", "-euc", f"source {ROOT}/scripts/lib/pythons.sh; holdfast_pythons"],
        env=os.environ
        | {
            "PATH": f"{tmp_path / 'shims'}:{tmp_path / 'bin'}:/usr/bin:/bin",
            "PYENV_ROOT": str(tmp_path / "pyenv"),
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return [line for line in done.stdout.splitlines() if str(tmp_path) in line]


def test_what_does_not_run_is_passed_over(tmp_path: Path) -> None:
    """A shim that fails, and a program of another version, hide no interpreter further down the path."""
    put_python(tmp_path / "shims", 27, "exit 127")
    put_python(tmp_path / "shims", 28, "echo 3.9")
    runs = put_python(tmp_path / "bin", 27, "echo 3.27")
    assert found(tmp_path) == [f"3.27 {runs}"]


def test_the_versions_of_pyenv_are_found(tmp_path: Path) -> None:
    """A version that pyenv has and PATH has not is found, the newest of its patch releases, in order."""
    put_python(tmp_path / "pyenv" / "versions" / "3.26.9" / "bin", 26, "echo 3.26")
    newest = put_python(tmp_path / "pyenv" / "versions" / "3.26.10" / "bin", 26, "echo 3.26")
    other = put_python(tmp_path / "bin", 25, "echo 3.25")
    assert found(tmp_path) == [f"3.25 {other}", f"3.26 {newest}"]
