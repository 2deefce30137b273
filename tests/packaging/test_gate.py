"""The gate runs every test once: what its steps take and leave out fits together."""

import os
import re
import subprocess
import sys
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


def test_every_folder_is_in_one_step() -> None:
    """What a step names has tests, and the step for the rest leaves out all of it, and nothing else."""
    named = [*folders(GATE, "of_lockstate"), *folders(GATE, "of_nodes")]
    assert folders(GATE, "of_lockstate") == folders(COVERAGE, "tests")
    for folder in named:
        assert any((ROOT / folder).rglob("test_*.py")), folder
        assert not any(other != folder and other.startswith(f"{folder}/") for other in named), folder
    assert 'step coverage scripts/coverage "${of_lockstate[@]}"' in GATE
    assert 'step test scripts/test "${within[@]}" "${tolerant[@]}" "${of_nodes[@]}"' in GATE
    assert 'local elsewhere=("${of_lockstate[@]}" "${of_nodes[@]}")' in GATE
    assert (
        'step rest scripts/test "${within[@]}" "${tolerant[@]}" tests "${elsewhere[@]/#/--ignore=}"' in GATE
    )


SLOW_ONCE = """
from tests.process import history_checkers
from tests.process.history_checkers import Operation

calls = []


def test_slow_once():
    calls.append("slow")
    assert len(calls) > 1


def test_broken_once():
    calls.append("broken")
    held = [] if calls.count("broken") > 1 else [Operation(client=1, kind="acquire", name="a", started_s=1)]
    assert not history_checkers.lost_grants(held, {})
"""


def test_a_failed_test_is_tried_once_more_but_no_broken_promise(tmp_path: Path) -> None:
    """What was tried again is named in the end; a history with two holders fails at once."""
    (tolerant,) = re.findall(r"^tolerant=\(.*\)$", GATE, re.MULTILINE)
    (tmp_path / "test_twice.py").write_text(SLOW_ONCE, "utf-8")
    command = f'{tolerant}; "{sys.executable}" -m pytest -q -p no:cacheprovider "${{tolerant[@]}}" .'
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 1, done.stdout
    told = [line.split(" - ")[0] for line in done.stdout.splitlines() if line.startswith(("RERUN", "FAILED"))]
    assert told == ["RERUN test_twice.py::test_slow_once", "FAILED test_twice.py::test_broken_once"]


TWO_HALVES = """
calls = []


def test_first(pytestconfig):
    calls.append("first")
    pytestconfig.option.not_after = {then}
    assert len(calls) >= {calls}


def test_second():
    calls.append("second")
    assert {holds}
"""
NEVER, LONG_AGO = "1e12", "0.0"


def run_within(directory: Path, tests: str, not_after_s: str) -> tuple[int, str]:
    """Run tests as the gate does, up to a moment; return the exit code, and what was said."""
    (directory / "test_halves.py").write_text(tests, "utf-8")
    (tolerant,) = re.findall(r"^tolerant=\(.*\)$", GATE, re.MULTILINE)
    (within,) = re.findall(r"^within=\(.*\)$", GATE, re.MULTILINE)
    command = f'{tolerant}; {within}; "{sys.executable}" -m pytest "${{within[@]}}" "${{tolerant[@]}}" .'
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "not_after": not_after_s, "order": "some"},
    )
    return done.returncode, done.stdout


def test_what_no_time_is_left_for_is_named(tmp_path: Path) -> None:
    """Two thirds of the tests may be left out, with their names."""
    tests = TWO_HALVES.format(then=LONG_AGO, calls=1, holds=False)
    code, said = run_within(tmp_path, tests, NEVER)
    assert code == 0, said
    assert "NOT RUN test_halves.py: 1" in said


def test_a_run_that_left_out_nearly_all_fails(tmp_path: Path) -> None:
    """It says too little."""
    code, said = run_within(tmp_path, TWO_HALVES.format(then=NEVER, calls=1, holds=True), LONG_AGO)
    assert code == 1, said
    assert "NOT RUN test_halves.py: 2" in said


@pytest.mark.parametrize(("calls", "code_expected"), [(2, 0), (3, 1)])
def test_what_failed_is_not_left_out(tmp_path: Path, calls: int, code_expected: int) -> None:
    """A test that fails as the time ends is tried once more, and counts."""
    code, said = run_within(tmp_path, TWO_HALVES.format(then=LONG_AGO, calls=calls, holds=True), NEVER)
    assert code == code_expected, said
    assert "RERUN test_halves.py::test_first" in said
    assert "NOT RUN test_halves.py: 1" in said


@pytest.mark.parametrize("script", SHELL_SCRIPTS)
def test_shell_scripts_parse(script: str) -> None:
    """Bash reads every script of the project without an error."""
    done = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
