"""A second opinion on what the state machine does: its rules written as plainly as possible.

Lists are searched from end to end, nothing is indexed and nothing is cached. What this model says is the
specification of `lockstate.machine`; where the two disagree, one of them has a bug. It uses the types of
`lockstate` and nothing of its machine. Default owners are not hashed here; `compare` allows for it. How
a rate limit counts is in `model_rates`.
"""

import msgspec

from lockstate.words import limits
from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct, SetNamespace, SetQuota
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import (
    AbandonWaits,
    Barrier,
    Cancel,
    Command,
    Entry,
    OnBehalf,
    Tick,
    Undecodable,
)
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    HandOver,
    Proclaim,
    PutOff,
    Release,
    ReleaseByValue,
    Renew,
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
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.commands.streams import Numbered, ResumeStream
from lockstate.words.events import EventKind, Left
from lockstate.words.ids import NO_ATTEMPT, NO_HOLD, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    Cancelled,
    Done,
    FenceAdvanced,
    ForceReleased,
    Proclaimed,
    Released,
    Resized,
    Result,
    SessionClosed,
    SessionOpened,
    WaitsAbandoned,
)
from tests.property.model_acquire import (
    acquire,
    acquire_permits,
    acquire_several,
    add_locks,
    campaign,
    change_mode,
)
from tests.property.model_acts import hold_rules, prefer_leader, record_act, tell_act
from tests.property.model_attempts import came_through, is_last, is_left_by
from tests.property.model_cells import change_cells
from tests.property.model_changes import due, end_hold, end_session, end_wait, expire, serve, tell
from tests.property.model_checks import refuse_bad, refuse_bad_request_id
from tests.property.model_hand_overs import hand_over
from tests.property.model_locks import claims, names, parts, permits_of, used
from tests.property.model_namespaces import refuse_named_in, refuse_texts_in, refuse_ttl, set_namespace
from tests.property.model_overrides import override
from tests.property.model_pleas import ask_by_itself, kept, meant, put_off, revoke, withdraw
from tests.property.model_principals import (
    refuse_bad_principal,
    refuse_foreign,
    refuse_more,
    refuse_named,
    refuse_texts,
    set_quota,
)
from tests.property.model_records import Asker, Hold, ModelState, Plea, Session, Ticket
from tests.property.model_refusals import limit_mismatch
from tests.property.model_requests import (
    earlier_key,
    forget,
    forget_old,
    key_of,
    remember,
    repeat,
    request_key,
)
from tests.property.model_streams import number, resume
from tests.property.model_takes import leave, take
from tests.property.model_transactions import transact
from tests.property.model_values import by_id
from tests.property.model_views import holder_view, renewed
from tests.support.vocabulary import VOCABULARY


def apply(state: ModelState, entry: Entry) -> list[tuple[str, int, Result]]:
    """Apply one entry and return (origin, seq, result) of every command that was not a repetition."""
    state.revision += 1
    state.now_ms = max(state.now_ms, entry.now_ms)
    state.events, state.settled, state.cell_events = [], [], []
    state.numbers_again = state.numbers_waiting_again = 0
    state.passed = state.foreign = state.given_back = state.parts_refused = 0
    pass_time(state)
    answers = []
    for batch in entry.batches:
        state.asking = batch.origin
        for seq, command in zip(batch.seqs, batch.commands, strict=True):
            if seq <= state.highest_seqs.get(batch.origin, 0):
                continue
            state.highest_seqs[batch.origin] = seq
            answers.append((batch.origin, seq, run(state, command)))
    return answers


def pass_time(state: ModelState) -> None:
    """End what is due, as much of it as one entry may end, and forget old requests."""
    forget_old(state)
    ended = 0
    while ended < limits.EXPIRIES_PER_ENTRY_MAX and due(state) and due(state)[0][0] < state.now_ms:
        thing = due(state)[0][2]
        ended += weight(state, thing)
        if isinstance(thing, Asker):
            ask_by_itself(state, thing.waiter)
        else:
            expire(state, thing)


