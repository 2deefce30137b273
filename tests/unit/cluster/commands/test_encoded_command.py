"""Loads: none for what nearly everybody asks for, much for many names and for the end of them."""

import msgspec
import pytest

from cluster.commands.batcher import ENTRY_LOAD_MAX
from cluster.commands.encoded_command import EncodedCommand, encode
from cluster.commands.outbox import UNDER_WAY_LOAD_MAX
from lockstate.words import codec, limits
from lockstate.words.commands.entries import Command, OnBehalf, Tick
from lockstate.words.commands.holds import Acquire, Release, Renew
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import EndWait, Numbered
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
from lockstate.words.wanted import Wanted
from tests.unit.lockstate.machine_driver import MachineDriver

ID = "0" * 32
DEEP = tuple(Wanted(f"team/{place}" + "/part" * 28) for place in range(64))


def acquire(
    name: str = "", *, locks: tuple[Wanted, ...] = (), hold_id: str = ID, session_id: str = ""
) -> Acquire:
    """Return what a client asks for."""
    return Acquire(
        name,
        Mode.EXCLUSIVE,
        HoldId(hold_id),
        AttemptId(ID),
        SessionId(session_id),
        ttl_ms=0 if session_id else 30_000,
        locks=locks,
    )


def load(command: Command, driver: MachineDriver | None = None) -> int:
    """Return the load of a command."""
    return encode(command, (driver or MachineDriver()).machine).load


@pytest.mark.parametrize(
    "command",
    [
        acquire("orders/eu/shop-17/lock", session_id=ID),
        acquire("orders"),
        Release(HoldId(ID)),
        Renew(HoldId(ID)),
        OpenSession(SessionId(ID), 30_000),
        CloseSession(SessionId(ID)),
    ],
)
def test_what_most_ask_for_has_no_load(command: Command) -> None:
    """Thousands of it share an entry, alone or in frames."""
    assert load(command) == 0
    if isinstance(command, Acquire):
        frame = Numbered(500, SessionId(ID), 1, 1, (), (command,) * 500)
        assert load(frame) == 0


def test_names_of_many_parts_have_as_much_load_as_parts() -> None:
    """An entry has room for the largest request there may be, and for no second one."""
    deep = load(acquire(locks=DEEP))
    assert 64 * 25 < deep <= ENTRY_LOAD_MAX
    assert 2 * deep > ENTRY_LOAD_MAX
    frame = Numbered(2, SessionId(ID), 1, 1, (), (acquire(locks=DEEP), acquire("orders")))
    assert deep - 50 < load(frame) <= deep + 50


def test_the_end_of_many_claims_has_their_load() -> None:
    """A release says only an id: what it ends is found in the state, as is what a session has."""
    driver = MachineDriver()
    driver.run(OpenSession(SessionId("s"), 30_000))
    driver.run(acquire(locks=DEEP, hold_id="h", session_id="s"))
    ends: tuple[Command, ...] = (
        Release(HoldId("h")),
        CloseSession(SessionId("s")),
    )
    for command in ends:
        for principal in ("", "ann"):
            assert 64 * 25 < encode(command, driver.machine, principal).load <= limits.REQUEST_CLAIMS_MAX
    driver.run(Release(HoldId("h")))
    assert load(Release(HoldId("h")), driver) == load(CloseSession(SessionId("s")), driver) == 0


def test_a_node_may_have_as_much_under_way_as_an_entry_takes() -> None:
    """More would wait elsewhere, in the order in which it was sent."""
    assert UNDER_WAY_LOAD_MAX == ENTRY_LOAD_MAX >= limits.REQUEST_CLAIMS_MAX


@pytest.mark.parametrize(("frame_count", "count"), [(0, 1), (1, 1), (300, 300), (1024, 1024), (1025, 1024)])
def test_a_frame_counts_as_the_commands_in_it(frame_count: int, count: int) -> None:
    """Whoever asks, and whatever a client sends: it fits an entry."""
    frame = Numbered(frame_count, SessionId("s"), 1, 1, (), (EndWait(1),) * frame_count)
    for principal in ("", "ann"):
        assert encode(frame, MachineDriver().machine, principal).count == count
    assert encode(Tick(), MachineDriver().machine).count == 1


@pytest.mark.parametrize("principal", ["", "ann"])
def test_keepalives_are_patient(principal: str) -> None:
    """Whoever asks for them. Nothing else is."""
    session_id = SessionId("s")
    for command in (KeepAlive(session_id), KeepAlive(session_id, 60_000)):
        assert encode(command, MachineDriver().machine, principal).is_patient
    for other in (Renew(HoldId("h")), CloseSession(session_id)):
        assert not encode(other, MachineDriver().machine, principal).is_patient


@pytest.mark.parametrize("principal", ["", "ann"])
def test_the_bytes_are_those_of_the_log(principal: str) -> None:
    """With the name of who asks, if there is one."""
    command = Renew(HoldId("h"))
    encoded = encode(command, MachineDriver().machine, principal)
    named = OnBehalf(principal, command) if principal else command
    assert encoded.data == codec.encode_command(named)


@pytest.mark.parametrize("facts", [(-1, 1), (0, 0), (0, limits.STREAM_KEPT_MAX + 1)])
def test_facts_that_no_correct_node_tells_are_refused(facts: tuple[int, int]) -> None:
    """A leader fills its entries by them."""
    data = msgspec.msgpack.encode(EncodedCommand(b"x", *facts))
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(data, type=EncodedCommand)
