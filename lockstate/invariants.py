"""What must hold at every revision, one function per sentence.

For tests and checkers; a node at work never calls it.
"""

from itertools import combinations, pairwise

from lockstate import limits
from lockstate.machine import LockMachine
from lockstate.modes import COMPATIBLE, Mode, passable
from lockstate.state import State


def check(machine: LockMachine) -> None:
    """Check every sentence; raise AssertionError naming the first that does not hold."""
    state = machine.state
    for sentence in SENTENCES:
        sentence(state)


def holders_are_compatible(state: State) -> None:
    """The holders of a lock are compatible with each other."""
    for lock in state.locks.values():
        for one, other in combinations(lock.holders.values(), 2):
            assert other.mode in COMPATIBLE[one.mode], f"{lock.name}: {one.token} and {other.token} conflict"


def tokens_are_unique_and_given_out(state: State) -> None:
    """Every hold has a token of its own, below the next one; holds stand in order of their tokens."""
    tokens = [hold.token for hold in state.holds.values()]
    assert all(a < b for a, b in pairwise(tokens)), "tokens do not rise"
    assert not tokens or tokens[-1] < state.next_token, "a token was not drawn from the counter"


def nobody_waits_in_vain(state: State) -> None:
    """A waiter that no holder, no earlier waiter and no delay conflicts with has been granted."""
    for lock in state.locks.values():
        if lock.delay is None and lock.queue and len(lock.holders) < limits.HOLDERS_COUNT_MAX:
            first = next(iter(lock.queue.values()))
            assert first.mode not in passable(lock.held_modes), (
                f"{lock.name}: the first waiter could be granted"
            )


def tables_agree(state: State) -> None:
    """Holds, tickets, locks and sessions tell the same story from every side."""
    held = {hold_id for lock in state.locks.values() for hold_id in lock.holders}
    queued = {hold_id for lock in state.locks.values() for hold_id in lock.queue}
    assert held == set(state.holds), "holds and locks disagree"
    assert queued == set(state.tickets), "tickets and locks disagree"
    of_sessions = {hold_id for session in state.sessions.values() for hold_id in session.holds}
    assert of_sessions == set(state.holds), "holds and sessions disagree"
    waiting = {hold_id for session in state.sessions.values() for hold_id in session.tickets}
    assert waiting == {t.hold_id for t in state.tickets.values() if t.session_id}, (
        "tickets and sessions disagree"
    )
    assert list(state.names.after("", inclusive=True)) == sorted(state.locks), "the index of names is wrong"


def idle_names_are_forgotten(state: State) -> None:
    """A name that nobody holds, wants or delays takes no memory; a session of a single hold has its hold."""
    for lock in state.locks.values():
        assert not lock.is_idle, f"{lock.name}: idle and remembered"
    for session in state.sessions.values():
        assert not session.is_own or len(session.holds) == 1, "a lease without its hold"


def mode_counts_are_right(state: State) -> None:
    """The counted modes of a lock are those of its holders and waiters."""
    for lock in state.locks.values():
        held = tuple([sum(hold.mode is mode for hold in lock.holders.values()) for mode in Mode])
        waiting = tuple([sum(ticket.mode is mode for ticket in lock.queue.values()) for mode in Mode])
        assert lock.held_modes == held, f"{lock.name}: counted {lock.held_modes}, held {held}"
        assert lock.waiting_modes == waiting, f"{lock.name}: counted {lock.waiting_modes}, waiting {waiting}"


def nothing_overdue_lives(state: State) -> None:
    """What cluster time has passed is gone, and everything else that ends by itself is scheduled."""
    timed = [*state.sessions.values(), *state.tickets.values()]
    delays = [lock.delay for lock in state.locks.values() if lock.delay is not None]
    assert all(record.expires_at_ms >= state.now_ms for record in [*timed, *delays]), "something is overdue"
    assert len(state.deadlines) == len(timed) + len(delays), "deadlines and tables disagree"


SENTENCES = (
    holders_are_compatible,
    tokens_are_unique_and_given_out,
    nobody_waits_in_vain,
    tables_agree,
    idle_names_are_forgotten,
    mode_counts_are_right,
    nothing_overdue_lives,
)
