"""The model's view of single commands: which are malformed.

An id under which something is looked up is not checked: nothing is known under a malformed one.
"""

import msgspec

from lockstate.words import limits
from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct, SetNamespace
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import Command, Undecodable
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    HandOver,
    Proclaim,
    ReleaseByValue,
    RenewByValue,
)
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
from lockstate.words.commands.sessions import KeepAlive, OpenSession
from lockstate.words.ids import AttemptId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.refusals import Reason, Refused
from lockstate.words.wanted import Uncommon, Wanted
from tests.property.model_cells import refuse_bad_cells
from tests.property.model_locks import covers
from tests.property.model_namespaces import refuse_bad_namespace, refuse_bad_reason
from tests.property.model_parts import refuse_bad_transaction
from tests.property.model_several import refuse_bad_several
from tests.property.model_takes import refuse_bad_rate
from tests.property.model_values import refuse_bad_value

BAD = Refused(Reason.INVALID_REQUEST, "")


def refuse_bad(command: Command | Undecodable) -> Refused | None:
    """Return the refusal of a command that breaks a bound or contradicts itself, or None."""
    return next((refused for refused in _checks(command) if refused is not None), None)


def refuse_bad_request_id(command: Command | Undecodable) -> Refused | None:
    """Return the refusal of a command with a malformed request id, or None."""
    request_id = getattr(command, "request_id", "")
    return limits.check_id("request_id", request_id) if request_id else None


def _checks(command: Command | Undecodable) -> list[Refused | None]:  # noqa: C901, PLR0912 - one case for each
    match command:
        case Undecodable():
            return [BAD]
        case OpenSession():
            return [
                _check_id(command.session_id),
                limits.check_ttl(command.ttl_ms),
                limits.check_labels(command.labels),
            ]
        case AcquireSeveral():
            locks = _check_several(msgspec.structs.replace(command, name="")) if command.locks else []
            rare = command.uncommon or Uncommon()
            of_one = [BAD if (rare.value, rare.is_secret, rare.is_endless) != ("", False, False) else None]
            of_one.append(
                BAD if (rare.priority, rare.priority_not_for, rare.endless_not_for) != (5, (), ()) else None
            )
            of_one.append(None if rare.asks is None else BAD)
            return of_one + refuse_bad_several(command) + locks + _check_wish(command)
        case Acquire():
            names = _check_several(command) if command.locks else [limits.check_name(command.name)]
            return names + _check_wish(command) + refuse_bad_value(command) + _check_priority(command)
        case AcquirePermits():
            is_open = not (command.limit or command.is_strict)
            limit = limits.SEMAPHORE_LIMIT_MAX if is_open else command.limit
            return [
                limits.check_name(command.name),
                _check_limit(limit),
                None if 1 <= command.permits <= limit else BAD,
                *_check_wish(command),
                *refuse_bad_value(command),
                *_check_priority(command),
            ]
        case Campaign():
            return [
                limits.check_name(command.name),
                *_check_waiter(command.hold_id, command.attempt_id, command.wait_ms),
                limits.check_text("owner", command.owner, limits.OWNER_BYTES_MAX),
                limits.check_text("value", command.value, limits.VALUE_BYTES_MAX),
                BAD if command.if_held is IfHeld.COUNT else None,
            ]
        case AddLocks():
            waiter = _check_waiter(command.ticket_id, command.attempt_id, command.wait_ms)
            return [*waiter, None if command.locks else BAD, *refuse_together(command.locks)]
        case Convert():
            return _check_waiter(command.ticket_id, command.attempt_id, command.wait_ms)
        case Proclaim():
            return [limits.check_text("value", command.value, limits.VALUE_BYTES_MAX)]
        case ResizeSemaphore():
            return [limits.check_name(command.name), _check_limit(command.limit), refuse_bad_reason(command)]
        case TakeRate():
            return [
                *refuse_bad_rate(command),
                limits.check_range("wait_ms", command.wait_ms, limits.WAIT_MS_MAX),
            ]
        case AdvanceFence():
            return [limits.check_name(command.name), BAD if command.token < 0 else None]
        case TransactCells():
            return refuse_bad_transaction(command)
        case PutCell() | DeleteCells():
            return refuse_bad_cells(command)
        case SetNamespace():
            return refuse_bad_namespace(command)
        case ForceRelease():
            return _check_force(command)
        case ForceCloseSession() | LiftDelay() | ForgetFence():
            return _check_override(command)
        case ForgetRates():
            reason = limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)
            if command.is_prefix:
                return [reason, limits.check_text("prefix", command.name, limits.NAME_BYTES_MAX)]
            return [reason, limits.check_name(command.name)]
        case ForceWaits():
            return [
                limits.check_name(command.name),
                limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX),
                BAD if not 0 <= command.ticket <= limits.TOKEN_MAX else None,
            ]
        case HoldRules():
            return [limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)]
        case PreferLeader():
            return [
                limits.check_text("node_id", command.node_id, limits.ID_CHARS_MAX),
                limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX),
            ]
        case RecordAct():
            return [
                limits.check_text("node_id", command.node_id, limits.ID_CHARS_MAX),
                limits.check_text("peer", command.peer, limits.NAME_BYTES_MAX),
                limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX),
            ]
        case Freeze() | Thaw():
            for_ms = command.for_ms if isinstance(command, Freeze) else 0
            return [
                limits.check_name(command.prefix),
                limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX),
                limits.check_range("for_ms", for_ms, limits.FREEZE_MS_MAX),
            ]
        case Revoke():
            return [
                limits.check_name(command.name),
                limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX),
                limits.check_range("grace_ms", command.grace_ms, limits.GRACE_MS_MAX),
                BAD if not 0 <= command.token <= limits.TOKEN_MAX else None,
                BAD if not 0 <= command.ticket <= limits.TOKEN_MAX else None,
                BAD if command.reason == "held-too-long" else None,
            ]
        case WithdrawRevocation():
            return [
                limits.check_name(command.name),
                limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX),
                BAD if not 0 <= command.token <= limits.TOKEN_MAX else None,
                BAD if not 0 <= command.ticket <= limits.TOKEN_MAX else None,
            ]
        case HandOver():
            is_to_session = bool(command.to_session)
            return [
                BAD if is_to_session == bool(command.to_ticket) else None,
                BAD if is_to_session != bool(command.new_hold_id) else None,
                _check_id(command.new_hold_id) if is_to_session else None,
                None if 0 <= command.to_ticket <= limits.TOKEN_MAX else BAD,
            ]
        case ReleaseByValue() | RenewByValue():
            return [
                None if command.value else BAD,
                limits.check_name(command.name),
                limits.check_text("value", command.value, limits.HOLD_VALUE_BYTES_MAX),
            ]
        case KeepAlive():
            return [limits.check_ttl(command.ttl_ms) if command.ttl_ms else None]
        case _:
            return []


