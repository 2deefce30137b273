"""Every command, one row each: what is to be known of it besides its fields and its rule.

All that depends on which command it is follows from its row: here, and in the rooms above. Which commands are
in a union (`Command`, `MayWait`, `NumberedCommand`) is told beside their classes, for mypy and the decoder.
"""

import enum
import hashlib
import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Literal, NamedTuple

import msgspec

from lockstate.rules import cluster_acts, effort, fences, forgotten_rates, namespace_rules, rates
from lockstate.rules.ruleset import Act, Ruleset
from lockstate.tables.state import State
from lockstate.words.commands import admin, cells, entries, holds, overrides, primitives, sessions, streams
from lockstate.words.commands.entries import Command
from lockstate.words.wanted import Uncommon

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_DIGEST_BYTES = 12
"""Bytes of a digest of what a request asks."""
_new_digest = hashlib.blake2b(digest_size=_DIGEST_BYTES).copy
"""A copy of an empty digest takes half as long as a new one."""


class On(enum.Enum):
    """For which names the caller of a command needs its right."""

    ID = enum.auto()
    """For any: it names a hold or a session by its id, a secret, and whoever knows that may use it."""
    NAME = enum.auto()
    NAMES = enum.auto()
    """Its name, or all that begin with it."""
    LOCK = enum.auto()
    """Its name, or each of its locks, with all below one that is a subtree."""
    LOCKS = enum.auto()
    """Each of its locks, likewise."""
    SEVERAL = enum.auto()
    """Each of its locks, permits and rates."""
    KEY = enum.auto()
    """The key of a cell, or all that begins with it."""
    OPERATIONS = enum.auto()
    """What each of its operations reads or writes."""
    COMMANDS = enum.auto()
    """What each of its commands needs."""
    EVERYTHING = enum.auto()
    """All names, without an exception."""
    CLUSTER = enum.auto()
    """The right without a prefix."""
    BELOW = enum.auto()
    """Its prefix, and all below it."""
    PREFIX = enum.auto()
    """All below its prefix, or the right without one."""


class Row(NamedTuple):
    """One command."""

    command: type[Any]
    carried_out_by: Callable[[Ruleset], Act] | None
    """The rule; None for what only streams know, who carry it out themselves."""
    right: Literal["acquire", "force", "admin"] | None = None
    """What a principal needs to ask for it. Without one it is the nodes' own, and no client can."""
    on: On = On.ID
    request_scope: Callable[[Any], str] | None = None
    """What tells apart clients that count their requests from 1; None if it carries no `request_id`."""
    new_in_each_attempt: tuple[str, ...] = ()
    """The fields that differ between attempts of one request: ids, and how the node is set that was asked."""
    frees: bool = False
    """Whether it is carried out where there is no room, in the state or in the log.

    Clients must be able to go home, and operators to help: it ends something, keeps what is held, bounds what
    others may have, or reads.
    """
    may_wait: bool = False
    is_patient: bool = False
    """Whether it may wait a little to share an entry with others."""
    effort: Callable[[State, Any], int] | None = None
    """How much of the state it goes through, with which its load grows; None if it is what it names."""


def _nothing(_: Any) -> str:
    return ""


def _session_or_owner(command: Any) -> str:
    return command.session_id or command.owner  # type: ignore[no-any-return]


