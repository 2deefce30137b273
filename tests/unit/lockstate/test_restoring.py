"""A state that begins in a new cluster: what ends, what stays, and where tokens go on."""

import pytest

from lockstate import invariants
from lockstate.machine import LockMachine
from lockstate.rules.restoring import TOKENS_SKIPPED, Restoration
from lockstate.stored import snapshot
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.entries import OnBehalf
from lockstate.words.commands.overrides import Freeze
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.events import EventKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import FenceAdvanced, Granted, Queued, Renewed
from lockstate.words.settings import NamespaceSettings, Quota
from tests.unit.lockstate.cell_driver import CellDriver
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, expect

SOURCE = "from a test"


class RestoredDriver(CellDriver):
    """A machine that can be restored, and is checked then."""

    def restore(self, *, keeps_holds: bool = False, token_min: int = 0) -> str:
        """Restore the state as if it came from a backup; return what the audit says of it."""
        self.machine = LockMachine(snapshot.decode(snapshot.encode(self.machine.state)))
        self.machine.restore(Restoration(SOURCE, keeps_holds, token_min))
        invariants.check(self.machine.state)
        assert self.machine.is_sound
        newest, *_ = self.machine.audit(limit=1)
        assert (newest.kind, newest.revision) == (EventKind.RESTORED, self.machine.revision)
        assert newest.token == self.machine.next_token - 1
        return newest.reason


@pytest.fixture
def driver() -> RestoredDriver:
    """Return a machine of the newest rules."""
    return RestoredDriver()


def test_all_that_was_granted_ends(driver: RestoredDriver) -> None:
    """Holds of every kind, sessions, and waits of every kind are gone, and nothing was granted instead."""
    driver.open("s1")
    driver.open("s2")
    driver.acquire("own")
    driver.acquire("own", wait_ms=500)
    held = expect(Granted, driver.acquire("both", mode=SHARED, session_id="s1"))
    driver.acquire("both", mode=SHARED, session_id="s2")
    driver.convert(held.hold_id, EXCLUSIVE, wait_ms=500)
    driver.permits("sem", 1)
    driver.permits("sem", 1, wait_ms=500)
    driver.campaign("led", session_id="s1")
    token = driver.machine.next_token - 1
    assert driver.restore() == f"{SOURCE}; ended holds: 5, waits: 3, sessions: 2"
    state = driver.machine.state
    assert not any((state.holds, state.tickets, state.sessions, state.locks, state.semaphores))
    assert driver.machine.next_token == token + TOKENS_SKIPPED
    kinds = [event.kind for event in driver.machine.audit()]
    assert EventKind.FORCED not in kinds
    assert kinds.count(EventKind.RESTORED) == 1
    assert EventKind.GRANTED in kinds


def test_what_is_no_grant_stays(driver: RestoredDriver) -> None:
    """Fences, cells, freezes, quotas, namespaces and rate limits are as they were."""
    held = expect(Granted, driver.acquire("a"))
    driver.run(AdvanceFence("store", held.token))
    driver.put("kept", "v")
    driver.run(Freeze("cold", "moved"))
    driver.run(SetQuota("p", Quota(holds=3), "so"))
    driver.run(SetNamespace("ns", NamespaceSettings(holds=3), "so"))
    driver.run(TakeRate("calls", limit=5, window_ms=60_000))
    driver.run(OnBehalf("p", AdvanceFence("theirs", held.token)))
    before = driver.machine.state
    driver.restore()
    state = driver.machine.state
    assert state.fences == before.fences == {"store": held.token, "theirs": held.token}
    assert driver.machine.cell(b"kept") is not None
    assert list(state.freezes) == ["cold"]
    assert state.principals.dump_quotas() == before.principals.dump_quotas() != []
    assert list(state.namespaces.rows) == ["ns"]
    assert len(state.rates) == 1


