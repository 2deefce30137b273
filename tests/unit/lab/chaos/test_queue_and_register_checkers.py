"""Queue order and the guarded register: planted mistakes are found, what may be right is not."""

from typing import Any

from lab.chaos.checkers.catalogue import check_all
from lab.chaos.checkers.queues import queue_order, queue_reads
from lab.chaos.checkers.registers import fenced_register, lost_updates
from lab.chaos.workloads.fencing import Register
from tests.unit.lab.chaos.histories import Script


def queue_of(script: Script, call: int, *owners: str) -> None:
    """Add a read of the queue, while "h0" has the lock."""
    result = {"holders": [{"owner": "h0", "token": 1}], "queue": [{"owner": owner} for owner in owners]}
    script.add("queue", "a", call, call + 5, result=result)


def served(first_token: int, second_token: int, seen: int) -> Script:
    """Return a queue in which "h1" is seen at `seen`, and "h2" asks at 50."""
    script = Script()
    script.grant("h0", 1, 0, 5, ttl=5000)
    queue_of(script, seen, "h1")
    script.release("h0", 60, 65)
    for hold, token, call in (("h1", first_token, 10), ("h2", second_token, 50)):
        script.grant(hold, token, call, 60 + 10 * token, ttl=5000, wait_ms=5000)
        script.release(hold, 61 + 10 * token, 64 + 10 * token)
    return script


def test_waiters_in_order() -> None:
    """Who was seen first is served first."""
    assert check_all(served(2, 3, 20).history) == []


def test_a_waiter_that_is_overtaken() -> None:
    """Who was in the queue for sure is served after somebody that asked later."""
    assert [found.operations for found in queue_order(served(3, 2, 20).history)] == [(4, 6)]


def test_a_waiter_that_was_not_seen_in_time() -> None:
    """Who was seen in the queue only after the other one asked may have come later."""
    assert queue_order(served(3, 2, 48).history) == []


def test_a_waiter_that_asked_twice() -> None:
    """A second attempt may be a new request at the end of the queue."""
    script = served(3, 2, 20)
    [waiter] = [item for item in script.history.operations if item.arguments.get("owner") == "h1"]
    waiter.attempts = 2
    assert queue_order(script.history) == []


def test_a_waiter_that_a_higher_priority_overtakes() -> None:
    """Who asks with a higher priority may be served first; who asks with a lower one may not."""
    for priority, is_wrong in ((9, False), (5, True), (4, True)):
        script = served(3, 2, 20)
        [other] = [item for item in script.history.operations if item.arguments.get("owner") == "h2"]
        other.arguments["priority"] = priority
        assert bool(queue_order(script.history)) is is_wrong


def test_reads_of_a_queue() -> None:
    """Who waits is seen until its wait can be over, or that of a lost request; who does not is not seen."""

    def objections(call: int, *owners: str, lost: int = 0) -> int:
        script = Script()
        script.grant("h0", 1, 0, 5, ttl=9_000)
        script.grant("h1", 2, 10, 2_000, ttl=1_000, wait_ms=1_500, lost=lost)
        queue_of(script, 100, "h1")
        queue_of(script, call, *owners)
        return len(queue_reads(script.history))

    assert objections(500, "h1") == 0
    assert objections(500) == 1
    assert objections(1_150) == 0  # it may have been granted at 100, and its lease may be over
    assert objections(500, lost=1) == 0
    assert objections(2_100, "h1") == 1
    assert objections(2_100, "h1", lost=1) == 0
    assert objections(5_600, "h1", lost=1) == 1
    assert objections(500, "h1", "h9") == 1


def write(script: Script, base: int, before: int, *, is_fenced: bool) -> None:
    """Add a write to a register."""
    fields: dict[str, Any] = {"is_fenced": is_fenced, "base": base, "value": base + 1, "token": 1}
    script.add("register-write", f"r{is_fenced}", 0, 1, result={"before": before}, **fields)


def test_lost_updates() -> None:
    """A write from an old value is a lost update: counted without a fence, an objection with one."""
    script = Script()
    write(script, 4, 4, is_fenced=True)
    write(script, 4, 5, is_fenced=False)
    assert fenced_register(script.history) == []
    assert len(lost_updates(script.history, is_fenced=False)) == 1
    write(script, 4, 5, is_fenced=True)
    assert len(fenced_register(script.history)) == 1


def test_the_register_checks_tokens_if_it_has_a_fence() -> None:
    """A stale token neither reads nor writes; without a fence it does both."""
    fenced, plain = Register(is_fenced=True), Register(is_fenced=False)
    for register in (fenced, plain):
        assert register.read(7) == 0
        assert register.write(5, 7)
    assert fenced.read(6) is None
    assert not fenced.write(1, 6)
    assert plain.read(6) == 5
    assert plain.write(1, 6)
    assert (fenced.value, plain.value) == (5, 1)