def weight(state: ModelState, thing: object) -> int:
    """Return what ending something costs: a hold or a wait, as many as its claims; others one.

    What was asked for a wait ends with it; one that asks looks at all who hold what it wants.
    """
    if isinstance(thing, Plea):
        thing = thing.hold
    if isinstance(thing, Asker):
        wanted = [(part.kind, part.name) for part in parts(thing.waiter)]
        held = [(part.kind, part.name) for hold in state.holds for part in parts(hold)]
        return 1 + sum(held.count(one) for one in wanted)
    if isinstance(thing, Ticket):
        return claims(thing) + sum(plea.waiter is thing for plea in state.pleas)
    if isinstance(thing, Hold):
        return claims(thing)
    if not isinstance(thing, Session):
        return 1
    things: list[Hold | Ticket] = [*state.holds, *state.tickets]
    cells_count = sum(cell.session_id == thing.session_id for cell in state.cells)
    return max(1, sum(claims(o) for o in things if o.session_id == thing.session_id)) + cells_count


def run(state: ModelState, command: Command | Undecodable) -> Result:
    """Apply one command, or repeat the outcome of the request that it repeats."""
    if isinstance(command, Numbered):
        return number(state, command, run_new)
    if isinstance(command, OnBehalf):
        return run_on_behalf(state, command)
    refused = refuse_bad_request_id(command)
    if refused is not None:
        return refused
    key = request_key(state, command)
    if key in state.requests:
        return repeat(state, command, state.requests[key], key)
    earlier = earlier_key(state, command)
    if earlier is not None:
        return repeat(state, command, state.requests[earlier], earlier)
    result = run_new(state, command)
    if key is not None:
        remember(state, key, command, result)
    return result


def run_on_behalf(state: ModelState, command: OnBehalf) -> Result:
    """Apply the command of a principal."""
    refused = refuse_bad_principal(command.principal)
    if refused is not None:
        return refused
    state.principal = command.principal
    state.askers.add(command.principal)
    refused = refuse_foreign(state, command.command)
    state.foreign += refused is not None
    result = refused or run(state, command.command)
    state.principal = ""
    return result


def run_new(state: ModelState, command: Command | Undecodable) -> Result:
    """Apply one command that repeats nothing."""
    return (
        refuse_foreign(state, command)
        or refuse_bad(command)
        or refuse_used(state, command)
        or decide(state, command)
    )


def refuse_used(state: ModelState, command: Command | Undecodable) -> Refused | None:
    """Refuse a command whose new id is in use already."""
    ids = () if isinstance(command, Undecodable) else VOCABULARY[type(command)].ids_of_attempt
    if not ids or isinstance(command, TakeRate):
        return None
    new_id = getattr(command, ids[0])
    known = state.session(SessionId(new_id)) or state.hold(HoldId(new_id)) or state.ticket(HoldId(new_id))
    return Refused(Reason.INVALID_REQUEST, "") if known is not None else None


def decide(state: ModelState, command: Command | Undecodable) -> Result:  # noqa: C901, PLR0912 - a case for each command
    """Apply one command that is well formed and new."""
    match command:
        case OpenSession():
            return open_session(state, command)
        case KeepAlive() | CloseSession():
            session = state.session(command.session_id)
            if session is None:
                return Refused(Reason.SESSION_EXPIRED, "")
            if isinstance(command, KeepAlive):
                session.lease.ttl_ms = command.ttl_ms or session.lease.ttl_ms
                return kept(state, session)
            return SessionClosed(end_session(state, session, EventKind.RELEASED))
        case AcquireSeveral():
            result = acquire_several(state, command)
        case Acquire():
            return acquire(state, command)
        case AcquirePermits():
            result = acquire_permits(state, command)
        case Campaign():
            return campaign(state, command)
        case Convert():
            return change_mode(state, command)
        case AddLocks():
            return add_locks(state, command)
        case Cancel():
            result = cancel(state, command)
        case AbandonWaits():
            return abandon_waits(state, command)
        case Renew():
            return refuse_other_kind(state, command) or renew(state, command)
        case ReleaseByValue() | RenewByValue():
            meant = by_id(state, command)
            return meant if isinstance(meant, Refused) else decide(state, meant)
        case Release():
            result = refuse_other_kind(state, command) or release(state, command)
        case ForceRelease():
            result = force_release(state, command)
        case ForceCloseSession() | ForceWaits() | LiftDelay() | ForgetFence() | ForgetRates():
            return override(state, command)
        case Freeze() | Thaw():
            return override(state, command)
        case Revoke():
            return revoke(state, command)
        case WithdrawRevocation():
            return withdraw(state, command)
        case PutOff():
            return refuse_other_kind(state, command) or put_off(state, command)
        case HandOver():
            return hand_over(state, command)
        case ResizeSemaphore():
            result = resize(state, command)
        case Proclaim():
            return proclaim(state, command)
        case PutCell() | DeleteCells():
            return change_cells(state, command)
        case TransactCells():
            return transact(state, command)
        case AdvanceFence():
            return advance_fence(state, command)
        case ResumeStream():
            return resume(state, command)
        case RecordAct():
            return record_act(state, command)
        case HoldRules():
            return hold_rules(state, command)
        case PreferLeader():
            return prefer_leader(state, command)
        case SetQuota():
            return set_quota(state, command)
        case SetNamespace():
            return set_namespace(state, command)
        case Tick() | Barrier() | Undecodable():
            return Done()
        case TakeRate():
            return take(state, command, key_of(state, command))
        case Numbered() | OnBehalf():
            raise AssertionError("what is in them is decided")
    serve(state)
    return result