def _name_and_value(command: Any) -> str:
    """Return what stands for a name and a value, which may be longer than a scope."""
    digest = _new_digest()
    digest.update(f"{command.name}\0{command.value}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def _key(command: Any) -> str:
    return command.key.decode("utf-8", "replace")  # type: ignore[no-any-return]


_session = operator.attrgetter("session_id")
_hold = operator.attrgetter("hold_id")
_name = operator.attrgetter("name")

_ATTEMPT: Final = ("hold_id", "attempt_id")
_CHANGE: Final = ("ticket_id", "attempt_id")

ROWS: Final = (
    # -- sessions -------------------------------------------------------------------------------------------
    Row(
        sessions.OpenSession, lambda rules: rules.sessions.open,
        right="acquire", request_scope=_nothing, new_in_each_attempt=("session_id",),
    ),
    Row(
        sessions.KeepAlive, lambda rules: rules.sessions.keep_alive,
        right="acquire", frees=True, is_patient=True, effort=effort.of_keepalive,
    ),
    Row(
        sessions.CloseSession, lambda rules: rules.sessions.close,
        right="acquire", request_scope=_session, frees=True, effort=effort.of_close,
    ),
    Row(
        overrides.ForceCloseSession, lambda rules: rules.sessions.force_close,
        right="force", on=On.EVERYTHING, request_scope=operator.attrgetter("session_name"), frees=True,
        effort=effort.of_force_close,
    ),
    # -- what asks for a hold, and for a change of one ------------------------------------------------------
    Row(
        holds.Acquire, lambda rules: rules.plain_locks.acquire,
        right="acquire", on=On.LOCK, request_scope=_session_or_owner, new_in_each_attempt=_ATTEMPT,
        may_wait=True, effort=effort.of_acquire,
    ),
    Row(
        holds.AcquirePermits, lambda rules: rules.semaphores.acquire,
        right="acquire", on=On.NAME, request_scope=_session_or_owner, new_in_each_attempt=_ATTEMPT,
        may_wait=True, effort=effort.of_permits,
    ),
    Row(
        holds.AcquireSeveral, lambda rules: rules.several.acquire,
        right="acquire", on=On.SEVERAL, request_scope=_session_or_owner, new_in_each_attempt=_ATTEMPT,
        may_wait=True, effort=effort.of_several,
    ),
    Row(
        holds.Campaign, lambda rules: rules.elections.campaign,
        right="acquire", on=On.NAME, request_scope=_session_or_owner, new_in_each_attempt=_ATTEMPT,
        may_wait=True, effort=effort.of_campaign,
    ),
    Row(
        holds.Convert, lambda rules: rules.conversions.convert,
        right="acquire", request_scope=_hold, new_in_each_attempt=_CHANGE, may_wait=True,
        effort=effort.of_conversion,
    ),
    Row(
        holds.AddLocks, lambda rules: rules.additions.add,
        right="acquire", on=On.LOCKS, request_scope=_hold,
        new_in_each_attempt=(*_CHANGE, "endless_not_for"), may_wait=True, effort=effort.of_addition,
    ),
    # -- what is done with a hold ---------------------------------------------------------------------------
    Row(
        holds.Renew, lambda rules: rules.sessions.renew,
        right="acquire", request_scope=_hold, frees=True,
    ),
    Row(
        holds.RenewByValue, lambda rules: rules.values.renew,
        right="acquire", on=On.NAME, request_scope=_name_and_value, frees=True,
    ),
    Row(
        holds.Release, lambda rules: rules.plain_locks.release,
        right="acquire", request_scope=_hold, frees=True, effort=effort.of_release,
    ),
    Row(
        holds.ReleaseByValue, lambda rules: rules.plain_locks.release,
        right="acquire", on=On.NAME, request_scope=_name_and_value, frees=True,
    ),
    Row(holds.Proclaim, lambda rules: rules.elections.proclaim, right="acquire", request_scope=_hold),
    Row(
        holds.PutOff, lambda rules: rules.pleas.put_off,
        right="acquire", request_scope=_hold, frees=True,
    ),
    Row(
        holds.HandOver, lambda rules: rules.hand_overs.hand_over,
        right="acquire", request_scope=_hold, effort=effort.of_hand_over,
    ),
    # -- what is done to what others hold or wait for -------------------------------------------------------
    Row(
        overrides.Revoke, lambda rules: rules.pleas.revoke,
        right="force", on=On.NAME, request_scope=_name, frees=True, effort=effort.of_revoke,
    ),
    Row(
        overrides.WithdrawRevocation, lambda rules: rules.pleas.withdraw,
        right="force", on=On.NAME, request_scope=_name, frees=True, effort=effort.of_withdrawal,
    ),
    Row(
        overrides.ForceRelease, lambda rules: rules.kinds.force_release,
        right="force", on=On.NAME, request_scope=_name, frees=True, effort=effort.of_force,
    ),
    Row(
        overrides.ForceWaits, lambda rules: rules.waits.force,
        right="force", on=On.NAME, request_scope=_name, frees=True, effort=effort.of_forced_waits,
    ),
    Row(
        overrides.LiftDelay, lambda rules: rules.kinds.lift_delay,
        right="force", on=On.NAME, request_scope=_name, frees=True, effort=effort.of_lifting,
    ),
    # -- semaphores, rate limits, fences --------------------------------------------------------------------
    Row(
        primitives.ResizeSemaphore, lambda rules: rules.semaphores.resize,
        right="acquire", on=On.NAME, request_scope=_name, effort=effort.of_resize,
    ),
    Row(
        primitives.TakeRate, lambda rules: partial(rates.take, rules.state),
        right="acquire", on=On.NAME, request_scope=_name, new_in_each_attempt=("attempt_id",),
    ),
    Row(
        overrides.ForgetRates, lambda rules: partial(forgotten_rates.forget, rules.effects),
        right="force", on=On.NAMES, request_scope=_name, frees=True, effort=effort.of_forgotten_rates,
    ),
    Row(
        primitives.AdvanceFence, lambda rules: partial(fences.advance, rules.state),
        right="acquire", on=On.NAME, request_scope=_name,
    ),
    Row(
        overrides.ForgetFence, lambda rules: partial(fences.forget, rules.effects),
        right="force", on=On.NAME, request_scope=_name, frees=True,
    ),
    # -- cells ----------------------------------------------------------------------------------------------
    Row(
        cells.PutCell, lambda rules: rules.cells.put,
        right="acquire", on=On.KEY, request_scope=_key,
    ),
    Row(
        cells.DeleteCells, lambda rules: rules.cells.delete,
        right="acquire", on=On.KEY, request_scope=_key, frees=True, effort=effort.of_deletion,
    ),
    Row(
        cells.TransactCells, lambda rules: rules.transactions.transact,
        right="acquire", on=On.OPERATIONS, request_scope=_nothing,
        new_in_each_attempt=("endless_not_for",), effort=effort.of_transaction,
    ),
    # -- what bounds others ---------------------------------------------------------------------------------
    Row(
        admin.SetQuota, lambda rules: rules.principals.set_quota,
        right="admin", on=On.CLUSTER, request_scope=operator.attrgetter("principal"), frees=True,
    ),
    Row(
        admin.SetNamespace,
        lambda rules: partial(namespace_rules.set_namespace, rules.effects),
        right="admin", on=On.PREFIX, request_scope=operator.attrgetter("prefix"), frees=True,
    ),
    Row(
        overrides.Freeze, lambda rules: rules.freezes.freeze,
        right="force", on=On.BELOW, request_scope=operator.attrgetter("prefix"), frees=True,
        effort=effort.of_freeze,
    ),
    Row(
        overrides.Thaw, lambda rules: rules.freezes.thaw,
        right="force", on=On.BELOW, request_scope=operator.attrgetter("prefix"), frees=True,
        effort=effort.of_thaw,
    ),
    Row(
        admin.RecordAct, lambda rules: partial(cluster_acts.record, rules.effects),
        right="admin", on=On.CLUSTER, request_scope=operator.attrgetter("node_id"), frees=True,
    ),
    Row(
        admin.HoldRules, lambda rules: partial(cluster_acts.hold_rules, rules.effects),
        right="admin", on=On.CLUSTER, request_scope=_nothing, frees=True,
    ),
    Row(
        admin.PreferLeader, lambda rules: partial(cluster_acts.prefer_leader, rules.effects),
        right="admin", on=On.CLUSTER, request_scope=_nothing, frees=True,
    ),
    # -- streams --------------------------------------------------------------------------------------------
    Row(streams.ResumeStream, lambda rules: rules.frames.resume, right="acquire"),
    Row(streams.Numbered, lambda rules: rules.frames.apply, right="acquire", on=On.COMMANDS),
    Row(streams.EndWait, None, right="acquire", frees=True),
    # -- the nodes' own -------------------------------------------------------------------------------------
    Row(entries.OnBehalf, lambda rules: rules.on_behalf),
    Row(entries.Cancel, lambda rules: rules.waits.cancel, frees=True, effort=effort.of_cancel),
    Row(entries.AbandonWaits, lambda rules: rules.waits.abandon, frees=True),
    Row(entries.Tick, lambda rules: rules.nothing, frees=True),
    Row(entries.Barrier, lambda rules: rules.nothing, frees=True),
)  # fmt: skip
"""What is not said in a row is as it is in most."""

FREES: Final[frozenset[type]] = frozenset([row.command for row in ROWS if row.frees])
"""The commands that are carried out without room."""
PATIENT: Final[frozenset[type]] = frozenset([row.command for row in ROWS if row.is_patient])
"""The commands that may wait a little to share an entry."""
_EFFORTS: Final = {row.command: row.effort for row in ROWS if row.effort is not None}


def effort_of(state: State, command: Command) -> int:
    """Return how much of the state a command goes through beyond what it names, in claims that end.

    What the commands of a frame may bring about together has a bound instead (`limits.FRAME_EFFORT_MAX`).
    """
    of = _EFFORTS.get(command.__class__)
    return 0 if of is None else of(state, command)


def acts_of(rules: Ruleset) -> dict[type, Act]:
    """Return what carries out each command in the state of these rules."""
    return {row.command: row.carried_out_by(rules) for row in ROWS if row.carried_out_by is not None}


# -- what makes two commands the same request ---------------------------------------------------------------

_SCOPES: Final = {row.command: row.request_scope for row in ROWS if row.request_scope is not None}
_OF_ATTEMPTS: Final[dict[type, dict[str, Any]]] = {
    row.command: {field: () if field.endswith("_not_for") else "" for field in row.new_in_each_attempt}
    for row in ROWS
    if row.new_in_each_attempt
}


def request_key(command: Command) -> tuple[str, str] | None:
    """Return the key under which `command` is remembered, scope and request id; None if it carries no id.

    The scope tells apart clients that count their requests from 1. It is the session or hold that a request
    is about (both secrets), else the owner or the name that it gives.
    """
    request_id = command.request_id
    return (_SCOPES[command.__class__](command), request_id) if request_id else None


def content_digest(command: Command) -> bytes:
    """Return a digest of what `command` asks, without what differs between attempts."""
    of_attempt = _OF_ATTEMPTS.get(command.__class__)
    if of_attempt is not None:
        uncommon: Uncommon | None = getattr(command, "uncommon", None)
        if uncommon is not None:
            asked = msgspec.structs.replace(uncommon, priority_not_for=(), endless_not_for=())
            of_attempt = {**of_attempt, "uncommon": asked}
        command = msgspec.structs.replace(command, **of_attempt)
    digest = _new_digest()
    digest.update(_encoder.encode(command))
    return digest.digest()
