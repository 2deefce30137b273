"""Loads: none for what nearly everybody asks for, much for many names and for the end of them."""

import pytest

from cluster.commands.batcher import ENTRY_LOAD_MAX
from cluster.commands.loads import load_of
from cluster.commands.outbox import UNDER_WAY_LOAD_MAX
from lockstate.words import codec, limits
from lockstate.words.commands import (
    Acquire,
    CloseSession,
    Command,
    Numbered,
    OnBehalf,
    OpenSession,
    Release,
    ReleaseOf,
    Renew,
    Wanted,
)
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.modes import Mode
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
    return load_of(codec.encode_command(command), (driver or MachineDriver()).machine)


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
        ReleaseOf(HoldId("h")),  # what a node makes of every release by rules 5 and later
        OnBehalf("ann", ReleaseOf(HoldId("h"))),
        CloseSession(SessionId("s")),
    )
    for command in ends:
        assert 64 * 25 < load(command, driver) <= limits.REQUEST_CLAIMS_MAX
    driver.run(Release(HoldId("h")))
    assert load(Release(HoldId("h")), driver) == load(CloseSession(SessionId("s")), driver) == 0


def test_a_node_may_have_as_much_under_way_as_an_entry_takes() -> None:
    """More would wait elsewhere, in the order in which it was sent."""
    assert UNDER_WAY_LOAD_MAX == ENTRY_LOAD_MAX >= limits.REQUEST_CLAIMS_MAX