def open_session(state: ModelState, command: OpenSession) -> Result:
    """Open a session."""
    labels = [text for pair in command.labels.items() for text in pair]
    refused = refuse_more(state, "sessions") or refuse_texts(state, *labels)
    if refused is not None:
        return refused
    owner = OwnerName(command.labels.get("owner") or f"session-{command.session_id}")
    lease = state.new_lease(command.ttl_ms)
    session = Session(command.session_id, owner, command.labels, lease, principal=state.principal)
    state.sessions.append(session)
    return SessionOpened(command.session_id, command.ttl_ms, command.ttl_ms)


def cancel(state: ModelState, command: Cancel) -> Result:
    """End the wait of an attempt, or the hold it got; not while another attempt may be told of it."""
    ticket, hold = state.ticket(command.hold_id), state.hold(command.hold_id)
    attempt = ticket or hold
    if attempt is None:
        place = leave(state, command.attempt_id)
        if place is not None:
            forget(state, place.request, NO_HOLD)
        return Cancelled(undone=place is not None)
    if not is_last(attempt, command.attempt_id):
        return Cancelled(undone=False)
    forget(state, attempt.request, command.hold_id)
    if ticket is not None:
        end_wait(state, ticket, Left.CANCELLED)
    elif hold is not None and hold.depth > 1:
        hold.depth, hold.attempt_id = hold.depth - 1, NO_ATTEMPT
    elif hold is not None:
        end_hold(state, hold, EventKind.RELEASED)
    return Cancelled(undone=True)


def abandon_waits(state: ModelState, command: AbandonWaits) -> Result:
    """End the waits of a node process that is gone, in order of arrival."""
    waits = [ticket for ticket in state.tickets if came_through(ticket, command.origin)]
    looked_at = waits[: limits.ABANDONED_PER_COMMAND_MAX]
    ended: list[Ticket] = []
    for ticket in looked_at:
        cost = sum(claims(other) for other in ended)
        if cost < limits.EXPIRIES_PER_ENTRY_MAX and is_left_by(ticket, command.origin):
            ended.append(ticket)
    for ticket in ended:
        forget(state, ticket.request, ticket.ticket_id)
        end_wait(state, ticket, Left.ABANDONED)
    serve(state)
    return WaitsAbandoned(len(ended), sum(came_through(ticket, command.origin) for ticket in state.tickets))


def renew(state: ModelState, command: Renew) -> Result:
    """Start the lease of a hold, or of its session, anew."""
    hold = state.hold(command.hold_id)
    if hold is None:
        return Refused(Reason.LEASE_EXPIRED, "")
    if command.exact and not command.ttl_ms:
        return Refused(Reason.INVALID_REQUEST, "")
    refused = limits.check_ttl(command.ttl_ms) if command.ttl_ms else None
    if refused is not None:
        return refused
    if (hold.session_id or hold.lease is None) and command.ttl_ms:
        return Refused(Reason.INVALID_REQUEST, "")
    refused = refuse_ttl(state, command.ttl_ms, names(hold))
    if refused is not None:
        return refused
    if hold.lease is not None:
        hold.lease.ttl_ms = command.ttl_ms or hold.lease.ttl_ms
        if command.exact:
            hold.lease.expires_at_ms = 0
        state.restart(hold.lease)
    return renewed(state, hold, hold.token)


