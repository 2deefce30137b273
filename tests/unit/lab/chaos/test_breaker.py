"""A schedule is run: one fault after the other, healed before the next, and everything healed in the end."""

import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lab.chaos.breaker import Breaker
from lab.chaos.checkers.catalogue import check_all
from lab.chaos.faults.fault import Fault, PromiseBroken
from lab.chaos.history import History, HistoryWriter, read_history
from lab.chaos.schedule import Step
from lab.chaos.targets.target import LabFailure, Target


class PaperTarget(Target):
    """A cluster that writes down what is done to it."""

    name: ClassVar = "paper"

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def open(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""

    def urls(self) -> Mapping[str, str]:
        """Return three nodes."""
        return {"n1": "http://1", "n2": "http://2", "n3": "http://3"}

    def log_tail(self, node_id: str) -> str:
        """Return nothing."""
        return node_id

    def wait_ready(self, timeout_s: float = 0.0) -> None:
        """Note that all is well."""
        del timeout_s
        self.said.append("ready")


class Noted(Fault[PaperTarget]):
    """A fault that is written down."""

    name = "noted"
    text = "is written down"
    needs: ClassVar = frozenset()

    def begin(self) -> list[str]:
        """Note it, with a choice by chance."""
        self.target.said.append(f"begin {self.some_node()}")
        return ["n1"]

    def end(self) -> None:
        """Note it."""
        self.target.said.append("end")


class Failing(Noted):
    """A fault that cannot be begun."""

    name = "failing"

    def begin(self) -> list[str]:
        """Fail."""
        raise LabFailure("no leader")


class Unhealed(Noted):
    """A fault that cannot be healed."""

    name = "unhealed"

    def end(self) -> None:
        """Fail."""
        raise OSError("stuck")


class Seeing(Noted):
    """A fault that sees a broken promise."""

    name = "seeing"

    def begin(self) -> list[str]:
        """See it."""
        raise PromiseBroken("n1, n2 lead in term 7")


FAULTS: dict[str, type[Fault[Any]]] = {each.name: each for each in (Noted, Failing, Unhealed, Seeing)}


@pytest.fixture
def target() -> PaperTarget:
    """Return a cluster of paper."""
    return PaperTarget()


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistoryWriter]:
    """Return where faults are recorded."""
    with HistoryWriter(tmp_path / "history") as history:
        yield history


def breaker(target: PaperTarget, history: HistoryWriter, say: Callable[[str], None] | None = None) -> Breaker:
    """Return who breaks it."""
    return Breaker(target, FAULTS, history, seed=1, say=say or (lambda _: None))


def recorded(history: HistoryWriter) -> History:
    """Return what was recorded."""
    return read_history(history.path)


def step(fault: str = "noted", *, overlaps: bool = False, **options: str) -> Step:
    """Return a step that takes no time."""
    return Step(fault=fault, after_s=0, lasts_s=0.01, overlaps=overlaps, options=options)


def soon() -> float:
    """Return a time that is not reached."""
    return time.monotonic() + 60


def test_each_is_healed_and_all_is_well_before_the_next(target: PaperTarget, history: HistoryWriter) -> None:
    """And it is recorded, from its begin until all is well again."""
    breaker(target, history).run([step(node="n2"), step(node="n3")], soon())
    assert target.said == ["begin n2", "end", "ready", "begin n3", "end", "ready"]
    faults = recorded(history).faults
    assert [fault.what for fault in faults] == ["noted", "noted"]
    assert faults[0].begin_ns < faults[0].end_ns <= faults[1].begin_ns < faults[1].end_ns


def test_what_overlaps_begins_while_the_other_lasts(target: PaperTarget, history: HistoryWriter) -> None:
    """Both are healed before all is said to be well."""
    breaker(target, history).run([step(node="n2"), step(node="n3", overlaps=True)], soon())
    assert target.said == ["begin n2", "begin n3", "end", "end", "ready"]


def test_choices_are_those_of_the_seed(history: HistoryWriter) -> None:
    """What one fault draws does not depend on the others."""
    first, second = PaperTarget(), PaperTarget()
    breaker(first, history).run([step(), step(), step()], soon())
    breaker(second, history).run([step(node="n1"), step(), step()], soon())
    assert first.said[3:] == second.said[3:]


def test_none_begins_that_would_last_too_long(target: PaperTarget, history: HistoryWriter) -> None:
    """The run ends in time."""
    steps = [Step(fault="noted", after_s=0, lasts_s=1000)]
    breaker(target, history).run(steps, time.monotonic() + 1)
    assert target.said == []


def test_stopped_it_heals_and_returns(target: PaperTarget, history: HistoryWriter) -> None:
    """A fault that would last for long is healed at once."""
    breaking = breaker(target, history, lambda _: breaking.stop())
    breaking.run([Step(fault="noted", after_s=0, lasts_s=50), step()], soon())
    assert [word.split()[0] for word in target.said] == ["begin", "end", "ready"]
    assert breaking.broken == "nothing"
    assert breaking.done == 1


def test_a_fault_that_cannot_begin_is_healed_and_told(target: PaperTarget, history: HistoryWriter) -> None:
    """It is not in the history: it was none."""
    with pytest.raises(LabFailure, match="no leader"):
        breaker(target, history).run([step("failing")], soon())
    assert target.said == ["end", "ready"]
    assert recorded(history).faults == []


def test_what_a_fault_sees_itself_is_in_the_history(target: PaperTarget, history: HistoryWriter) -> None:
    """And a checker objects to it, whoever checks the history again; the schedule goes on."""
    breaker(target, history).run([step("seeing"), step()], soon())
    assert [word.split()[0] for word in target.said] == ["end", "ready", "begin", "end", "ready"]
    [violation] = check_all(recorded(history))
    assert (violation.checker, violation.verdict) == ("witnessed", "broken")
    assert violation.text == "seeing: n1, n2 lead in term 7"
    assert violation.at_ns > 0


def test_what_cannot_be_healed_is_told_and_the_others_are_healed(
    target: PaperTarget, history: HistoryWriter
) -> None:
    """One that is stuck leaves nothing else broken."""
    with pytest.raises(LabFailure, match="stuck"):
        breaker(target, history).run([step("unhealed"), step(overlaps=True)], soon())
    assert [word.split()[0] for word in target.said] == ["begin", "begin", "end"]


def test_a_node_may_be_named_by_its_role(target: PaperTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    """`leader`, `follower`, an id, or any by chance."""
    monkeypatch.setattr(target, "leader", lambda: "n2")
    chance = random.Random(1)
    picked = {
        wanted: {Noted(target, chance, {"node": wanted} if wanted else {}).some_node() for _ in range(50)}
        for wanted in ("leader", "follower", "n3", "")
    }
    assert picked == {"leader": {"n2"}, "follower": {"n1", "n3"}, "n3": {"n3"}, "": {"n1", "n2", "n3"}}