def _check_force(command: ForceRelease) -> list[Refused | None]:
    checks = [
        limits.check_name(command.name),
        limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX),
        limits.check_range("lock_delay_ms", command.lock_delay_ms, limits.LOCK_DELAY_MS_MAX),
    ]
    checks.append(BAD if not 0 <= command.token <= limits.TOKEN_MAX else None)
    has_delay = command.kind is HoldKind.ELECTION and command.lock_delay_ms
    checks.append(BAD if has_delay else None)
    return checks


def _check_override(command: ForceCloseSession | LiftDelay | ForgetFence) -> list[Refused | None]:
    checks = [limits.check_text("reason", command.reason, limits.REASON_BYTES_MAX)]
    if isinstance(command, ForgetFence):
        return [limits.check_name(command.name), *checks]
    if isinstance(command, LiftDelay):
        checks.append(BAD if command.kind is HoldKind.ELECTION else None)
        return [limits.check_name(command.name), *checks]
    return checks


def _check_id(text: str) -> Refused | None:
    return None if 1 <= len(text) <= limits.ID_CHARS_MAX else BAD


def _check_limit(limit: int) -> Refused | None:
    return None if 1 <= limit <= limits.SEMAPHORE_LIMIT_MAX else BAD


def _check_several(command: Acquire) -> list[Refused | None]:
    return [BAD if command.name else None, *refuse_together(command.locks)]


def refuse_together(locks: tuple[Wanted, ...]) -> list[Refused | None]:
    """Return why no hold can have these locks together."""
    checks: list[Refused | None] = [BAD if len(locks) > limits.LOCKS_COUNT_MAX else None]
    checks += [limits.check_name(lock.name) for lock in locks]
    for index, lock in enumerate(locks):
        others = locks[:index] + locks[index + 1 :]
        checks.append(BAD if any(covers(lock, other.name) for other in others) else None)
    return checks


def _check_waiter(answers_to: str, attempt_id: AttemptId, wait_ms: int) -> list[Refused | None]:
    return [
        _check_id(answers_to),
        _check_id(attempt_id),
        limits.check_range("wait_ms", wait_ms, limits.WAIT_MS_MAX),
    ]


def _check_priority(command: Acquire | AcquirePermits) -> list[Refused | None]:
    return [None if command.uncommon is None or command.uncommon.priority in range(10) else BAD]


def _check_wish(command: Acquire | AcquirePermits) -> list[Refused | None]:
    rare = command.uncommon or Uncommon()
    checks = [
        *_check_waiter(command.hold_id, command.attempt_id, command.wait_ms),
        limits.check_text("owner", command.owner, limits.OWNER_BYTES_MAX),
        limits.check_text("note", rare.note, limits.NOTE_BYTES_MAX),
        limits.check_range("lock_delay_ms", rare.lock_delay_ms, limits.LOCK_DELAY_MS_MAX),
    ]
    if rare.asks is not None:
        after_ms, grace_ms = rare.asks.ask_after_ms, rare.asks.grace_ms
        is_well = 0 <= after_ms < command.wait_ms and 0 <= grace_ms <= limits.GRACE_MS_MAX
        checks.append(None if is_well else BAD)
    if rare.is_endless:
        checks.append(BAD if command.session_id or command.ttl_ms else None)
    elif bool(command.session_id) == bool(command.ttl_ms):
        checks.append(BAD)
    elif command.session_id:
        checks.append(_check_id(command.session_id))
    else:
        checks.append(limits.check_ttl(command.ttl_ms))
    return checks