def release(state: ModelState, command: Release) -> Result:
    """Give back a hold, or some of its locks."""
    hold = state.hold(command.hold_id)
    if hold is None:
        return Refused(Reason.LEASE_EXPIRED, "")
    if command.names and hold.is_of_kinds:
        return Refused(Reason.INVALID_REQUEST, "")
    if len(set(command.names)) < len(command.names):
        return Refused(Reason.INVALID_REQUEST, "")
    if any(name not in names(hold) for name in command.names):
        return Refused(Reason.NOT_HOLDER, "")
    left = [lock for lock in hold.locks if command.names and lock.name not in command.names]
    if hold.depth > 1:
        if command.names:
            return Refused(Reason.INVALID_REQUEST, "")
        hold.depth -= 1
        return Released((), hold.depth)
    if not left:
        end_hold(state, hold, EventKind.RELEASED)
        return Released()
    if any(ticket.changes is hold for ticket in state.tickets):
        return Refused(Reason.INVALID_REQUEST, "")
    gone = [part for part in parts(hold) if part.name in command.names]
    tell(state, EventKind.RELEASED, hold, hold.granted_at_ms, only=gone)
    hold.locks = left
    return Released(tuple(left))


def force_release(state: ModelState, command: ForceRelease) -> Result:
    """End the holds of this very name and kind, all or the one with this token, and delay the name."""
    found = meant(state, command)
    if isinstance(found, Refused):
        return found
    views = tuple(holder_view(state, hold, lock) for hold, lock in found)
    for hold, _ in found:
        end_hold(state, hold, EventKind.FORCED, command.reason, command.lock_delay_ms)
    return ForceReleased(views)


def refuse_other_kind(state: ModelState, command: Release | Renew | PutOff) -> Refused | None:
    """Refuse a command that takes a hold for one of another kind."""
    hold = state.hold(command.hold_id)
    if hold is None or command.kind in (None, hold.kind):
        return None
    part = msgspec.structs.replace(parts(hold)[0], kind=hold.kind)
    if hold.is_of_kinds:
        part = msgspec.structs.replace(part, permits=0)
    return Refused(Reason.WRONG_KIND, "", (holder_view(state, hold, part),))


def resize(state: ModelState, command: ResizeSemaphore) -> Result:
    """Give a semaphore another limit. Waiters that want more are refused; holders that have more keep it."""
    if command.name not in state.limits:
        return Refused(Reason.NOT_HOLDER, "")
    if state.limits[command.name] != command.limit:
        limit = {"of": HoldKind.SEMAPHORE, "permits": command.limit}
        tell_act(state, EventKind.RESIZED, command.name, command.reason, **limit)
    state.limits[command.name] = command.limit
    for ticket in list(state.tickets):
        if permits_of(ticket, command.name) > command.limit:
            end_wait(state, ticket, Left.LIMIT_MISMATCH, limit_mismatch(state, command.name))
    serve(state)
    return Resized(command.limit, command.limit - used(state, command.name))


def proclaim(state: ModelState, command: Proclaim) -> Result:
    """Give the election that a hold leads another value."""
    hold = state.hold(command.hold_id)
    if hold is None:
        return Refused(Reason.LEASE_EXPIRED, "")
    if hold.kind is not HoldKind.ELECTION:
        return Refused(Reason.INVALID_REQUEST, "")
    refused = refuse_texts(state, command.value, instead_of=(hold.value,)) or refuse_texts_in(
        state, hold, hold.note, command.value
    )
    if refused is not None:
        return refused
    if hold.value != command.value:
        hold.value = command.value
        tell(state, EventKind.ELECTED, hold)
    return Proclaimed(hold.token)


def advance_fence(state: ModelState, command: AdvanceFence) -> Result:
    """Raise the highest token that a resource has seen, to one that was granted."""
    if command.token >= state.next_token:
        return Refused(Reason.INVALID_REQUEST, "")
    highest = state.fences.get(command.name, 0)
    if command.token < highest:
        return Refused(Reason.STALE_TOKEN, "", facts={"highest_token": highest})
    if command.name not in state.fences:
        refused = refuse_named(state, "fences", [command.name]) or refuse_named_in(
            state, "fences", [command.name]
        )
        if refused is not None:
            return refused
        state.fences_made[command.name] = object()
        state.fences_of[command.name] = state.principal
    state.fences[command.name] = command.token
    return FenceAdvanced(command.token)
