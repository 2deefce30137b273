"""Hand-overs: a lock passes from its holder to a waiter or a session in one step, or stays where it is."""

from typing import Final

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.entries import OnBehalf
from lockstate.words.commands.holds import Acquire, HandOver, PutOff, Release
from lockstate.words.commands.overrides import Freeze, Revoke
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode
from lockstate.words.refusals import QuotaExceeded, Reason, Refused
from lockstate.words.results import Granted, HandedOver, PutOffTo, Queued, Released, Result
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import Asking, Uncommon
from tests.unit.lockstate.machine_driver import (
    EXCLUSIVE,
    SHARED,
    SUBTREE,
    MachineDriver,
    expect,
    reason,
    wanted,
)

NEW: Final = HoldId("new")


class Driver(MachineDriver):
    """A machine whose holders hand locks over."""

    def give(self, hold_id: str, ticket: int, at_ms: int = 0) -> Result:
        """Hand over to a waiter."""
        return self.run(HandOver(HoldId(hold_id), ticket), at_ms)

    def give_session(self, hold_id: str, session_id: str, at_ms: int = 0, *, by: str = "") -> Result:
        """Hand over to a session."""
        name = f"s-{self.machine.state.sessions[SessionId(session_id)].order}"
        command = HandOver(HoldId(hold_id), 0, name, NEW)
        return self.run(OnBehalf(by, command) if by else command, at_ms)

    def number(self, hold_id: str) -> int:
        """Return the public number of a wait."""
        return self.machine.state.tickets[HoldId(hold_id)].order

    def waits(self, name: str, **options: object) -> int:
        """Wait for a lock; return the number of the wait."""
        return self.number(self.queued(name, **options).hold_id)

    def holders(self, name: str) -> list[int]:
        """Return the tokens with which a lock is held."""
        return [holder.token for holder in self.machine.lock(name).holders]


@pytest.fixture
def driver() -> Driver:
    """Return a machine with two sessions."""
    driver = Driver()
    driver.open("ann", ttl_ms=50_000)
    driver.open("bob", ttl_ms=50_000)
    return driver


def test_a_waiter_is_given_the_lock_ahead_of_the_others(driver: Driver) -> None:
    """Its wait ends with a grant as any does; the others keep their places, and come next."""
    driver.granted("a", lock_delay_ms=500, ttl_ms=9_000)
    first, chosen = driver.waits("a"), driver.waits("a", ttl_ms=2_000)
    given = expect(HandedOver, driver.give("h1", chosen, at_ms=100))
    assert given.token == 2
    assert [(event.kind, event.token, event.to_token, event.ticket) for event in driver.events] == [
        (EventKind.HANDED_OVER, 1, 2, 0),
        (EventKind.GRANTED, 2, 0, chosen),
    ]
    granted = expect(Granted, driver.settled["h3"])
    assert (granted.token, granted.expires_in_ms) == (2, 2_000)
    assert reason(driver.renew("h1")) is Reason.LEASE_EXPIRED
    driver.release("h3")
    assert driver.served() == ["h2"]
    assert driver.events[-1].ticket == first


def test_a_session_is_given_the_lock_and_finds_it(driver: Driver) -> None:
    """As it was held, under the id that the giver made: it acquires it again, and need not know that."""
    driver.granted("a", mode=SHARED, scope=SUBTREE, note="mine", session_id="ann")
    expect(HandedOver, driver.give_session("h1", "bob"))
    again = driver.granted("a", mode=SHARED, scope=SUBTREE, session_id="bob")
    assert (again.hold_id, again.token) == (NEW, 2)
    (holder,) = driver.machine.lock("a").holders
    assert (holder.note, holder.mode) == ("", SHARED)


@pytest.mark.parametrize("first", list(IfHeld))
def test_the_first_acquire_of_what_a_session_was_given_takes_it(first: IfHeld, driver: Driver) -> None:
    """Whatever it says: nobody is inside yet, and one release ends what was acquired once."""
    driver.granted("a")
    expect(HandedOver, driver.give_session("h1", "bob"))
    driver.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert driver.granted("a", session_id="bob", if_held=first).hold_id == NEW
    assert reason(driver.acquire("a", session_id="bob", if_held=IfHeld.REFUSE)) is Reason.ALREADY_HELD
    assert expect(Released, driver.run(Release(NEW))).depth == 0
    assert driver.holders("a") == []