def test_cells_of_sessions_go_with_them(driver: RestoredDriver) -> None:
    """A cell that says that somebody is there does not say so any more; the cell of a kept session stays."""
    driver.open("s1")
    driver.put("here", "v", session_id="s1")
    other = RestoredDriver()
    other.machine = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    driver.restore()
    assert driver.machine.cell(b"here") is None
    other.restore(keeps_holds=True)
    assert other.machine.cell(b"here") is not None


def test_old_tokens_are_refused_by_fences(driver: RestoredDriver) -> None:
    """The first grant of the new cluster is above all that the old one can have given out."""
    old = expect(Granted, driver.acquire("a"))
    driver.restore()
    new = expect(Granted, driver.acquire("a"))
    assert new.token == old.token + TOKENS_SKIPPED
    assert driver.run(AdvanceFence("store", new.token)) == FenceAdvanced(new.token)
    for token in (old.token, old.token + TOKENS_SKIPPED - 1):
        assert expect(Refused, driver.run(AdvanceFence("store", token))).reason is Reason.STALE_TOKEN


def test_a_hold_that_ended_leaves_its_lock_delay(driver: RestoredDriver) -> None:
    """Its holder may still write: others wait as long as it asked for."""
    driver.acquire("a", lock_delay_ms=500)
    driver.restore()
    assert (
        expect(Refused, driver.acquire("a", at_ms=499)).detail
        == "delayed after an expiry or a forced release"
    )
    expect(Granted, driver.acquire("a", at_ms=501))


def test_a_repeated_request_learns_that_its_hold_is_over(driver: RestoredDriver) -> None:
    """What was remembered of it stays true; nothing is left of the lease."""
    driver.acquire("a", request_id="r")
    driver.restore()
    assert expect(Granted, driver.acquire("a", request_id="r")).expires_in_ms == 0


@pytest.mark.parametrize(("token_min", "first"), [(0, TOKENS_SKIPPED), (1_000, 1_000), (1, 1)])
def test_where_tokens_begin(driver: RestoredDriver, token_min: int, first: int) -> None:
    """Of a state without grants they begin where an operator says, or far above nothing."""
    driver.restore(token_min=token_min)
    assert expect(Granted, driver.acquire("a")).token == first


def test_tokens_never_go_back(driver: RestoredDriver) -> None:
    """A lower one than is known is not heard."""
    driver.acquire("a")
    second = expect(Granted, driver.acquire("b"))
    driver.restore(token_min=1)
    assert expect(Granted, driver.acquire("a")).token == second.token + 1


def test_kept_holds_have_a_whole_lease(driver: RestoredDriver) -> None:
    """Of holds and sessions; waits go on, and are served as ever."""
    driver.open("s1", ttl_ms=1_000)
    held = expect(Granted, driver.acquire("a", ttl_ms=1_000))
    in_session = expect(Granted, driver.acquire("b", session_id="s1"))
    waiting = expect(Queued, driver.acquire("a", wait_ms=5_000, at_ms=900))
    reason = driver.restore(keeps_holds=True)
    assert reason == f"{SOURCE}; kept holds: 2, waits: 1, sessions: 1"
    assert expect(Renewed, driver.renew(held.hold_id, at_ms=1_800)).token == held.token
    assert in_session.hold_id in driver.machine.state.holds
    driver.release(held.hold_id, at_ms=1_850)
    assert driver.served() == [waiting.hold_id]
    assert driver.machine.state.holds[waiting.hold_id].token == in_session.token + TOKENS_SKIPPED


def test_restoring_is_the_same_everywhere(driver: RestoredDriver) -> None:
    """Two nodes that restored the same would have the same state."""
    driver.open("s1")
    for name in "abc":
        driver.acquire(name, session_id="s1", lock_delay_ms=100)
    twins = [LockMachine(snapshot.decode(snapshot.encode(driver.machine.state))) for _ in range(2)]
    for twin in twins:
        twin.restore(Restoration(SOURCE))
    assert snapshot.digest(twins[0].state) == snapshot.digest(twins[1].state)
    assert twins[0].fingerprint == twins[1].fingerprint
