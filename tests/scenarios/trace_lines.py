"""The lines of a trace: results, events and views as text. Nothing is decided here."""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

from lockstate.tables.audit_record import OF_NOBODY
from lockstate.tables.owners import shown_owner
from lockstate.words.events import OF_NODES, OF_SETTINGS, Event, EventKind
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import CycleView, Reason, Refused, RefusedInNamespace
from lockstate.words.results import (
    Cancelled,
    CellDone,
    CellRead,
    CellsDeleted,
    CellWritten,
    DelaysLifted,
    Done,
    FenceAdvanced,
    FenceForgotten,
    ForceReleased,
    FrameRefused,
    Frozen,
    Granted,
    GrantedSeveral,
    HandedOver,
    LeaderPreferred,
    LockDone,
    LockTaken,
    NamespaceSet,
    NumberedDone,
    Proclaimed,
    PutOffTo,
    Queued,
    QuotaSet,
    RatesForgotten,
    RateTaken,
    Released,
    Renewed,
    Resized,
    Result,
    RevocationsWithdrawn,
    Revoked,
    RulesHeld,
    SessionClosed,
    SessionForced,
    SessionKept,
    SessionOpened,
    StreamResumed,
    Thawed,
    Transacted,
    WaitsAbandoned,
    WaitsForced,
)
from lockstate.words.views import (
    ElectionView,
    FenceView,
    HolderView,
    HoldView,
    LockView,
    RevocationView,
    SemaphoreView,
    SessionView,
    WaiterView,
)
from lockstate.words.wanted import PRIORITY_DEFAULT, Wanted

_ALIKE_SHOWN_MAX = 8
"""Lines in a row that may differ only in their numbers: of more than that, only the first and last are
shown."""


def seconds(ms: int) -> str:
    """Return a time or an interval as people read it."""
    return f"{ms // 1000}.{ms % 1000:03d}"


def shortened(lines: Iterable[str]) -> list[str]:
    """Return `lines`, with only the first and last of many that are alike."""
    short: list[str] = []
    for _, group in groupby(lines, lambda line: re.sub(r"\d+", "#", line)):
        alike = list(group)
        if len(alike) > _ALIKE_SHOWN_MAX:
            indent = " " * (len(alike[0]) - len(alike[0].lstrip()))
            alike = [alike[0], f"{indent}… {len(alike) - 2} like these …", alike[-1]]
        short += alike
    return short


# -- what is held or wanted --------------------------------------------------------------------------------


def lock_text(lock: Wanted) -> str:
    """Return one lock."""
    return f"{lock.name} {_mode_text(lock.mode, lock.scope)}"


def _mode_text(mode: Mode, scope: Scope) -> str:
    return f"{mode} subtree" if scope is Scope.SUBTREE else f"{mode}"


def _permits_text(count: int) -> str:
    return f"{count} permit{'s' if count > 1 else ''}"


def _listed(locks: Iterable[Wanted]) -> str:
    return ", ".join(lock_text(lock) for lock in locks)


# -- results -----------------------------------------------------------------------------------------------


