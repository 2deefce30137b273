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


def listed(script: str, variable: str) -> list[str]:
    """Return the folders and files that a script lists in an array."""
    (names,) = re.findall(rf"^{variable}=\((tests/[^)]*)\)$", script, re.MULTILINE)
    return str(names).split()


def test_every_test_is_in_one_step() -> None:
    """One has those that must take every branch of lockstate, one what starts nodes, and one all others."""
    named = listed(GATE, "of_lockstate")
    assert named == listed(COVERAGE, "tests")
    for place in named:
        files = list((ROOT / place).rglob("test_*.py")) or [ROOT / place]
        assert not any("pytest.mark.process" in path.read_text("utf-8") for path in files), place
    assert 'step coverage scripts/coverage "${of_lockstate[@]}"' in GATE
    nodes = 'step nodes tests nodes -m "process and not ($left_out)" -n "$(nproc)" --dist loadfile'
    assert f'{nodes} "${{with_nodes[@]}}"\n' in GATE
    assert "< <(grep -rl --include='test_*.py' 'mark\\.process\\b' tests | sort)\n" in GATE
    others = [path for path in (ROOT / "tests").rglob("*.py") if not path.name.startswith("test_")]
    marking = re.compile(r"mark\.process\b|add_marker\(\W*process")
    assert not [path for path in others if marking.search(path.read_text("utf-8"))], "mark the file itself"
    rest = 'step rest tests rest -m "not (process or $left_out)" "${parallel[@]}" tests'
    assert f'{rest} "${{of_lockstate[@]/#/--ignore=}}"\n' in GATE


