"""What operators write: each command takes a reason, and leaves a record in the audit and an event."""

from typing import Final

import msgspec
import pytest

from lockstate.catalogue import ROWS
from lockstate.machine import LockMachine
from lockstate.rules.restoring import Restoration
from lockstate.stored import snapshot
from lockstate.tables.records import PreferredLeader
from lockstate.words import limits
from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct, SetNamespace, SetQuota
from lockstate.words.commands.entries import OfSomebody, OnBehalf
from lockstate.words.commands.overrides import (
    ForceCloseSession,
    ForceRelease,
    ForceWaits,
    ForgetFence,
    ForgetRates,
    Freeze,
    LiftDelay,
    Revoke,
    Thaw,
    WithdrawRevocation,
)
from lockstate.words.commands.primitives import AdvanceFence, ResizeSemaphore, TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.events import OF_CLUSTER, OF_OPERATORS, EventKind
from lockstate.words.ids import SessionId
from lockstate.words.kinds import ClusterAct, IfHeld
from lockstate.words.refusals import Reason
from lockstate.words.settings import NamespaceSettings, Quota, RateSettings
from tests.unit.lockstate.machine_driver import MachineDriver, reason

WHY: Final = "because it hangs"

ACTS: Final[dict[type, tuple[tuple[OfSomebody, EventKind], ...]]] = {
    ForceCloseSession: ((ForceCloseSession("s-1", WHY), EventKind.SESSION_FORCED),),
    ForceRelease: ((ForceRelease("held", WHY), EventKind.FORCED),),
    ForceWaits: ((ForceWaits("held", WHY), EventKind.WAIT_FORCED),),
    LiftDelay: ((LiftDelay("delayed", WHY), EventKind.DELAY_LIFTED),),
    ForgetRates: ((ForgetRates("mail", WHY), EventKind.RATE_LIMIT_FORGOTTEN),),
    ForgetFence: ((ForgetFence("disk", WHY), EventKind.FENCE_FORGOTTEN),),
    Freeze: ((Freeze("warm", WHY), EventKind.FROZEN),),
    Thaw: ((Thaw("cold", WHY), EventKind.THAWED),),
    Revoke: ((Revoke("held", WHY, 1000), EventKind.REVOKED),),
    WithdrawRevocation: ((WithdrawRevocation("asked", WHY), EventKind.REVOCATION_WITHDRAWN),),
    ResizeSemaphore: ((ResizeSemaphore("pool", 5, reason=WHY), EventKind.RESIZED),),
    SetQuota: (
        (SetQuota("ops", Quota(holds=5), reason=WHY), EventKind.QUOTA_SET),
        (SetQuota("ann", reason=WHY), EventKind.QUOTA_REMOVED),
    ),
    RecordAct: tuple((RecordAct(act, "n4", "", WHY), kind) for act, kind in OF_CLUSTER.items()),
    HoldRules: (
        (HoldRules(is_held=True, reason=WHY), EventKind.RULES_HELD),
        (HoldRules(is_held=False, reason=WHY), EventKind.RULES_RELEASED),
    ),
    PreferLeader: (
        (PreferLeader("n4", WHY), EventKind.LEADER_PREFERRED),
        (PreferLeader("", WHY), EventKind.PREFERENCE_ENDED),
    ),
    SetNamespace: (
        (SetNamespace("new", NamespaceSettings(waits=1), reason=WHY), EventKind.NAMESPACE_SET),
        (SetNamespace("old", reason=WHY), EventKind.NAMESPACE_REMOVED),
    ),
}
"""Each command, and the event that it leaves in the state that `driver` has."""
OF_ANYBODY: Final = {ResizeSemaphore}
"""Acts for which the right to acquire is enough."""


@pytest.fixture
def driver() -> MachineDriver:
    """Return a machine in which each of the acts finds something."""
    driver = MachineDriver()
    driver.run(HoldRules(is_held=True, reason="not before Monday"))
    driver.run(PreferLeader("n5", "it is near"))
    driver.run(OpenSession(SessionId("s1"), 60_000))
    driver.granted("held", session_id="s1")
    driver.granted("asked", session_id="s1")
    driver.queued("held", ttl_ms=60_000)
    driver.granted("delayed", ttl_ms=60_000)
    driver.force("delayed", 60_000)
    driver.permitted("pool", 2, session_id="s1")
    driver.run_all(
        [
            AdvanceFence("disk", 3),
            TakeRate("mail", 2, 60_000),
            SetQuota("ann", Quota(holds=1)),
            SetNamespace("old", NamespaceSettings(holds=1)),
            Freeze("cold", WHY),
            Revoke("asked", "it is needed", 30_000),
        ]
    )
    return driver


def test_every_write_of_operators_is_an_act() -> None:
    """What needs a right of operators says why it is done, and is among those that are tried here."""
    operators = {row.command for row in ROWS if row.right in {"force", "admin"}}
    with_reason = {row.command for row in ROWS if "reason" in row.command.__struct_fields__}
    assert operators | OF_ANYBODY == with_reason == set(ACTS)