def result_text(result: Result, names: tuple[str, ...], *, fully: bool) -> str:  # noqa: C901, PLR0912 - a table
    """Return a result as the client that asked for the locks `names` sees it."""
    match result:
        case SessionOpened():
            return f"session opened for {seconds(result.expires_in_ms)} s"
        case SessionKept():
            asked = ", ".join(f"{one.name} {_revocation_text(one.revocation)}" for one in result.revoked)
            to_end = f", to give up {asked}" if asked else ""
            return f"session kept for {seconds(result.expires_in_ms)} s{to_end}"
        case SessionClosed():
            return f"session closed, released: {', '.join(result.released) or 'nothing'}"
        case SessionForced():
            return f"ended the session of {result.owner}, released: {', '.join(result.released) or 'nothing'}"
        case DelaysLifted():
            return f"lifted {result.count}, {seconds(result.left_ms)} s were left"
        case FenceForgotten():
            return (
                "forgot nothing" if result.highest_token is None else f"forgot token {result.highest_token}"
            )
        case RatesForgotten():
            return f"forgot {result.count} rate limits" + (", and more are left" if result.is_more else "")
        case Granted():
            again = ", held already" if result.depth else ""
            counted = f", {result.depth} releases end it" if result.depth > 1 else ""
            return f"{_granted_text(result)}{again}{counted}"
        case Queued():
            return f"queued at position {result.position}"
        case Renewed():
            lease = f"renewed token {result.token} {_for(result.expires_in_ms)}"
            asked = ", ".join(f"{one.name} {_revocation_text(one)}" for one in result.revocations)
            return f"{lease}, to give up {asked}" if asked else lease
        case Revoked():
            asked = ", ".join(
                f"{holder.owner} token {holder.token} {_revocation_text(holder.revocation)}"
                for holder in result.holders
            )
            return f"revoked: {asked or 'nothing'}"
        case RevocationsWithdrawn():
            return f"withdrew {result.count} revocations" + (f", {result.left} left" if result.left else "")
        case WaitsForced():
            waited = ", ".join(f"{one.owner} ticket {one.ticket}" for one in result.waits)
            still = f", {result.left} left" if result.left else ""
            return f"ended the waits of: {waited or 'nobody'}{still}"
        case PutOffTo():
            return f"put off, {seconds(result.ends_in_ms)} s left"
        case HandedOver():
            return f"handed over to {result.owner}, token {result.token}"
        case Released(depth=depth) if depth:
            return f"released once, to be released {result.depth} more time{'s' if result.depth > 1 else ''}"
        case Released():
            return f"released, still holds {_listed(result.locks)}" if result.locks else "released"
        case ForceReleased():
            ended = ", ".join(f"{holder.owner} token {holder.token}" for holder in result.released)
            return f"force-released: {ended or 'nothing'}"
        case Cancelled():
            return "cancelled" if result.undone else "nothing to cancel"
        case Done():
            return "done"
        case Resized():
            return f"resized to {result.limit}, {result.available} available"
        case Proclaimed():
            return f"proclaimed with token {result.token}"
        case RateTaken():
            return _rate_text(result)
        case WaitsAbandoned():
            return f"{result.ended} waits undone, {result.left} left"
        case FenceAdvanced():
            return f"accepted, {result.highest_token} is the highest token"
        case CellWritten() | CellsDeleted():
            return _changed_text(result)
        case Transacted():
            parts = [_done_text(part) for part in result.results]
            return ": ".join(["then" if result.succeeded else "else", ", ".join(parts) or "nothing"])
        case StreamResumed():
            return f"stream resumed behind number {result.last}"
        case NumberedDone():
            told = [*result.results, *([result.refused] if result.refused is not None else [])]
            return "; ".join(result_text(each, names, fully=fully) for each in told)
        case FrameRefused():
            return f"frame refused: {result.fault}"
        case Frozen() | Thawed():
            return _frozen_text(result)
        case RulesHeld():
            return f"rules {result.rules}{', held before' if result.was_held else ''}"
        case LeaderPreferred():
            return f"preferred before: {result.was or 'nobody'}"
        case QuotaSet():
            return "quota set"
        case NamespaceSet():
            return "namespace set"
        case Refused():
            return _refused_text(result, names, fully=fully)


def _done_text(part: CellDone | LockDone) -> str:
    match part:
        case CellRead():
            return _read_text(part)
        case LockTaken():
            return f"taken with token {part.token}"
        case Renewed():
            return "renewed"
        case Released():
            return "released"
    return _changed_text(part)


def _frozen_text(result: Frozen | Thawed) -> str:
    if isinstance(result, Thawed):
        return "thawed" if result.was_frozen else "was not frozen"
    until = "until it is thawed" if result.ends_in_ms is None else f"for {seconds(result.ends_in_ms)} s"
    return f"frozen {until}, {result.left.holds} held, {result.left.waits} waiting"


def _revocation_text(revocation: RevocationView) -> str:
    asked_for = f" for ticket {revocation.ticket}" if revocation.ticket else ""
    put_off = ", put off" if revocation.is_put_off else ""
    return f"in {seconds(revocation.ends_in_ms)} s{asked_for} ({revocation.reason}{put_off})"


def _granted_text(granted: Granted) -> str:
    left = f"token {granted.token}, {_still(granted.expires_in_ms)}"
    if granted.value:
        left += f', value "{granted.value}"'
    if isinstance(granted, GrantedSeveral):
        held = [f"{_permits_text(one.permits)} of {one.name}" for one in granted.held]
        rates = [f"{one.remaining} left of {one.name}" for one in granted.rates]
        parts = [_listed(granted.locks)] * bool(granted.locks) + held + rates
        later = f", may go at {seconds(granted.at_ms)}" if granted.at_ms else ""
        return f"granted {', '.join(parts)} {left}{later}"
    if granted.permits:
        permits = _permits_text(granted.permits)
        return f"granted {permits} of {granted.name} {left}; {granted.available} available of {granted.limit}"
    if granted.owner:  # only elections have it
        return f"leads {granted.name} {left}"
    locks = granted.locks or (Wanted(granted.name, granted.mode, granted.scope),)
    return f"granted {_listed(locks)} {left}"


