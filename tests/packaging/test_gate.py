"""The gate runs every test once: what its steps take and leave out fits together."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GATE = (ROOT / ".ci" / "run").read_text("utf-8")
COVERAGE = (ROOT / "scripts" / "coverage").read_text("utf-8")
SHELL_SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in (".ci", "scripts", "scripts/lib", "deploy", "docs/examples")
    for path in (ROOT / folder).iterdir()
    if path.is_file() and (path.suffix == ".sh" or path.read_bytes().startswith(b"#!/usr/bin/env bash"))
)


def folders(script: str, variable: str) -> list[str]:
    """Return the folders that a script lists in an array."""
    (listed,) = re.findall(rf"^{variable}=\((tests/[^)]*)\)$", script, re.MULTILINE)
    return str(listed).split()


def test_coverage_takes_what_the_gate_leaves_out_elsewhere() -> None:
    """The gate runs the folders of scripts/coverage under coverage and nowhere else; each has tests."""
    assert folders(GATE, "fast") == folders(COVERAGE, "tests")
    for folder in folders(GATE, "fast"):
        assert any((ROOT / folder).rglob("test_*.py")), folder
    assert 'step coverage scripts/coverage "${fast[@]}"' in GATE
    assert 'step test scripts/test tests "${fast[@]/#/--ignore=}"' in GATE


@pytest.mark.parametrize("script", SHELL_SCRIPTS)
def test_shell_scripts_parse(script: str) -> None:
    """Bash reads every script of the project without an error."""
    done = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