def run_twice(directory: Path, tests: str, *arguments: str) -> tuple[int, str]:
    """Run tests as the gate does; return the exit code, and what was said."""
    (directory / "test_twice.py").write_text(tests, "utf-8")
    command = f'source "{ROOT}/scripts/lib/second_try.sh"; holdfast_twice "$PWD/out" "$@"'
    pytest_command = [sys.executable, "-m", "pytest", "-ra", "-p", "tests.support.time_budget", *arguments]
    done = subprocess.run(
        ["bash", "-c", command, "bash", *pytest_command, "test_twice.py"],
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        # Without the plugins that are installed, a run takes half of the time.
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    return done.returncode, done.stdout


TRIES = """
import asyncio, gc, pathlib, socket, pytest
from tests.process import history_checkers
from tests.process.history_checkers import Operation


def tries(name):
    path = pathlib.Path(name)
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())
"""
SLOW_ONCE = """
def test_well():
    assert tries("well") == 1, "what has passed is not tried again"


def test_slow_once():
    assert tries("slow") > 1
"""
BROKEN_ONCE = """
def test_broken_once():
    held = [] if tries("b") > 1 else [Operation(client=1, kind="acquire", name="a", started_s=1)]
    assert not history_checkers.lost_grants(held, {})
"""
IN_A_GROUP = """
def test_group():
    async def work():
        async with asyncio.TaskGroup() as group:
            group.create_task(check())

    async def check():
        assert tries("g") > 1, "BROKEN two holders"

    asyncio.run(work())
"""
IN_A_CHILD = """
def test_child():
    print("A promise: VIOLATION at 3 s")
    assert tries("c") > 1
"""
SKIPPED_THEN = """
def test_skips():
    if tries("s") > 1:
        pytest.skip("not again")
    assert False
"""
LEFT_OPEN = """
def test_leaves():
    left = [socket.socket()]
    left.append(left)


def test_innocent():
    gc.collect()
"""
TORN_DOWN = """
@pytest.fixture(scope="module", autouse=True)
def nothing_is_left():
    left = []
    yield left
    assert not left


def test_leaves(nothing_is_left):
    nothing_is_left.append(1)


def test_innocent():
    pass
"""
MANY = """
@pytest.mark.parametrize("number", range(11))
def test_many(number):
    assert tries(f"m{number}") > 1
"""


def test_a_failed_test_is_tried_once_more(tmp_path: Path) -> None:
    """In a run of its own, which is told; what had passed is left alone."""
    code, said = run_twice(tmp_path, TRIES + SLOW_ONCE)
    assert code == 0, said
    assert "=== tried again: FAILED test_twice.py::test_slow_once" in said


@pytest.mark.parametrize("tests", [BROKEN_ONCE, IN_A_GROUP, IN_A_CHILD, LEFT_OPEN, TORN_DOWN, MANY])
def test_what_is_never_tried_again(tmp_path: Path, tests: str) -> None:
    """A broken promise, wherever it is told; what shows in an innocent test; and more than a few."""
    code, said = run_twice(tmp_path, TRIES + tests, "-W", "error")
    assert code == 1, said
    assert "=== not tried again:" in said


def test_a_test_that_is_skipped_the_second_time_has_not_passed(tmp_path: Path) -> None:
    """Nor has one that fails again."""
    code, said = run_twice(tmp_path, TRIES + SKIPPED_THEN)
    assert code == 1, said
    assert "=== tried again:" in said
    code, said = run_twice(tmp_path, "def test_never():\n    assert False\n")
    assert code == 1, said


def test_no_tests_are_no_success(tmp_path: Path) -> None:
    """Nor is a file that cannot be read as tests."""
    assert run_twice(tmp_path, "")[0] == 5
    assert run_twice(tmp_path, "import nothing_like_that\n")[0] == 2


HALVES = """
def test_first(pytestconfig):
    pytestconfig.option.not_after = {then}


def test_second():
    assert {second}


def test_third():
    assert {third}
"""
NEVER, LONG_AGO = "1e12", "0.0"


@pytest.mark.parametrize("processes", [(), ("-p", "xdist", "-n", "1")])
def test_what_no_time_is_left_for_is_named(tmp_path: Path, processes: tuple[str, ...]) -> None:
    """Two thirds of the tests may be left out, with their names."""
    tests = HALVES.format(then=LONG_AGO, second=False, third=False)
    code, said = run_twice(tmp_path, tests, "--not-after", NEVER, "--order", "some", *processes)
    assert code == 0, said
    assert "NOT RUN test_twice.py: 2" in said


def test_a_run_that_left_out_nearly_all_fails(tmp_path: Path) -> None:
    """It says too little; there is nothing to try again."""
    tests = HALVES.format(then=NEVER, second=True, third=True)
    code, said = run_twice(tmp_path, tests, "--not-after", LONG_AGO)
    assert code == 1, said
    assert "NOT RUN test_twice.py: 3" in said
    assert "=== not tried again: 0 tests failed" in said


def test_what_failed_as_the_time_ended_is_tried_again(tmp_path: Path) -> None:
    """It began in time."""
    tests = TRIES + 'def test_late(pytestconfig):\n    assert tries("l") > 1\n'
    (tmp_path / "conftest.py").write_text(
        "def pytest_runtest_teardown(item):\n    item.config.option.not_after = 0.0\n", "utf-8"
    )
    code, said = run_twice(tmp_path, tests, "--not-after", NEVER)
    assert code == 0, said
    assert "=== tried again:" in said


STUBS = {"check": 0, "docs": 0, "coverage": 0, "chaos": 0, "bench": 0, "test": 0}


def run_gate(directory: Path, gate: str, **codes: int) -> tuple[int, str]:
    """Run the gate over commands that do nothing but end with a code."""
    tree = directory / "tree"
    (tree / ".ci").mkdir(parents=True)
    (tree / ".ci" / "run").write_text(gate, "utf-8")
    (tree / "scripts" / "lib").mkdir(parents=True)
    for name, code in (STUBS | codes).items():
        stub = tree / "scripts" / name
        stub.write_text(f"#!/bin/sh\nexit {code}\n", "utf-8")
        stub.chmod(0o755)
    lib = tree / "scripts" / "lib"
    lib.joinpath("second_try.sh").write_text((ROOT / "scripts/lib/second_try.sh").read_text("utf-8"), "utf-8")
    lib.joinpath("machine_speed.py").write_text("print('1.0 5 1.0')\n", "utf-8")
    python = "holdfast_pythons() { echo '3.11 " + sys.executable + "'; }\n"
    lib.joinpath("pythons.sh").write_text(python, "utf-8")
    lib.joinpath("servers.sh").write_text(
        "holdfast_install_servers() { true; }\nwheel() { true; }\n", "utf-8"
    )
    lib.joinpath("venv.sh").write_text("VENV=/nonexistent\n", "utf-8")
    done = subprocess.run(
        ["bash", str(tree / ".ci" / "run")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"TMPDIR": str(directory)},
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("step", [None, *STUBS])
def test_every_step_has_to_pass(tmp_path: Path, step: str | None) -> None:
    """And to say so: what says nothing has not passed."""
    codes = {step: 1} if step else {}
    code, said = run_gate(tmp_path, GATE, **codes)
    assert code == (1 if step else 0), said
    assert ("=== all passed" in said) == (step is None), said


def test_steps_that_may_be_left_out_are_named(tmp_path: Path) -> None:
    """The gate passes without them when its time is over, and without no others. Rows end in any order."""
    over = GATE.replace("minutes=65\n", "minutes=-1\n")
    code, said = run_gate(tmp_path, over, chaos=1, bench=1)
    assert code == 0, said
    assert sorted(re.findall(r"^=== (\w+): NOT RUN", said, re.MULTILINE)[-2:]) == ["chaos", "smoke"]
    code, said = run_gate(tmp_path / "again", over, coverage=1)
    assert code == 1, said


@pytest.mark.parametrize("script", SHELL_SCRIPTS)
def test_shell_scripts_parse(script: str) -> None:
    """Bash reads every script of the project without an error."""
    done = subprocess.run(["bash", "-n", ROOT / script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