def _for(expires_in_ms: int | None) -> str:
    return "for ever" if expires_in_ms is None else f"for {seconds(expires_in_ms)} s"


def _still(expires_in_ms: int | None) -> str:
    return "no deadline" if expires_in_ms is None else f"{seconds(expires_in_ms)} s left"


def _changed_text(changed: CellWritten | CellsDeleted) -> str:
    if isinstance(changed, CellWritten):
        return f"written, version {changed.version} at {changed.mod_revision}"
    return f"deleted {changed.count} at {changed.revision}{', more are left' if changed.is_more else ''}"


def _read_text(read: CellRead) -> str:
    return "no cell" if read.cell is None else f'"{read.cell.value.decode()}" version {read.cell.version}'


def _rate_text(taken: RateTaken) -> str:
    state = f"{taken.remaining} of {taken.limit} remain, whole in {seconds(taken.reset_in_ms)} s"
    if taken.allowed:
        return f"may go at {seconds(taken.at_ms)}; {state}"
    return f"may not go, again in {seconds(taken.retry_after_ms)} s; {state}"


def _refused_text(refused: Refused, names: tuple[str, ...], *, fully: bool) -> str:
    holders = ", ".join(_in_the_way(holder, names) for holder in refused.holders)
    reasons = [f"held by {holders}"] if holders else []
    if refused.cycle:
        reasons.append(cycle_text(refused.cycle))
    elif refused.reason is Reason.INVALID_REQUEST and fully:
        reasons.append(refused.detail)
    if isinstance(refused, RefusedInNamespace):
        reasons.append(" ".join(["namespace", refused.namespace, *refused.quota.split()]))
    reasons += [f"{key} {value}" for key, value in refused.facts.items()]
    if fully and refused.retry_after_ms:
        reasons.append(f"{refused.queue_length} wait, again in {seconds(refused.retry_after_ms)} s")
    return f"refused: {refused.reason}" + (f" ({'; '.join(reasons)})" if reasons else "")


def _in_the_way(holder: HolderView, names: tuple[str, ...]) -> str:
    permits = f" {_permits_text(holder.permits)}" if holder.permits else ""
    where = "" if holder.name in names and len(names) == 1 else f" at {holder.name}"
    tree = " subtree" if holder.scope is Scope.SUBTREE else ""
    return f"{holder.owner}{permits} token {holder.token}{where}{tree}"


def cycle_text(cycle: tuple[CycleView, ...]) -> str:
    """Return the steps of a deadlock."""
    of = {HoldKind.LOCK: "", HoldKind.SEMAPHORE: "permits of ", HoldKind.ELECTION: "election "}
    return ", ".join(f"{step.owner} waits for {of[step.kind]}{step.name}" for step in cycle)


# -- events ------------------------------------------------------------------------------------------------


OF_VALUES = OF_SETTINGS | OF_NODES


def event_text(event: Event, wait_ended: Refused | None = None) -> str:
    """Return an event; of the end of a wait, with how it ended."""
    owner = shown_owner(event.owner, event.session_id) if event.kind not in OF_NOBODY else ""
    text = " ".join(f"{event.kind} {_of_what(event)} {owner}".split())
    if event.token:
        text += f" token {event.token}"
    if event.kind is EventKind.ELECTED:
        text += f' says "{event.value}"'
    elif event.value and event.of is not HoldKind.ELECTION and event.kind not in OF_VALUES:
        text += f' value "{event.value}"'
    if event.to_token:
        text += f" to token {event.to_token}"
    if event.ticket:
        text += f" ticket {event.ticket}"
    if event.reason:
        text += f" ({event.reason})"
    if event.ends_in_ms:
        text += f" in {seconds(event.ends_in_ms)} s"
    if wait_ended is not None:
        text += f": {wait_ended.reason}"
    return text


_OF_SESSIONS = frozenset({EventKind.SESSION_EXPIRED, EventKind.SESSION_FORCED})