def test_what_a_session_was_given_goes_to_one_of_its_waits(driver: Driver) -> None:
    """The first, also if it is never to be inside twice; those behind it are told that it has it."""
    driver.granted("a")
    for _ in range(2):
        driver.waits("a", session_id="bob", if_held=IfHeld.REFUSE)
    expect(HandedOver, driver.give_session("h1", "bob"))
    first, second = driver.settled.values()
    assert expect(Granted, first).hold_id == NEW
    assert reason(expect(Refused, second)) is Reason.ALREADY_HELD


def test_who_can_stand_beside_the_receiver_is_served(driver: Driver) -> None:
    """With an exclusive lock given to a reader, the other readers at the front come in, too."""
    driver.granted("a")
    driver.waits("a", mode=SHARED)
    chosen = driver.waits("a", mode=SHARED)
    driver.waits("a")
    expect(HandedOver, driver.give("h1", chosen))
    assert driver.holders("a") == [2, 3]
    assert sorted(driver.served()) == ["h2", "h3"]


def test_what_its_session_waits_for_and_is_the_same_is_shared(driver: Driver) -> None:
    """Two waits of one session get one hold, whichever of them was named."""
    driver.granted("a")
    driver.waits("a", session_id="bob")
    chosen = driver.waits("a", session_id="bob")
    expect(HandedOver, driver.give("h1", chosen))
    assert sorted(driver.served()) == ["h2", "h3"]
    assert driver.holders("a") == [2]
    assert {expect(Granted, result).token for result in driver.settled.values()} == {2}


def test_one_lock_that_was_asked_for_in_a_list_can_be_handed_over(driver: Driver) -> None:
    """It is the same lock, for giver and receiver."""
    driver.granted(locks=wanted("a"))
    chosen = driver.number(driver.queued(locks=wanted("a")).hold_id)
    expect(HandedOver, driver.give("h1", chosen))
    expect(HandedOver, driver.give_session("h2", "ann"))
    assert driver.holders("a") == [3]


@pytest.mark.parametrize(
    "command",
    [
        HandOver(HoldId("h1")),
        HandOver(HoldId("h1"), 1, "s-1", NEW),
        HandOver(HoldId("h1"), 1, "", NEW),
        HandOver(HoldId("h1"), 0, "s-1"),
        HandOver(HoldId("h1"), 0, "s-2", HoldId("h" * 65)),
        HandOver(HoldId("h1"), -1),
        HandOver(HoldId("h1"), limits.TOKEN_MAX + 1),
        HandOver(HoldId("h1"), 0, "s-2", HoldId("h1")),
    ],
    ids=repr,
)
def test_what_says_nothing_clear_is_invalid(command: HandOver, driver: Driver) -> None:
    """One receiver, a new id with a session and only there, and a new one."""
    driver.granted("a")
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.holders("a") == [1]


def _hold_of(driver: Driver, what: str) -> str:
    """Return the id of a hold that cannot be handed over."""
    match what:
        case "permits":
            return driver.permitted("a", 2).hold_id
        case "election":
            return expect(Granted, driver.campaign("a", "ann")).hold_id
        case "several":
            return driver.granted(locks=wanted("a", "b")).hold_id
        case "converted":
            driver.granted("a", mode=SHARED)
            hold_id = driver.granted("a", mode=SHARED).hold_id
            driver.converting(hold_id, EXCLUSIVE)
            return hold_id
        case _:
            driver.granted("a", session_id="ann")
            again = Acquire(
                "a", EXCLUSIVE, HoldId("x"), AttemptId("x"), SessionId("ann"), if_held=IfHeld.COUNT
            )
            return expect(Granted, driver.run(again)).hold_id


@pytest.mark.parametrize("what", ["permits", "election", "several", "converted", "counted"])
def test_only_a_hold_of_one_lock_can_be_handed_over(what: str, driver: Driver) -> None:
    """Not permits, leadership, several names, what is being converted or has to be released twice."""
    hold_id = _hold_of(driver, what)
    assert reason(driver.give_session(hold_id, "bob")) is Reason.INVALID_REQUEST
    assert driver.events == ()


