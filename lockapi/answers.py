"""How what a node answers to writes, the structs of `holdfast.wire`, is made of a result."""

from collections.abc import Iterable

import msgspec

from cluster.consensus.member_list import Members
from holdfast import wire
from holdfast.wire.answers import (
    ElectedJson,
    GrantedJson,
    GrantedOfKindsJson,
    GrantedSeveralJson,
    HeldLockJson,
    HeldPermitsJson,
    PermitsGrantedJson,
    RateTakenJson,
    ReleasedJson,
    RenewedJson,
    SessionKeptJson,
    SessionOpenedJson,
    StillWaitingJson,
    UsedRateJson,
)
from holdfast.wire.operators import Member, MemberListJson
from holdfast.wire.shape import UNSET, Unset
from lockapi.views import holders_of, new_leader, revocation_of
from lockstate.words import results
from lockstate.words.modes import Scope
from lockstate.words.views import TicketView
from lockstate.words.wanted import Wanted

_ENCODER = msgspec.json.Encoder()
encode = _ENCODER.encode


def told(answer: msgspec.Struct, *, is_repeated: bool) -> bytes:
    """Return an answer as JSON. `is_repeated` says that it is the outcome of an earlier attempt."""
    return encode(msgspec.structs.replace(answer, repeated=True) if is_repeated else answer)


def session_opened(result: results.SessionOpened, revision: int) -> SessionOpenedJson:
    """Return the answer to an opened session."""
    return SessionOpenedJson(
        session_id=result.session_id,
        ttl_ms=result.ttl_ms,
        expires_in_ms=result.expires_in_ms,
        revision=revision,
    )


def session_kept(result: results.SessionKept, revision: int) -> SessionKeptJson:
    """Return the answer to a keepalive."""
    answer = SessionKeptJson(
        session_id=result.session_id, expires_in_ms=result.expires_in_ms, revision=revision
    )
    if result.revoked:
        answer.revoked = holders_of(result.revoked)
    return answer


def granted(result: results.Granted, revision: int) -> GrantedJson | GrantedSeveralJson:
    """Return the answer to an acquire or a conversion: of one lock, or of several."""
    hold_id, token, expires_in_ms = result.hold_id, result.token, _told(result.expires_in_ms)
    if result.locks:
        several = GrantedSeveralJson(hold_id, token, held_locks(result.locks), expires_in_ms, revision)
        _add_held(several, result)
        return several
    answer = GrantedJson(hold_id, token, result.name, result.mode, expires_in_ms, revision)
    if result.scope is not Scope.NODE:
        answer.scope = result.scope
    _add_held(answer, result)
    return answer


def still_waiting(view: TicketView | None, left_ms: int, revision: int) -> StillWaitingJson:
    """Return where a request stands; without a ticket it has its hold in `left_ms`."""
    if view is None:
        return StillWaitingJson(None, 0, left_ms, 0, None, wire.WAIT_KEPT_MS, revision)
    return StillWaitingJson(
        view.ticket,
        view.position,
        view.estimate_ms,
        view.waited_ms,
        view.ends_in_ms,
        wire.WAIT_KEPT_MS,
        revision,
    )


def granted_of_kinds(result: results.GrantedSeveral, waited_ms: int, revision: int) -> GrantedOfKindsJson:
    """Return the answer to an acquire of several kinds, after the wait for the reserved moment."""
    return GrantedOfKindsJson(
        result.hold_id,
        result.token,
        held_locks(result.locks),
        tuple([HeldPermitsJson(one.name, one.permits, one.available, one.limit) for one in result.held]),
        tuple(
            [
                UsedRateJson(one.name, one.remaining, max(one.reset_in_ms - waited_ms, 0))
                for one in result.rates
            ]
        ),
        max((result.expires_in_ms or 0) - waited_ms, 0),  # none of them is without a deadline
        revision,
    )


def renewed(result: results.Renewed, revision: int) -> RenewedJson:
    """Return the answer to a renewal."""
    answer = RenewedJson(result.token, _told(result.expires_in_ms), revision)
    if result.expires_in_ms is None:
        answer.no_deadline = True
    if result.revocations:
        answer.revocations = tuple([revocation_of(one) for one in result.revocations])
    return answer


def _add_held(answer: GrantedJson | GrantedSeveralJson, result: results.Granted) -> None:
    """Say that the session had it already, how often it has to be released, and the value that it has."""
    if result.depth:
        answer.already_held = True
        if result.depth > 1:
            answer.depth = result.depth
    if result.value:
        answer.value = result.value
    if result.expires_in_ms is None:
        answer.no_deadline = True


def _told(expires_in_ms: int | None) -> int | Unset:
    """Return what is left of a lease, nothing of what has no deadline."""
    return UNSET if expires_in_ms is None else expires_in_ms


def released(result: results.Released, revision: int) -> ReleasedJson:
    """Return the answer to a release, as a whole or in part."""
    if result.depth:
        return ReleasedJson(released=False, revision=revision, depth=result.depth)
    answer = ReleasedJson(released=True, revision=revision)
    if result.locks:
        answer.locks = held_locks(result.locks)
    return answer


def permits_granted(result: results.Granted, revision: int) -> PermitsGrantedJson:
    """Return the answer to an acquire of permits."""
    answer = PermitsGrantedJson(
        result.hold_id,
        result.token,
        result.name,
        result.permits,
        result.available,
        _told(result.expires_in_ms),
        revision,
    )
    if result.expires_in_ms is None:
        answer.no_deadline = True
    if result.limit:
        answer.limit = result.limit
    if result.value:
        answer.value = result.value
    return answer


def rate_taken(result: results.RateTaken, waited_ms: int, revision: int) -> RateTakenJson:
    """Return the answer of a rate limit, after the wait for the reserved moment."""
    reset_in_ms = max(result.reset_in_ms - waited_ms, 0)
    return RateTakenJson(result.allowed, result.remaining, result.retry_after_ms, reset_in_ms, revision)


def elected(result: results.Granted, value: str, revision: int) -> ElectedJson:
    """Return the answer to a campaign for an election that `value` now stands for."""
    leader = new_leader(result.owner, value, result.token)
    answer = ElectedJson(result.hold_id, result.token, leader, result.expires_in_ms or 0, revision)
    if result.depth:
        answer.already_held = True
    return answer


def held_locks(locks: Iterable[Wanted]) -> tuple[HeldLockJson, ...]:
    """Return the locks of a hold as JSON objects."""
    return tuple([HeldLockJson(lock.name, lock.mode, lock.scope) for lock in locks])


def member_list(members: Members, revision: int) -> MemberListJson:
    """Return the members as a JSON object."""
    return MemberListJson(
        tuple(
            Member(node_id, member.peer, wire.VOTER if member.is_voter else wire.JOINING)
            for node_id, member in members.nodes.items()
        ),
        revision,
    )