def _of_what(event: Event) -> str:
    if event.kind in _OF_SESSIONS:
        return ""
    if event.kind in OF_VALUES:
        return " ".join(filter(None, (event.principal or event.name, event.value)))
    if event.kind is EventKind.RESIZED:
        return f"semaphore {event.name} to {event.permits}"
    if event.kind is EventKind.DELAY_LIFTED:
        return f"{event.of} {event.name}" + (" subtree" if event.scope is Scope.SUBTREE else "")
    if event.kind in OF_NOBODY:
        return event.name
    if event.of is HoldKind.SEMAPHORE:
        return f"{_permits_text(event.permits)} of {event.name}"
    if event.of is HoldKind.ELECTION:
        has_own_word = event.kind in {EventKind.ELECTED, EventKind.RESIGNED}
        return event.name if has_own_word else f"election {event.name}"
    return f"{event.name} {_mode_text(event.mode, event.scope)}"


def audit_lines(events: Iterable[Event]) -> Iterator[str]:
    """Yield what happened last: when, what, and how long it had lasted or been waited for."""
    for event in events:
        yield f"  {seconds(event.now_ms)} revision {event.revision}: {event_text(event)}{_lasted(event)}"


def _lasted(event: Event) -> str:
    if event.kind in _OF_SESSIONS | OF_NOBODY:
        return ""
    is_of_wait = event.kind in {EventKind.GRANTED, EventKind.ELECTED, EventKind.WAIT_FORCED}
    return f", {'waited' if is_of_wait else 'held'} for {seconds(event.lasted_ms)} s"


# -- views -------------------------------------------------------------------------------------------------


def lock_lines(view: LockView) -> Iterator[str]:
    """Yield what a reader of a lock sees."""
    yield f"{view.name} is {view.state}"
    for holder in view.holders:
        where = "" if holder.name == view.name else f" at {holder.name}"
        yield f"  held by {holder.owner} {_mode_text(holder.mode, holder.scope)}{where} {_left(holder)}"
    for waiter in view.queue:
        yield f"  {_waiter_text(waiter, _mode_text(waiter.mode, waiter.scope))}"


def semaphore_lines(view: SemaphoreView) -> Iterator[str]:
    """Yield what a reader of a semaphore sees."""
    yield f"{view.name} has {view.available} of {view.limit} permits available"
    for holder in view.holders:
        yield f"  {_permits_text(holder.permits)} held by {holder.owner} {_left(holder)}"
    for waiter in view.queue:
        yield f"  {_waiter_text(waiter, _permits_text(waiter.permits))}"


def election_lines(view: ElectionView) -> Iterator[str]:
    """Yield what a reader of an election sees."""
    if view.leader is None:
        yield f"{view.name} has no leader"
    else:
        yield f'{view.name} is led by {view.leader.owner} {_left(view.leader)}, says "{view.value}"'
    for waiter in view.queue:
        yield f"  {_waiter_text(waiter, 'wants to lead')}"


def session_lines(view: SessionView | None) -> Iterator[str]:
    """Yield what the owner of a session sees."""
    if view is None:
        yield "the session has expired or never existed"
        return
    labels = ", ".join(f"{key}: {value}" for key, value in view.labels.items())
    left = f"{seconds(view.expires_in_ms)} of {seconds(view.ttl_ms)} s left"
    yield f"session of {view.owner}, {left} ({labels})"
    for holder in view.holds:
        what = _session_text(holder, holder.mode, holder.scope)
        yield f"  holds {what} token {holder.token}"
    for waiter in view.tickets:
        what = _session_text(waiter, waiter.mode, waiter.scope)
        yield f"  waits for {what} at position {waiter.position}, for {seconds(waiter.waited_ms)} s"


def _session_text(view: HolderView | WaiterView, mode: Mode, scope: Scope) -> str:
    if view.kind is HoldKind.SEMAPHORE:
        return f"{_permits_text(view.permits)} of {view.name}"
    return (
        f"election {view.name}"
        if view.kind is HoldKind.ELECTION
        else f"{view.name} {_mode_text(mode, scope)}"
    )


def fence_line(name: str, token: int, view: FenceView) -> str:
    """Return the answer to a check of a token."""
    is_valid = "is valid" if view.valid else "is not valid"
    return f"token {token} of {name} {is_valid}, {view.current_token} is current"


def _left(holder: HolderView) -> str:
    note = f" ({holder.note})" if holder.note else ""
    value = f', value "{holder.value}"' if isinstance(holder, HoldView) and holder.value else ""
    return f"token {holder.token}, {_still(holder.expires_in_ms)}{note}{value}"


def _waiter_text(waiter: WaiterView, what: str) -> str:
    converts = " converts to" if waiter.is_conversion else ""
    priority = f", priority {waiter.priority}" if waiter.priority != PRIORITY_DEFAULT else ""
    waits = f"waits for {seconds(waiter.waited_ms)} s"
    return f"{waiter.position}. {waiter.owner}{converts} {what}, {waits}{priority}"
