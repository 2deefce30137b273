"""The invariants find what they are for: each sentence is broken at least once."""

from collections.abc import Callable

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.tables.deadlines import Deadlines, Timed
from lockstate.tables.principals import Usage
from lockstate.tables.records import Lock, Semaphore
from lockstate.tables.state import State
from lockstate.words.ids import NO_HOLD, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import INTENT, UNIT, Mode, Scope
from tests.unit.lockstate.machine_driver import SHARED, SUBTREE, MachineDriver


def _state() -> State:
    """Return a sound state with something of everything.

    h1 and h2 read `a`, h3 of session s1 waits to write it. h4 and h5 have permits of `q`, h6 waits for one.
    h7 reads the subtree `t`, h9 waits to write `t/x`. h10 reads `c` with h11 and is to be converted by t12.
    `d` and one permit of `p` are delayed.
    """
    driver = MachineDriver()
    driver.open("s1", ttl_ms=5000)
    for _ in range(2):
        driver.granted("a", mode=SHARED, ttl_ms=5000)
    driver.queued("a", session_id="s1")
    driver.permitted("q", 3, ttl_ms=5000, session_id="s1")
    driver.permitted("q", 3, 2, ttl_ms=5000)
    driver.wanting("q", 3)
    driver.granted("t", mode=SHARED, scope=SUBTREE, ttl_ms=5000)
    driver.granted("p0", ttl_ms=5000)
    driver.queued("t/x")
    for _ in range(2):
        driver.granted("c", mode=SHARED, ttl_ms=5000, owner="ann")
    driver.converting("h10", Mode.EXCLUSIVE)
    driver.granted("d", ttl_ms=100, lock_delay_ms=5000)
    driver.permitted("p", 1, ttl_ms=100, lock_delay_ms=5000)
    driver.pass_to(101)
    driver.granted("u/v", ttl_ms=5000)
    return driver.machine.state


def _conflict(state: State) -> None:
    state.holds[HoldId("h1")].mode = Mode.EXCLUSIVE


def _conflict_across_levels(state: State) -> None:
    state.holds[HoldId("h8")].name = "t/y"


def _miscounted_permits(state: State) -> None:
    state.semaphores["q"].used += 1


def _double_token(state: State) -> None:
    state.holds[HoldId("h2")].token = state.holds[HoldId("h1")].token


def _invented_token(state: State) -> None:
    state.next_token = 2


def _silent_note(state: State) -> None:
    state.holds[HoldId("h1")].owner = OwnerName("changed behind the back of the sums")


def _vain_wait(state: State) -> None:
    state.tickets[HoldId("h3")].mode = Mode.SHARED


def _vain_wait_for_permits(state: State) -> None:
    state.semaphores["q"].limit = 4


def _lost_holder(state: State) -> None:
    state.locks["a"].remove_holder(state.holds[HoldId("h1")])


def _lost_permits(state: State) -> None:
    del state.semaphores["q"].holders[HoldId("h4")]


def _lost_waiter(state: State) -> None:
    queues = state.locks["a"].queues
    assert queues is not None
    queues.clear()


def _lost_hold_of_session(state: State) -> None:
    state.sessions[SessionId("s1")].holds = {}


def _lost_ticket_of_session(state: State) -> None:
    state.sessions[SessionId("s1")].tickets = {}


def _lost_conversion(state: State) -> None:
    state.holds[HoldId("h10")].changing = NO_HOLD


def _lost_name(state: State) -> None:
    list(state.names.after("", inclusive=True))
    state.names.gone["a"] = None


def _idle_name(state: State) -> None:
    state.locks["z"] = lock = Lock("z")
    state.names.young.append(lock)


def _record_of_nobody(state: State) -> None:
    state.locks["z"] = lock = Lock("z", UNIT[0])
    state.names.young.append(lock)


def _miscounted_holder(state: State) -> None:
    state.locks["a"].held += UNIT[1]


def _miscounted_waiter(state: State) -> None:
    state.locks["a"].waiting += UNIT[0]


def _miscounted_intent(state: State) -> None:
    state.intents["u"] += UNIT[INTENT]


def _lost_intent(state: State) -> None:
    del state.intents["u"]


def _intent_of_nobody(state: State) -> None:
    state.intents["z"] = 0


def _miscounted_names(state: State) -> None:
    state.claimed.both_count += 1


def _miscounted_claims(state: State) -> None:
    state.sessions[SessionId("s1")].claims_count += 1


def _held_by_another(state: State) -> None:
    state.sessions[SessionId("s1")].by_owner = {}