@pytest.mark.parametrize(
    ("command", "kind"), [act for acts in ACTS.values() for act in acts], ids=lambda of: type(of).__name__
)
def test_an_act_leaves_a_record_and_an_event(
    command: OfSomebody, kind: EventKind, driver: MachineDriver
) -> None:
    """It says who did it and why, and grants do not push it out."""
    driver.run(OnBehalf("ops", command))
    (told,) = [event for event in driver.events if event.kind is kind]
    assert (told.reason, told.by) == (WHY, "ops")
    assert told in driver.machine.audit()
    assert kind in OF_OPERATORS
    assert told.concerns_others


@pytest.mark.parametrize(
    ("command", "value"),
    [
        (SetQuota("*", Quota(sessions=1, bytes=0)), '{"sessions":1,"bytes":0}'),
        (SetQuota("*", Quota()), "{}"),
        (
            SetNamespace("a", NamespaceSettings(if_held=IfHeld.REFUSE, rate=RateSettings(3, 1000))),
            '{"if_held":"refuse","rate":{"limit":3,"window_ms":1000,"algorithm":"fixed-window"}}',
        ),
        (SetNamespace("old"), ""),
        (RecordAct(ClusterAct.ADD, "n4", "h:1", WHY), '{"id":"n4","peer":"h:1"}'),
        (RecordAct(ClusterAct.REMOVE, "n4", "", WHY), '{"id":"n4"}'),
        (RecordAct(ClusterAct.TRANSFER, "", "", WHY), "{}"),
        (PreferLeader("n4", WHY), '{"id":"n4"}'),
        (PreferLeader("", WHY), '{"id":"n5"}'),
    ],
)
def test_what_is_set_is_told(command: OfSomebody, value: str, driver: MachineDriver) -> None:
    """As JSON, without what it leaves open."""
    driver.run(command)
    (told,) = driver.events
    assert told.value == value


@pytest.mark.parametrize(
    "command",
    [
        ResizeSemaphore("pool", 2, reason=WHY),
        ResizeSemaphore("nobody's", 2, reason=WHY),
        SetQuota("ann", Quota(holds=1), reason=WHY),
        SetQuota("bob", reason=WHY),
        SetNamespace("none", reason=WHY),
    ],
)
def test_what_changes_nothing_leaves_nothing(command: OfSomebody, driver: MachineDriver) -> None:
    """A limit and a quota as they were, and the removal of what is not there."""
    driver.run(command)
    assert driver.events == ()


@pytest.mark.parametrize("why", ["\n", "x" * (limits.REASON_BYTES_MAX + 1)])
@pytest.mark.parametrize(
    "kind", [HoldRules, PreferLeader, RecordAct, ResizeSemaphore, SetNamespace, SetQuota]
)
def test_reasons_that_cannot_be_shown(kind: type, why: str, driver: MachineDriver) -> None:
    """They are refused, and nothing has changed."""
    ((command, _), *_) = ACTS[kind]
    assert reason(driver.run(msgspec.structs.replace(command, reason=why))) is Reason.INVALID_REQUEST
    assert driver.events == ()


@pytest.mark.parametrize(
    ("node_id", "peer"), [("n" * 65, "h:1"), ("n4\n", "h:1"), ("n4", "\n"), ("n4", "h" * 513)]
)
def test_an_act_on_no_node_is_not_recorded(node_id: str, peer: str, driver: MachineDriver) -> None:
    """What is not a node or an address does not get into the audit."""
    command = RecordAct(ClusterAct.ADD, node_id, peer, WHY)
    assert reason(driver.run(command)) is Reason.INVALID_REQUEST
    assert driver.events == ()


def test_who_should_lead_survives_a_snapshot_and_ends_with_the_node(driver: MachineDriver) -> None:
    """Who wants it, why and since when; that stays if only the reason changes."""
    since_ms = driver.machine.now_ms
    driver.run(OnBehalf("ops", PreferLeader("n4", "it is near")))
    driver.run(OnBehalf("ann", PreferLeader("n4", "it is quick")))
    other = driver.machine.fingerprint
    restored = LockMachine(snapshot.decode(snapshot.encode(driver.machine.state)))
    assert restored.state.preferred == PreferredLeader(since_ms, "n4", "ann", "it is quick")
    assert restored.fingerprint == other
    driver.run(RecordAct(ClusterAct.REMOVE, "n5", "", WHY))
    assert driver.machine.state.preferred is not None
    driver.run(RecordAct(ClusterAct.REMOVE, "n4", "", WHY))
    assert driver.machine.state.preferred is None


def test_a_restored_cluster_prefers_nobody(driver: MachineDriver) -> None:
    """The node that the old one preferred may not be a member of it."""
    assert driver.machine.state.preferred is not None
    driver.machine.restore(Restoration("a backup", keeps_holds=True))
    assert driver.machine.state.preferred is None


def test_a_repeated_request_is_recorded_once(driver: MachineDriver) -> None:
    """As every other request with the same id."""
    act = RecordAct(ClusterAct.REMOVE, "n4", "", WHY, "request-1")
    driver.run(OnBehalf("ops", act))
    driver.run(OnBehalf("ops", act))
    asked = [event for event in driver.machine.audit() if event.kind is EventKind.MEMBER_REMOVE_ASKED]
    assert len(asked) == 1