def test_the_ticket_must_wait_for_just_this_lock(driver: Driver) -> None:
    """Not for another name or for several, and it must wait; which of these it is, is not told."""
    driver.granted("a", mode=SHARED)
    driver.granted("b")
    other = driver.waits("b")
    several = driver.number(driver.queued(locks=wanted("a", "c")).hold_id)
    for ticket in (other, several, 999):
        assert reason(driver.give("h1", ticket)) is Reason.TICKET_ENDED
    assert driver.holders("a") == [1]


def test_a_change_of_a_hold_is_no_receiver(driver: Driver) -> None:
    """What waits for another mode has the lock already."""
    driver.granted("a", mode=SHARED)
    other = driver.granted("a", mode=SHARED).hold_id
    driver.converting(other, EXCLUSIVE)
    (changing,) = driver.machine.state.tickets.values()
    assert reason(driver.give("h1", changing.order)) is Reason.TICKET_ENDED


def test_another_holder_is_in_the_way(driver: Driver) -> None:
    """A reader cannot make another client the only one; the refusal says who else reads."""
    driver.granted("a", mode=SHARED)
    other = driver.granted("a", mode=SHARED)
    refused = driver.give("h1", driver.waits("a"))
    assert reason(refused) is Reason.LOCK_HELD
    assert [holder.token for holder in refused.holders] == [other.token]  # type: ignore[union-attr]
    assert driver.holders("a") == [1, 2]


def test_a_delay_below_a_subtree_is_in_the_way(driver: Driver) -> None:
    """What is closed after an expiry stays closed."""
    driver.granted("a/b", ttl_ms=50, lock_delay_ms=5_000)
    driver.pass_to(100)
    driver.granted("a", mode=EXCLUSIVE, ttl_ms=9_000)
    chosen = driver.waits("a", scope=SUBTREE)
    assert reason(driver.give("h2", chosen)) is Reason.LOCK_HELD
    expect(HandedOver, driver.give("h2", chosen, at_ms=5_101))


def test_a_frozen_lock_stays_where_it_is(driver: Driver) -> None:
    """A hand-over is a new grant, also to somebody who waited before."""
    driver.granted("a")
    chosen = driver.waits("a")
    driver.run(Freeze("a", "inventory"))
    assert reason(driver.give("h1", chosen)) is Reason.FROZEN
    assert reason(driver.give_session("h1", "bob")) is Reason.FROZEN


def test_a_session_has_a_lock_once(driver: Driver) -> None:
    """Not one that it has the same already, and not its own."""
    driver.granted("a", mode=SHARED, session_id="ann")
    driver.granted("a", mode=SHARED, session_id="bob")
    assert reason(driver.give_session("h1", "bob")) is Reason.ALREADY_HELD
    assert reason(driver.give_session("h1", "ann")) is Reason.INVALID_REQUEST


@pytest.mark.parametrize("name", ["s-99", "s-01", "bob"])
def test_a_session_must_be_there(name: str, driver: Driver) -> None:
    """It is named as others see it, and in no other way."""
    driver.granted("a")
    assert reason(driver.run(HandOver(HoldId("h1"), 0, name, NEW))) is Reason.SESSION_EXPIRED


