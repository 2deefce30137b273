"""The command line of scripts/simulate: what it lists, refuses, and prints when a promise is broken."""

import re
from pathlib import Path

import pytest

import cluster.consensus.guards
from lab import simulate
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


def test_raft_trace_is_written_and_replayed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--raft-trace writes the Raft trace of a run, and --replay finds out whether Raft allows it."""
    trace = tmp_path / "raft.trace"
    options = ["--minutes", "0.2", "--faults", "", "--no-hostile", "--raft-trace", str(trace)]
    assert simulate.main(["--seed", "1", *options]) == 0
    assert simulate.main(["--replay", str(trace)]) == 0
    assert re.search(r"^\d\d+ events, and nothing that Raft forbids$", capsys.readouterr().out, re.MULTILINE)
    told = trace.read_text("utf-8")
    spoilt = re.sub(r'\["applies","(n\d)",9,', r'["applies","\1",10,', told)
    assert spoilt != told
    trace.write_text(spoilt, "utf-8")
    assert simulate.main(["--replay", str(trace)]) == 1
    assert re.search(r"^VIOLATION at event \d+: raft-replay: ", capsys.readouterr().out, re.MULTILINE)


def test_broken_promise_is_told(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that votes before its vote is on disk is found; seed, step, sentence and trace are printed."""
    monkeypatch.setattr(cluster.consensus.guards, "PROMISES", frozenset())
    world = ["--seed", "7", "--nodes", "3", "--minutes", "0.3", "--streams", "1", "--faults", ""]
    assert simulate.main([*world, "--lines", "5"]) == 1
    printed = capsys.readouterr().out
    assert re.search(r"^VIOLATION at \d+\.\d+ s, step \d+: vote-on-disk: ", printed, re.MULTILINE)
    assert f"repeat: scripts/simulate {' '.join(world)}'' --trace FILE" in printed
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
