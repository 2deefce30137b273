"""Every table that a call can make grow is in a quota and in a namespace, or has a bound of its own.

Who adds a table to the state says here what bounds it: the first test finds tables that nobody has named. The
second makes them grow, and compares their rows with what counts for the principal and in the namespace.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from lockstate.tables.ledger import NOTED_MAX
from lockstate.tables.names import GONE_MAX, YOUNG_MAX
from lockstate.tables.namespaces import NamespaceUsage
from lockstate.tables.principals import Usage
from lockstate.tables.state import State
from lockstate.words import limits
from lockstate.words.commands.admin import SetNamespace, SetQuota
from lockstate.words.commands.cells import PutCell
from lockstate.words.commands.entries import OfSomebody
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    Release,
)
from lockstate.words.commands.overrides import Revoke
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, SessionId
from lockstate.words.kinds import Algorithm
from lockstate.words.refusals import QuotaExceeded, Refused, RefusedInNamespace
from lockstate.words.settings import NamespaceSettings, Quota
from lockstate.words.wanted import Asking, Uncommon, WantedPermits, WantedRate
from tests.unit.lockstate.machine_driver import EXCLUSIVE, SHARED, wanted
from tests.unit.lockstate.test_principals import Driver

Used = Usage | NamespaceUsage
ATTEMPTS: Final = limits.ATTEMPTS_COUNT_MAX + 1

IN_QUOTAS_AND_NAMESPACES: Final[dict[str, Callable[[Used], int]]] = {
    "holds": lambda used: used.holds,
    "tickets": lambda used: used.waits,
    "party_tickets": lambda used: used.waits,
    "wishes": lambda used: used.waits,
    "origin_tickets": lambda used: used.waits * ATTEMPTS,
    "semaphores": lambda used: used.holds,
    "crowds.rows": lambda used: used.holds,
    "delays": lambda used: used.holds,
    "permit_delays": lambda used: used.holds,
    "pleas.rows": lambda used: used.holds * (used.waits + 1),  # of each name one for each wait, and one more
    "pleas.of_holds": lambda used: used.holds,
    "pleas.of_tickets": lambda used: used.waits,
    "pleas.asks": lambda used: used.waits,
    "claimed.locks": lambda used: used.bytes,  # a name has fewer ancestors than bytes
    "claimed.intents": lambda used: used.bytes,
    "fences": lambda used: used.fences,
    "principals.fences": lambda used: used.fences,
    "namespaces.fences": lambda used: used.fences,
    "cells._cells": lambda used: used.cells,
    "cells._of_sessions": lambda used: used.cells,
    "principals.cells": lambda used: used.cells,
    "rates._limiters": lambda used: used.rate_limits,
    "rates._reserved": lambda used: used.rate_limits,
    "rates.places": lambda used: used.waits,
    "rates.by_id": lambda used: used.waits * ATTEMPTS,
    "rates.by_request": lambda used: used.waits,
}
"""How many rows a table may have at most, by what counts for whoever made them, and where they lie."""

IN_QUOTAS: Final[dict[str, Callable[[Usage], int]]] = {
    "sessions": lambda used: used.sessions,
    "streams._streams": lambda used: used.sessions,
    "principals.rows": lambda used: used.sessions + used.holds,
}
"""The same of what lies in no namespace, for a session has no name.