def test_a_session_with_all_it_may_have_gets_no_more(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds on what a session has hold for what it is given."""
    driver.granted("a")
    driver.granted("b", session_id="bob")
    monkeypatch.setattr(limits, "SESSION_CLAIMS_MAX", 1)
    assert reason(driver.give_session("h1", "bob")) is Reason.OVERLOADED


def test_a_receiver_that_waits_for_a_waiter_is_refused(driver: Driver) -> None:
    """Bob waits for what Ann has, and Ann for this: with it in Bob's hands both would wait for ever."""
    driver.granted("b", session_id="ann")
    driver.granted("a")
    driver.waits("b", session_id="bob")
    driver.waits("a", session_id="ann")
    chosen = driver.waits("a", session_id="bob", mode=SHARED)
    refused = driver.give("h2", chosen)
    assert reason(refused) is Reason.DEADLOCK
    assert {step.name for step in refused.cycle} == {"a", "b"}  # type: ignore[union-attr]
    assert reason(driver.give_session("h2", "bob")) is Reason.DEADLOCK
    assert driver.holders("a") == [2]


def test_a_receiver_may_wait_for_its_giver(driver: Driver) -> None:
    """The giver has given what the others wait for: no circle goes through it any more."""
    driver.granted("b", session_id="ann")
    driver.granted("a", session_id="ann")
    driver.waits("b", session_id="bob")
    driver.waits("a")
    expect(HandedOver, driver.give_session("h2", "bob"))
    driver.release("h1")
    assert driver.served() == ["h3"]


def test_two_conversions_are_a_deadlock_like_any_other(driver: Driver) -> None:
    """The code says that it is one: no conversion is asked for."""
    driver.granted("a", mode=SHARED, session_id="ann")
    driver.granted("b", mode=SHARED, session_id="ann")
    driver.granted("b", mode=SHARED, session_id="bob")
    driver.granted("a", mode=SHARED)
    driver.converting("h1", EXCLUSIVE)
    driver.converting("h3", EXCLUSIVE)
    assert reason(driver.give_session("h4", "bob")) is Reason.DEADLOCK


def test_a_deadlock_search_that_is_too_long_finds_nothing(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of any wait: leases end it."""
    driver.granted("b", session_id="ann")
    driver.granted("a")
    driver.waits("b", session_id="bob")
    driver.waits("a", session_id="ann")
    monkeypatch.setattr(limits, "DEADLOCK_STEPS_MAX", 1)
    expect(HandedOver, driver.give_session("h2", "bob"))


def test_only_its_own_sessions_are_given_anything(driver: Driver) -> None:
    """A session of another principal is not there for the giver; a waiter of another one has asked."""
    driver.run(OnBehalf("eve", OpenSession(SessionId("eve"), 5_000)))
    asked = Acquire("a", EXCLUSIVE, HoldId("of-pat"), AttemptId("x"), ttl_ms=9_000)
    driver.run(OnBehalf("pat", asked))
    assert reason(driver.give_session("of-pat", "eve", by="pat")) is Reason.SESSION_EXPIRED
    assert reason(driver.give_session("of-pat", "ann", by="eve")) is Reason.LEASE_EXPIRED
    waits = Acquire("a", EXCLUSIVE, HoldId("of-eve"), AttemptId("y"), ttl_ms=9_000, wait_ms=9_000)
    expect(Queued, driver.run(OnBehalf("eve", waits)))
    expect(HandedOver, driver.run(OnBehalf("pat", HandOver(HoldId("of-pat"), driver.number("of-eve")))))
    assert [(event.kind, event.principal) for event in driver.events] == [
        (EventKind.HANDED_OVER, "pat"),
        (EventKind.GRANTED, "eve"),
    ]


def test_the_quota_of_the_receiver_counts(driver: Driver) -> None:
    """Through a node that knows nobody a session of somebody is given no more than its quota has room for."""
    driver.run(OnBehalf("eve", OpenSession(SessionId("eve"), 5_000)))
    driver.granted("a")
    driver.run(SetQuota("eve", Quota(holds=0)))
    expect(QuotaExceeded, driver.give_session("h1", "eve"))
    driver.run(SetQuota("eve", Quota(holds=1)))
    expect(HandedOver, driver.give_session("h1", "eve"))
    assert driver.machine.state.principals.used_by("eve").holds == 1


def test_its_own_quota_need_not_have_room(driver: Driver) -> None:
    """What a principal hands to a session of its own it has already."""
    driver.run(OnBehalf("eve", OpenSession(SessionId("eve"), 5_000)))
    driver.run(SetQuota("eve", Quota(holds=1)))
    driver.run(OnBehalf("eve", Acquire("a", EXCLUSIVE, HoldId("own"), AttemptId("x"), ttl_ms=9_000)))
    expect(HandedOver, driver.give_session("own", "eve", by="eve"))


def test_a_repetition_is_answered_as_the_first(driver: Driver) -> None:
    """A lost answer can be asked for again, though nothing of the hold is left."""
    driver.granted("a")
    command = HandOver(HoldId("h1"), 0, "s-2", NEW, "r")
    first = expect(HandedOver, driver.run(command))
    assert driver.run(command) == first
    assert driver.events == ()
    assert reason(driver.run(HandOver(HoldId("h1"), 0, "s-2", NEW))) is Reason.LEASE_EXPIRED


def test_a_revocation_goes_along(driver: Driver) -> None:
    """The receiver has what is left of the grace, and a put-off is used up."""
    driver.granted("a", ttl_ms=50_000)
    driver.run(Revoke("a", "maintenance", 1_000))
    expect(PutOffTo, driver.run(_put_off("h1"), at_ms=100))
    expect(HandedOver, driver.give_session("h1", "bob", at_ms=600))
    told = driver.events[-1]
    assert (told.kind, told.token, told.ends_in_ms) == (EventKind.REVOKED, 2, 1_400)
    assert reason(driver.run(_put_off(NEW))) is Reason.NOT_REVOKED
    assert driver.pass_to(2_000) == []
    assert driver.pass_to(2_001) == [EventKind.FORCED]


def _put_off(hold_id: str) -> PutOff:
    return PutOff(HoldId(hold_id))


def test_what_was_asked_for_a_wait_goes_along_while_the_receiver_is_in_its_way(driver: Driver) -> None:
    """It ends with the receiver's own wait, or if the receiver can stand beside the one that asked."""
    driver.granted("a", ttl_ms=50_000)
    asking = driver.waits("a", mode=SHARED)
    writer = driver.waits("a")
    reader = driver.waits("a", mode=SHARED)
    driver.run_all([Revoke("a", "x", 1_000, HoldKind.LOCK, 0, one) for one in (asking, writer)])
    expect(HandedOver, driver.give("h1", writer))
    (plea,) = driver.machine.state.pleas.rows.values()
    assert (plea.ticket, plea.hold_id) == (asking, "h3")
    expect(HandedOver, driver.give("h3", reader))
    assert not driver.machine.state.pleas.rows


@pytest.mark.parametrize(("priority", "asked"), [(9, 0), (1, 1)])
def test_what_a_wait_asked_by_itself_it_must_be_able_to_ask_the_receiver(
    priority: int,
    asked: int,
    driver: Driver,
) -> None:
    """A holder of a higher priority, and of another principal, is not asked by way of a friend."""
    driver.run(SetNamespace("a", NamespaceSettings(priority=True, ask_after_ms_min=0)))

    def acquire(who: str, priority: int, asks: Asking | None = None) -> Result:
        command = Acquire(
            "a",
            EXCLUSIVE,
            HoldId(who),
            AttemptId(who),
            ttl_ms=50_000,
            owner=OwnerName(who),
            wait_ms=50_000,
            uncommon=Uncommon(priority=priority, asks=asks),
        )
        return driver.run(OnBehalf(who, command))

    acquire("low", 1)
    acquire("asking", 5, Asking(100, 1_000))
    acquire("next", priority)
    driver.pass_to(101)
    expect(HandedOver, driver.run(OnBehalf("low", HandOver(HoldId("low"), driver.number("next")))))
    assert len(driver.machine.state.pleas.rows) == asked


def test_a_snapshot_remembers_that_it_was_handed_over(driver: Driver) -> None:
    """The audit names both tokens, also after a restart."""
    driver.granted("a")
    expect(HandedOver, driver.give_session("h1", "bob"))
    loaded = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    invariants.check(loaded.state)
    assert [event.to_token for event in loaded.audit("a")] == [0, 2, 0]
    assert loaded.fingerprint == driver.machine.fingerprint


def test_what_could_not_wait_is_found_by_mode(driver: Driver) -> None:
    """A receiver in a mode that goes with all other holders is given the lock beside them."""
    driver.granted("a", mode=SHARED)
    driver.granted("a", mode=Mode.CONCURRENT_READ)
    driver.waits("a", mode=Mode.EXCLUSIVE)
    chosen = driver.waits("a", mode=SHARED)
    expect(HandedOver, driver.give("h1", chosen))
    assert driver.holders("a") == [2, 3]


def test_a_session_of_nobody_is_given_nothing_where_callers_have_names(driver: Driver) -> None:
    """Anybody may know its public name, and could put anything there, beside every quota of its own."""
    driver.run(OnBehalf("pat", Acquire("a", EXCLUSIVE, HoldId("h"), AttemptId("x"), ttl_ms=9_000)))
    assert reason(driver.give_session("h", "bob", by="pat")) is Reason.SESSION_EXPIRED
    driver.run(OnBehalf("pat", OpenSession(SessionId("own"), 9_000, {}, OwnerName("pat"))))
    expect(HandedOver, driver.give_session("h", "own", by="pat"))


def test_a_namespace_has_room_for_what_it_did_not_count(driver: Driver) -> None:
    """A hold that is older than the namespace does not count in it; one in its place does."""
    driver.granted("ns/old")
    driver.run(SetNamespace("ns", NamespaceSettings(holds=0)))
    assert reason(driver.give_session("h1", "bob")) is Reason.QUOTA_EXCEEDED
    driver.run(SetNamespace("ns", NamespaceSettings(holds=5, bytes=3)))
    assert reason(driver.give_session("h1", "bob")) is Reason.QUOTA_EXCEEDED
    driver.run(SetNamespace("ns", NamespaceSettings(holds=1)))
    expect(HandedOver, driver.give_session("h1", "bob"))
    driver.run(SetNamespace("ns", NamespaceSettings(holds=1, bytes=6)))
    name = f"s-{driver.machine.state.sessions[SessionId('ann')].order}"
    expect(HandedOver, driver.run(HandOver(NEW, 0, name, HoldId("n2"))))


def handed_to_and_fro(driver: Driver, *at_ms: int) -> list[Reason | None]:
    """Hand `h1` over between two sessions at these times; return how each was refused, or None."""
    hold_id, outcomes = "h1", []
    for turn, now_ms in enumerate(at_ms):
        name = f"s-{driver.machine.state.sessions[SessionId(('bob', 'ann')[turn % 2])].order}"
        result = driver.run(HandOver(HoldId(hold_id), 0, name, HoldId(f"n{turn}")), now_ms)
        outcomes.append(None if isinstance(result, HandedOver) else reason(result))
        hold_id = f"n{turn}"
    return outcomes


def test_to_and_fro_gives_no_more_time(driver: Driver) -> None:
    """What bounds the giver bounds the session; who was told is told again, and the lock ends in time."""
    driver.run(SetNamespace("ns", NamespaceSettings(held_ms_max=5_000)))
    driver.granted("ns/a", session_id="ann")
    assert handed_to_and_fro(driver, 1_000, 2_000, 3_000) == [None, None, None]
    told = [event.ends_in_ms for event in driver.events if event.kind is EventKind.REVOKED]
    assert told == [2_000, 2_000]
    assert reason(driver.run(HandOver(HoldId("n2"), 0, "s-1", NEW), 5_001)) is Reason.LEASE_EXPIRED
    assert driver.holders("ns/a") == []
    invariants.check(driver.machine.state)


@pytest.mark.parametrize(("now_max", "ends_ms"), [(None, 5_001), (60_000, 5_001), (1_000, 2_001)])
def test_of_two_bounds_the_earlier_one_counts(driver: Driver, now_max: int | None, ends_ms: int) -> None:
    """That of the giver, or that of the namespace as it is now."""
    driver.run(SetNamespace("ns", NamespaceSettings(held_ms_max=5_000)))
    driver.granted("ns/a", session_id="ann")
    driver.run(SetNamespace("ns", NamespaceSettings(held_ms_max=now_max)), 1_000)
    assert handed_to_and_fro(driver, 1_000) == [None]
    driver.pass_to(ends_ms - 1)
    assert driver.holders("ns/a") == [2]
    driver.pass_to(ends_ms)
    assert driver.holders("ns/a") == []


def test_a_waiter_has_its_own_time(driver: Driver) -> None:
    """It asked for the lock, and was let."""
    driver.run(SetNamespace("ns", NamespaceSettings(held_ms_max=5_000)))
    driver.granted("ns/a", session_id="ann")
    chosen = driver.waits("ns/a", session_id="bob")
    expect(HandedOver, driver.give("h1", chosen, at_ms=4_000))
    driver.pass_to(9_000)
    assert driver.holders("ns/a") == [2]
    driver.pass_to(9_001)
    assert driver.holders("ns/a") == []
