"""What a node answers to writes: one struct per JSON object, and how each is made of a result.

Those that are read as a whole by the client are in `holdfast.wire.answers`. No answer contains a secret but
the asker's own.
"""

from collections.abc import Iterable

import msgspec

from cluster.consensus.member_list import Members
from holdfast import wire
from holdfast.wire.answers import (
    Member,
    MemberListJson,
    Revocation,
    SessionOpenedJson,
    WriteAnswer,
)
from lockapi.views import (
    HolderJson,
    LeaderJson,
    NamespaceSettingsJson,
    QuotaJson,
    holders_of,
    revocation_of,
)
from lockstate.words import results
from lockstate.words.commands import Wanted
from lockstate.words.modes import Mode, Scope
from lockstate.words.results import TicketView

_ENCODER = msgspec.json.Encoder()
encode = _ENCODER.encode


class SessionKeptJson(msgspec.Struct):
    """A session whose ttl starts anew. `revoked` are those of its holds that it is to give up."""

    session_id: str
    expires_in_ms: int
    revision: int
    revoked: tuple[HolderJson, ...] | msgspec.UnsetType = msgspec.UNSET


class GrantedJson(WriteAnswer):
    """A hold. `hold_id` is a secret; `token` is the fencing token, for the resource that the lock protects.

    `scope` is present when the lock covers its subtree, `already_held` when the session had it, `depth` when
    more than one release ends it, `value` when it has one: secret or not, this is its holder. One without a
    deadline says so in the place of `expires_in_ms`.
    """

    hold_id: str
    token: int
    name: str
    mode: Mode
    expires_in_ms: int | msgspec.UnsetType
    revision: int
    scope: Scope | msgspec.UnsetType = msgspec.UNSET
    already_held: bool | msgspec.UnsetType = msgspec.UNSET
    depth: int | msgspec.UnsetType = msgspec.UNSET
    value: str | msgspec.UnsetType = msgspec.UNSET
    no_deadline: bool | msgspec.UnsetType = msgspec.UNSET


class HeldLockJson(msgspec.Struct):
    """One of the locks of a hold."""

    name: str
    mode: Mode
    scope: Scope


class GrantedSeveralJson(WriteAnswer):
    """A hold of several locks, with one id and one token."""

    hold_id: str
    token: int
    locks: tuple[HeldLockJson, ...]
    expires_in_ms: int | msgspec.UnsetType
    revision: int
    already_held: bool | msgspec.UnsetType = msgspec.UNSET
    depth: int | msgspec.UnsetType = msgspec.UNSET
    value: str | msgspec.UnsetType = msgspec.UNSET
    no_deadline: bool | msgspec.UnsetType = msgspec.UNSET


class HeldPermitsJson(msgspec.Struct):
    """Permits of one semaphore in a hold of several kinds, as in `PermitsGranted`."""

    name: str
    permits: int
    available: int
    limit: int


class UsedRateJson(msgspec.Struct):
    """A rate limit from which something was taken, as in `RateTaken`."""

    name: str
    remaining: int
    reset_in_ms: int


class GrantedOfKindsJson(WriteAnswer):
    """A hold of several kinds, with one id and one token; and what was taken from rate limits with it."""

    hold_id: str
    token: int
    locks: tuple[HeldLockJson, ...]
    permits: tuple[HeldPermitsJson, ...]
    rates: tuple[UsedRateJson, ...]
    expires_in_ms: int
    revision: int


class StillWaitingJson(msgspec.Struct):
    """A request that goes on waiting: asked again within `kept_ms`, with its id, it goes on in its place.

    `ticket` is its public number, null once it only waits for the moment that its rate limits have reserved.
    `estimate_ms` is a guess of how long it goes on, null if nothing speaks for any number; it gives up in
    `ends_in_ms`.
    """

    ticket: int | None
    position: int
    estimate_ms: int | None
    waited_ms: int
    ends_in_ms: int | None
    kept_ms: int
    revision: int


class RenewedJson(WriteAnswer):
    """A hold whose lease starts anew, and whether it is to be given up nevertheless."""

    token: int
    expires_in_ms: int | msgspec.UnsetType
    revision: int
    revocation: Revocation | msgspec.UnsetType = msgspec.UNSET
    no_deadline: bool | msgspec.UnsetType = msgspec.UNSET


class RevokedJson(WriteAnswer):
    """The holders that were asked to give up; `left` is how many were not, for a call asks only so many."""

    revoked: tuple[HolderJson, ...]
    revision: int
    left: int


class ReleasedJson(WriteAnswer):
    """A hold that was released. `locks` is what is left of it, when only a part was.

    `released` is false when so many more releases end it as `depth` says.
    """

    released: bool
    revision: int
    locks: tuple[HeldLockJson, ...] | msgspec.UnsetType = msgspec.UNSET
    depth: int | msgspec.UnsetType = msgspec.UNSET