A stream has `limits.STREAM_KEPT_MAX` outcomes of `limits.STREAM_KEPT_BYTES_MAX` bytes at most.
"""

OF_THEIR_OWN: Final = {
    # What only operators make, with the right `admin`, and freezes with `force`.
    "freezes": limits.FREEZES_COUNT_MAX,
    "principals.quotas": limits.QUOTAS_COUNT_MAX,
    "namespaces.rows": limits.NAMESPACES_COUNT_MAX,
    "namespaces.usage": limits.NAMESPACES_COUNT_MAX,
    # One for each principal that has anything, of those that tokens and certificates name.
    "principals.usage": limits.QUOTAS_COUNT_MAX,
    # What is remembered for five minutes, of all callers together: none of them has a bound of its own.
    "requests._requests": limits.REQUESTS_COUNT_MAX,
    "requests.askers": limits.REQUESTS_COUNT_MAX,
    # One for each node process.
    "origins": limits.ORIGINS_COUNT_MAX,
    # What is new pushes out what is old.
    "audit.events._blocks": limits.AUDIT_COUNT_MAX,
    "audit.events._ends": limits.AUDIT_COUNT_MAX,
    "audit._hashes": limits.AUDIT_COUNT_MAX,
    "audit.acts._groups": limits.ACTS_COUNT_MAX,
    # What has changed since the last entry that made it up.
    "ledger.noted": NOTED_MAX,
    "deadlines.noted": NOTED_MAX,
    "semaphore_values.noted": NOTED_MAX,
    "fence_values.noted": NOTED_MAX,
    "origin_values.noted": NOTED_MAX,
}
"""Tables with a bound that no call moves, and how many rows that is."""

INDEXES: Final = {
    "claimed.names.young": YOUNG_MAX,
    "claimed.names.gone": GONE_MAX,
    "claimed.names._aged": YOUNG_MAX,
    "claimed.names._sorted._runs": 0,
    "cells._sorted._runs": 0,
    "cells._young": 1024,
    "cells._coming": 1024,
    "deadlines._buckets": 1024,
    "deadlines._heap": 1024,
    "rates.in_order._young": 1024,
    "rates.stale": 0,
    "rates.in_order._runs": 0,
    "sessions_in_order._young": 1024,
    "sessions_in_order._runs": 0,
    "tickets_in_order._young": 1024,
    "tickets_in_order._runs": 0,
    "semaphores_in_order._young": 1024,
    "semaphores_in_order._runs": 0,
    "fences_in_order._young": 1024,
    "fences_in_order._runs": 0,
}
"""What finds the rows of other tables: as many as these have, and so many more, gone or not sorted."""


def tables_of(thing: object, path: str = "", seen: set[int] | None = None) -> dict[str, Any]:
    """Return every container that a state has, itself or in a table of its own, by its path."""
    seen = set() if seen is None else seen
    seen.add(id(thing))
    slots = [name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())]
    found: dict[str, Any] = {}
    for name in (*vars(thing), *slots) if hasattr(thing, "__dict__") else slots:
        value, below = getattr(thing, name), f"{path}.{name}".removeprefix(".")
        if id(value) in seen:
            continue  # the same table under another name
        if isinstance(value, dict | list | set | deque):
            seen.add(id(value))
            found[below] = value
        elif type(value).__module__.startswith("lockstate.tables"):
            found |= tables_of(value, below, seen)
    return found


def test_every_table_has_a_bound() -> None:
    """One that is new has to be named in this file, with what bounds it."""
    named = [*IN_QUOTAS_AND_NAMESPACES, *IN_QUOTAS, *OF_THEIR_OWN, *INDEXES]
    assert sorted(named) == sorted(tables_of(State()))


S1 = SessionId("s1")
SAYING = Uncommon(lock_delay_ms=5000, note="n", value="v")
QUIET = Uncommon(lock_delay_ms=5000, note="n")
ASKING = Uncommon(asks=Asking(8000, 1000))


def asked(kind: type[Any], number: int, *fields: Any, **more: Any) -> Any:
    """Return a command that asks for a hold of its own."""
    hold_id = f"h{number}"
    return kind(*fields, HoldId(hold_id), AttemptId(hold_id), **{"ttl_ms": 300} | more)


def growing() -> list[OfSomebody]:
    """Return commands that put rows into every table, all of them below one prefix."""
    commands: list[OfSomebody] = [
        OpenSession(S1, 60_000, {"k": "v"}, "o" * 16),
        ResumeStream(S1),
        Numbered(1, S1, 1, 1, (), (Acquire("jobs/n", EXCLUSIVE, HoldId("n"), AttemptId("n"), S1),)),
        asked(Acquire, 1, "jobs/a/b", EXCLUSIVE, request_id="r" * 16),
        asked(Acquire, 2, "jobs/a/b", EXCLUSIVE, wait_ms=9000, uncommon=ASKING),
        Acquire("jobs/a/b", EXCLUSIVE, HoldId("h3"), AttemptId("h3"), S1, wait_ms=9000),
        asked(Acquire, 4, "", SHARED, locks=wanted("jobs/c", "jobs/d/e/f"), uncommon=SAYING),
        AddLocks(HoldId("h4"), wanted("jobs/g"), HoldId("t1"), AttemptId("t1")),
        AddLocks(HoldId("h4"), wanted("jobs/n"), HoldId("t2"), AttemptId("t2"), 9000),
        asked(AcquirePermits, 5, "jobs/p", 5, 3, uncommon=SAYING),
        Campaign("jobs/e", S1, "value", HoldId("h6"), AttemptId("h6")),
        TakeRate("jobs/r", 1, 60_000, Algorithm.SLIDING_WINDOW),
        TakeRate("jobs/r", 1, 60_000, Algorithm.SLIDING_WINDOW, 1, 80_000, "q" * 16, AttemptId("z")),
        AdvanceFence("jobs/f", 1, "r" * 16),
        PutCell(b"jobs/x", b"value", S1),
        PutCell(b"jobs/y", b"value", ttl_ms=9000),
    ]
    several = {"locks": wanted("jobs/s"), "permits": (WantedPermits("jobs/p"),)}
    rates = {"rates": (WantedRate("jobs/r2", 1, 500),), "request_id": "s" * 16}
    commands += [asked(AcquireSeveral, 7, "", EXCLUSIVE, **several, **rates, uncommon=QUIET)]
    commands += [asked(Acquire, number, "jobs/m", SHARED, uncommon=SAYING) for number in range(10, 50)]
    commands += [Convert(HoldId("h10"), EXCLUSIVE, HoldId("t3"), AttemptId("t3"), 9000)]
    return commands


def check_rows(state: State, seen: set[str]) -> None:
    """Check every table against what is counted, and note which have rows."""
    tables, used = tables_of(state), state.principals.used_by("ann")
    inside = state.namespaces.usage["jobs"]
    seen |= {path for path, table in tables.items() if table}
    for path, bound in IN_QUOTAS_AND_NAMESPACES.items():
        assert len(tables[path]) <= bound(used), f"{path}: {len(tables[path])} rows, and used are {used}"
        assert len(tables[path]) <= bound(inside), f"{path}: {len(tables[path])} rows, and used are {inside}"
    for path, of_principal in IN_QUOTAS.items():
        assert len(tables[path]) <= of_principal(used), f"{path}: {len(tables[path])}, and used are {used}"
    for path, count in OF_THEIR_OWN.items():
        assert len(tables[path]) <= count, f"{path}: {len(tables[path])} rows"
    rows = sum([len(tables[path]) for path in (*IN_QUOTAS_AND_NAMESPACES, *IN_QUOTAS)])
    for path, more in INDEXES.items():
        assert len(tables[path]) <= rows + more, f"{path}: {len(tables[path])} rows"


def test_rows_are_counted_wherever_they_are() -> None:
    """At every step from an empty state to a full one and back, none is anywhere that nobody counts."""
    driver, seen = Driver(), set[str]()
    driver.run(SetNamespace("jobs", NamespaceSettings(waits=1000, ask_after_ms_min=0)))
    state = driver.machine.state
    for at_ms, command in enumerate(growing()):
        result = driver.by("ann", command, at_ms)
        assert not isinstance(result, Refused), (command, result)
        check_rows(state, seen)
    ticket = state.tickets[HoldId("h2")].order
    for revoke in (Revoke("jobs/n", "needed", 500), Revoke("jobs/a/b", "needed", 500, ticket=ticket)):
        assert not isinstance(driver.by("ops", revoke, 90), Refused), revoke
        check_rows(state, seen)
    assert len(state.principals.usage) == 1, "all of it is one principal's"
    for at_ms in range(100, 12_000, 50):
        driver.pass_to(at_ms)
        check_rows(state, seen)
    assert seen >= {*IN_QUOTAS_AND_NAMESPACES, *IN_QUOTAS}, "a table has had no row"
    driver.by("ann", Release(HoldId("n")), 12_000)
    driver.pass_to(12_001 + 24 * 3600 * 1000)
    assert state.namespaces.usage["jobs"] == NamespaceUsage(fences=1, bytes=len("jobs/f"))
    assert state.principals.usage == {"ann": Usage(fences=1, bytes=len("jobs/f"))}


def test_nothing_grows_for_who_may_have_nothing() -> None:
    """With quotas of 0 every command that puts in a row is refused, by a principal's or by a namespace's."""
    nothing = Quota(0, 0, 0, 0, 0, 0, 0)
    closed = NamespaceSettings(
        holds=0, waits=0, cells=0, fences=0, rate_limits=0, bytes=0, ask_after_ms_min=0
    )
    for who, settings in (("ann", NamespaceSettings(waits=9, ask_after_ms_min=0)), ("bob", closed)):
        driver = Driver()
        driver.run(SetQuota("ann", nothing))
        driver.run(SetNamespace("jobs", settings))
        for command in growing():
            driver.by(who, command)
        tables = tables_of(driver.machine.state)
        allowed = {"sessions", "streams._streams", "principals.rows"}
        grown = {path for path in (*IN_QUOTAS_AND_NAMESPACES, *IN_QUOTAS) if tables[path]}
        assert grown <= (set() if who == "ann" else allowed), grown


def test_refusals_are_those_of_quotas() -> None:
    """Who may have nothing is told so."""
    driver = Driver()
    driver.run(SetQuota("ann", Quota(0, 0, 0, 0, 0, 0, 0)))
    driver.run(SetNamespace("jobs", NamespaceSettings(holds=0, rate_limits=0, fences=0, cells=0)))
    acquire = asked(Acquire, 1, "jobs/a", EXCLUSIVE)
    assert isinstance(driver.by("ann", acquire), QuotaExceeded)
    assert isinstance(driver.by("bob", acquire), RefusedInNamespace)
