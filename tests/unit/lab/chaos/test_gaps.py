"""How long clients were without an answer, from histories whose gaps are known."""

import msgspec
import pytest

from lab.chaos.faults.catalogue import FAULTS
from lab.chaos.gaps import Gap, gaps, longest, over_budget
from lab.chaos.history import AnyLine, FaultBegin, FaultEnd, History, Operation

S = 1_000_000_000


def operation(at_s: float, *, bound: str = "", outcome: str = "ok", code: str = "") -> Operation:
    """Return an operation that returned at a time."""
    return Operation(
        id=round(at_s * 1000),
        client="c",
        workload="w",
        kind="acquire",
        name="x",
        bound=bound,
        call_ns=round((at_s - 0.01) * S),
        return_ns=round(at_s * S),
        outcome=outcome,  # type: ignore[arg-type]
        code=code,
    )


def fault(number: int, what: str, begin_s: float, end_s: float) -> list[AnyLine]:
    """Return a fault of a history."""
    return [
        FaultBegin(id=number, what=what, where=["n1"], at_ns=round(begin_s * S)),
        FaultEnd(id=number, at_ns=round(end_s * S)),
    ]


def test_the_gap_of_each_fault_is_its_own() -> None:
    """Free clients and bound ones are told apart, and among these the nodes that the fault named."""
    every = [number / 10 for number in range(300)]
    free = [operation(at) for at in every if not 10.05 < at < 11.75]
    patient = [operation(at, bound="n2") for at in every if not 10.05 < at < 10.55]
    slow = [operation(at, bound="n3") for at in every if not 10.05 < at < 10.85]
    unlucky = [operation(at, bound="n1") for at in every if not 10.05 < at < 14.05]
    unknown = [operation(10.5, outcome="unknown"), operation(25, outcome="unknown")]
    lines = [
        *(*free, *patient, *slow, *unlucky, *unknown),
        *fault(1, "kill-leader", 10, 13),
        *fault(2, "pause-leader", 20, 22),
    ]
    first, second = gaps(History(lines))
    assert (first.fault, first.where, first.errors) == ("kill-leader", ["n1"], 1)
    assert first.any_s == pytest.approx(0.6)
    assert first.free_s == pytest.approx(1.8)
    assert first.bound_s == pytest.approx(0.9)
    assert first.broken_s == pytest.approx(4.1)
    assert second.any_s == pytest.approx(0.1)
    assert second.errors == 1


def test_only_a_refusal_that_the_cluster_decides_is_an_answer() -> None:
    """Who is told that a lock is held was served; who is told that there is no leader was not."""
    every = [operation(number / 10) for number in range(50) if not 20 < number < 40]
    held = [operation(3, outcome="refused", code="lock-held")]
    lost = [operation(3, outcome="refused", code="no-leader")]
    (served,) = gaps(History([*fault(1, "kill-leader", 2, 4), *every, *held]))
    (alone,) = gaps(History([*fault(1, "kill-leader", 2, 4), *every, *lost]))
    assert served.free_s == pytest.approx(1.0)
    assert alone.free_s == pytest.approx(2.0)


def test_nobody_waits_for_what_comes_after_the_run() -> None:
    """When the clients have stopped, the late answer to one that is bound ends no gap of the others."""
    late = msgspec.structs.replace(operation(9, bound="n1"), call_ns=2 * S)
    again = operation(9.1, bound="n1")
    free = [operation(number / 10) for number in range(30)]
    (gap,) = gaps(History([*fault(1, "rolling-restart", 1, 8), *free, late, again]))
    assert gap.any_s == gap.free_s == pytest.approx(0.1)
    silent = [operation(number / 10, outcome="unknown") for number in range(30, 60)]
    (gap,) = gaps(History([*fault(1, "rolling-restart", 1, 8), *free, *silent]))
    assert gap.any_s == pytest.approx(5.89 - 2.9)


def test_a_gap_reaches_to_after_the_span() -> None:
    """It has to begin there; without any answer behind it there is no end to measure."""
    assert longest([0, 3 * S, 9 * S], 2 * S, 5 * S) == 6.0
    assert longest([0, 3 * S, 9 * S], 4 * S, 5 * S) is None
    assert longest([0, 3 * S], 2 * S, 5 * S) is None
    assert longest([], 4 * S, 5 * S) is None


def test_a_gap_is_of_the_fault_with_which_it_began() -> None:
    """A cluster that heals from one fault when the next one begins is not silent because of that one."""
    every = [number / 10 for number in range(300)]
    silent = [(0.45, 0.95), (10.05, 13.45), (15.95, 17.05)]
    answers = [operation(at) for at in every if not any(begin < at < end for begin, end in silent)]
    lines = [*fault(1, "ring", 10, 12), *fault(2, "member-added", 13, 14), *fault(3, "kill-leader", 16, 17)]
    first, second, third = gaps(History([*lines, *answers]))
    assert [gap.any_s for gap in (first, second, third)] == [
        pytest.approx(3.5),
        pytest.approx(0.1),
        pytest.approx(1.2),
    ]


def test_without_clients_of_a_kind_there_is_no_gap() -> None:
    """It is not taken for a gap of zero."""
    lines = [*fault(1, "kill-leader", 1, 2), *(operation(number / 10) for number in range(50))]
    (gap,) = gaps(History(lines))
    assert (gap.bound_s, gap.broken_s) == (None, None)
    assert gap.any_s == pytest.approx(0.1)
    assert gap.free_s == pytest.approx(0.1)


def test_a_gap_above_the_budget_is_told() -> None:
    """Times the factor for slow machines; a fault without a budget has none to break."""
    budget_s = FAULTS["kill-leader"].gap_s_max
    found = [
        Gap(fault="kill-leader", where=["n1"], any_s=budget_s * 1.5, free_s=None, bound_s=99.0),
        Gap(fault="kill-leader", where=["n2"], any_s=budget_s, free_s=budget_s * 1.5, bound_s=99.0),
        Gap(fault="somebody-elses", where=[], any_s=99.0),
    ]
    to_anybody, to_free = over_budget(found, FAULTS, 1.0)
    assert "kill-leader of n1: no answer to anybody for" in to_anybody
    assert "kill-leader of n2: no answer to who may ask any node for" in to_free
    assert over_budget(found, FAULTS, 2.0) == []


def test_clients_that_never_queue_are_asked_first() -> None:
    """With the workload `reach` the others do not count: they may wait for a lock that is held."""
    reach = [msgspec.structs.replace(operation(at), workload="reach") for at in (0.5, 1.0, 3.5, 4.0)]
    others = [operation(number / 10) for number in range(60)]
    (gap,) = gaps(History([*fault(1, "kill-leader", 1.5, 2), *reach, *others]))
    assert gap.any_s == pytest.approx(2.5)
