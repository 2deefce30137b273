"""The command line of scripts/simulate: what it lists, refuses, and prints when a promise is broken."""

import re

import pytest

import cluster.consensus.guards
from scripts import simulate
from tests.simulation.plan import FAULTS, make_plan


def test_faults_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """--list-faults prints every kind of fault with what it does."""
    assert simulate.main(["--list-faults"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(FAULTS)


def test_unknown_fault_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A fault that there is not is named, and nothing runs."""
    assert simulate.main(["--faults", "kill,flood"]) == 2
    assert "no such fault: flood" in capsys.readouterr().err


def test_sound_run_is_summed_up(capsys: pytest.CaptureFixture[str]) -> None:
    """A run without a violation ends with its figures and exit code 0."""
    assert simulate.main(["--seed", "1..2", "--minutes", "0.3", "--faults", "", "--no-hostile"]) == 0
    printed = capsys.readouterr().out
    assert len(re.findall(r"^seed .* ok ", printed, re.MULTILINE)) == 2
    assert "violations: 0" in printed


def test_broken_promise_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that votes before its vote is on disk is found; seed, step, sentence and trace are printed."""
    monkeypatch.setattr(cluster.consensus.guards, "PROMISES", frozenset())
    assert simulate.main(["--seed", "7", "--minutes", "0.3", "--faults", "", "--lines", "5"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^VIOLATION at \d+\.\d+ s, step \d+: vote-on-disk: ", printed, re.MULTILINE)
    assert "repeat: scripts/simulate --seed 7 --nodes 3 --minutes 0.3 --faults '' --trace FILE" in printed
    assert len([line for line in printed.splitlines() if re.match(r"\d+ n\d ", line)]) == 5
    assert "violations: 1 in seeds 7" in printed


def test_seed_decides_the_plan() -> None:
    """The same seed gives the same plan; what the caller decides changes nothing else."""
    plan = make_plan(11, 3)
    assert plan == make_plan(11, 3)
    assert plan != make_plan(12, 3)
    calm = make_plan(11, 3, hostile=False, faults=())
    assert calm.rates == {}
    assert (calm.client_settings, calm.compact_entries) == (plan.client_settings, plan.compact_entries)