def _empty_queue(state: State) -> None:
    queues = state.locks["a"].queues
    assert queues is not None
    queues[5] = type(queues[0])()


def _disorderly_queue(state: State) -> None:
    queue = state.semaphores["q"].queue
    queues = state.locks["a"].queues
    assert queues is not None
    queues[0].update(queue)
    queues[0].move_to_end(HoldId("h3"))


def _nobody_below(state: State) -> None:
    state.locks["a"].below = {"d": None}


def _not_found_from_above(state: State) -> None:
    state.locks["t"].below = None


def _idle_semaphore(state: State) -> None:
    state.semaphores["z"] = Semaphore("z", 1)


def _lease_beside_session(state: State) -> None:
    next(iter(state.sessions[SessionId("s1")].holds.values())).ttl_ms = 500


def _wish_without_ticket(state: State) -> None:
    state.wishes[SessionId("s9"), OwnerName("eve"), HoldKind.LOCK, 0, frozenset()] = {}


def _ticket_without_wish(state: State) -> None:
    state.wishes.clear()


def _party_without_ticket(state: State) -> None:
    state.party_tickets["s9", "eve"] = {}


def _unscheduled(state: State) -> None:
    state.deadlines.remove(state.sessions[SessionId("s1")])


def _scheduled_late(state: State) -> None:
    late = Deadlines()
    for order in range(len(state.deadlines)):
        late.add(Timed(order, 90_000))
    state.deadlines = late


def _of_what_is_gone(state: State) -> None:
    state.principals.put("gone", "ann")


def _miscounted_principal(state: State) -> None:
    state.principals.usage["ann"] = Usage(1)


def _still_asking(state: State) -> None:
    state.principals.asking = "ann"


BREAKS: list[tuple[Callable[[State], None], str]] = [
    (_conflict, "a: 1 and 2 conflict"),
    (_conflict_across_levels, "t: 5 and 6 conflict"),
    (_miscounted_permits, "q: counted 4 permits"),
    (_double_token, "tokens do not rise"),
    (_invented_token, "not drawn"),
    (_vain_wait, "could be granted"),
    (_vain_wait_for_permits, "could have its permits"),
    (_lost_holder, "holds and what they are of"),
    (_lost_permits, "holds and what they are of"),
    (_lost_waiter, "queues and tickets"),
    (_lost_hold_of_session, "holds and sessions"),
    (_lost_ticket_of_session, "tickets and sessions"),
    (_lost_conversion, "changes and their holds"),
    (_lost_name, "index of names"),
    (_idle_name, "idle and remembered"),
    (_record_of_nobody, "counted 1 held"),
    (_miscounted_holder, "counted 3 held"),
    (_miscounted_waiter, "counted 2 waiting"),
    (_miscounted_intent, "u: counted {6: 2} intents"),
    (_lost_intent, "a claim has no record"),
    (_intent_of_nobody, "z: nothing is below"),
    (_miscounted_names, "counted 7 names, 8 are active"),
    (_miscounted_claims, "counted 3 claims, there are 2"),
    (_held_by_another, "by owner are others"),
    (_empty_queue, "an empty queue"),
    (_disorderly_queue, "out of order"),
    (_nobody_below, "nobody waits at d"),
    (_not_found_from_above, "not to be found from above"),
    (_idle_semaphore, "z: idle"),
    (_lease_beside_session, "a lease of its own, or a session|holds and sessions"),
    (_wish_without_ticket, "wishes without a ticket"),
    (_ticket_without_wish, "tickets and wishes disagree"),
    (_party_without_ticket, "parties without a ticket"),
    (_unscheduled, "deadlines and tables"),
    (_scheduled_late, "was not scheduled"),
    (_silent_note, "is not in the sums"),
    (_of_what_is_gone, "still belongs to somebody"),
    (_miscounted_principal, "what principals have is miscounted"),
    (_still_asking, "somebody is still asking"),
]


@pytest.mark.parametrize(("damage", "message"), BREAKS, ids=lambda value: getattr(value, "__name__", ""))
def test_damage_is_found(damage: Callable[[State], None], message: str) -> None:
    """A state with one thing wrong is found out, with the right words."""
    state = _state()
    damage(state)
    with pytest.raises(AssertionError, match=message):
        invariants.check(LockMachine(state).state)


def test_a_sound_machine_passes() -> None:
    """A machine that only ever applied entries is sound, whatever it has by then."""
    state = _state()
    invariants.check(LockMachine(state).state)
    assert {hold.kind for hold in state.holds.values()} == {HoldKind.LOCK, HoldKind.SEMAPHORE}
    assert set(state.delays) == {("d", Scope.NODE)}