class ForceReleasedJson(WriteAnswer):
    """The holds that were ended."""

    released: tuple[HolderJson, ...]
    revision: int


class NamespaceSetJson(WriteAnswer):
    """What a namespace says from now on; null if it was removed."""

    prefix: str
    settings: NamespaceSettingsJson | None
    revision: int


class QuotaSetJson(WriteAnswer):
    """What a principal may have from now on; null if it has no quota of its own."""

    principal: str
    quota: QuotaJson | None
    revision: int


class PermitsGrantedJson(WriteAnswer):
    """Permits of a semaphore, of which `available` are left for others; `limit` is how many there are."""

    hold_id: str
    token: int
    name: str
    permits: int
    available: int
    expires_in_ms: int | msgspec.UnsetType
    revision: int
    limit: int | msgspec.UnsetType = msgspec.UNSET
    value: str | msgspec.UnsetType = msgspec.UNSET
    no_deadline: bool | msgspec.UnsetType = msgspec.UNSET


class ResizedJson(WriteAnswer):
    """A semaphore with a new limit. `available` is negative while more is held than that."""

    name: str
    limit: int
    available: int
    revision: int


class RateTakenJson(WriteAnswer):
    """The verdict of a rate limit; `retry_after_ms` is 0 when the request is allowed."""

    allowed: bool
    remaining: int
    retry_after_ms: int
    reset_in_ms: int
    revision: int


class ElectedJson(WriteAnswer):
    """An election that was won. `hold_id` is the secret with which the leader proclaims and resigns."""

    hold_id: str
    token: int
    leader: LeaderJson
    expires_in_ms: int
    revision: int
    already_held: bool | msgspec.UnsetType = msgspec.UNSET


class HealthJson(msgspec.Struct, omit_defaults=True):
    """The node answers; otherwise there is a problem document. `troubles` are sentences for people."""

    ok: bool
    troubles: tuple[str, ...] = ()


# -- from results to answers ------------------------------------------------------------------------------


def told(answer: WriteAnswer, *, is_repeated: bool) -> bytes:
    """Return an answer as JSON. `is_repeated` says that it is the outcome of an earlier attempt."""
    if is_repeated:
        answer.repeated = True
    return encode(answer)


def session_opened(result: results.SessionOpened, revision: int) -> SessionOpenedJson:
    """Return the answer to an opened session."""
    return SessionOpenedJson(result.session_id, result.ttl_ms, result.expires_in_ms, revision)


def session_kept(result: results.SessionKept, revision: int) -> SessionKeptJson:
    """Return the answer to a keepalive."""
    answer = SessionKeptJson(result.session_id, result.expires_in_ms, revision)
    if isinstance(result, results.SessionKeptToEnd):
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
    if isinstance(result, results.RenewedToEnd):
        answer.revocation = revocation_of(result.revocation)
    return answer


def _add_held(answer: GrantedJson | GrantedSeveralJson, result: results.Granted) -> None:
    """Say that the session had it already, how often it has to be released, and the value that it has."""
    if isinstance(result, results.GrantedAgain):
        answer.already_held = True
        if result.depth > 1:
            answer.depth = result.depth
    if isinstance(result, results.GrantedAs | results.GrantedAgainAs):
        answer.value = result.value
    if result.expires_in_ms is None:
        answer.no_deadline = True


def _told(expires_in_ms: int | None) -> int | msgspec.UnsetType:
    """Return what is left of a lease, nothing of what has no deadline."""
    return msgspec.UNSET if expires_in_ms is None else expires_in_ms


def released(result: results.Released, revision: int) -> ReleasedJson:
    """Return the answer to a release, as a whole or in part."""
    if isinstance(result, results.ReleasedOnce):
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
    if isinstance(result, results.GrantedPermits):
        answer.limit = result.limit
    if isinstance(result, results.GrantedPermitsAs):
        answer.value = result.value
    return answer


def rate_taken(result: results.RateTaken, waited_ms: int, revision: int) -> RateTakenJson:
    """Return the answer of a rate limit, after the wait for the reserved moment."""
    reset_in_ms = max(result.reset_in_ms - waited_ms, 0)
    return RateTakenJson(result.allowed, result.remaining, result.retry_after_ms, reset_in_ms, revision)


def elected(result: results.Granted, value: str, revision: int) -> ElectedJson:
    """Return the answer to a campaign for an election that `value` now stands for."""
    leader = LeaderJson(result.owner, value, result.token)
    answer = ElectedJson(result.hold_id, result.token, leader, result.expires_in_ms or 0, revision)
    if isinstance(result, results.GrantedAgain):
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
