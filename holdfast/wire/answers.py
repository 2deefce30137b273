"""The answers of the HTTP API to requests for holds, sessions, rate limits and fences.

The API's published description names a component after its struct, without `Json`; the structs without it
are values that the client's users see as well. `HoldGiven` is what is read of several answers: a test looks
for it in each of them. No answer contains a secret but the asker's own.
"""

import msgspec

from holdfast.wire.held import Holder, Leader, Revocation, Waiter
from holdfast.wire.shape import ABSENT, UNSET, ReadAnswer, Unset, WriteAnswer
from holdfast.wire.words import ModeSaid, ScopeSaid


class HoldGiven(msgspec.Struct, frozen=True):
    """What is read of every answer that gives a hold. `hold_id` is a secret, `token` the fencing token.

    `expires_in_ms` is 0 when the hold has already ended, and not there if `no_deadline` is.
    """

    hold_id: str
    token: int
    expires_in_ms: int | Unset = UNSET
    no_deadline: bool | Unset = UNSET


class GrantedJson(WriteAnswer):
    """A hold. `hold_id` is a secret; `token` is the fencing token, for the resource that the lock protects.

    `scope` is present when the lock covers its subtree, `already_held` when the session had it, `depth` when
    more than one release ends it, `value` when it has one: secret or not, this is its holder. One without a
    deadline says so in the place of `expires_in_ms`.
    """

    hold_id: str
    token: int
    name: str
    mode: ModeSaid
    expires_in_ms: int | Unset
    revision: int
    scope: ScopeSaid | Unset = UNSET
    already_held: bool | Unset = UNSET
    depth: int | Unset = UNSET
    value: str | Unset = UNSET
    no_deadline: bool | Unset = UNSET


class HeldLockJson(msgspec.Struct, frozen=True):
    """One of the locks of a hold."""

    name: str
    mode: ModeSaid
    scope: ScopeSaid


class GrantedSeveralJson(WriteAnswer):
    """A hold of several locks, with one id and one token."""

    hold_id: str
    token: int
    locks: tuple[HeldLockJson, ...]
    expires_in_ms: int | Unset
    revision: int
    already_held: bool | Unset = UNSET
    depth: int | Unset = UNSET
    value: str | Unset = UNSET
    no_deadline: bool | Unset = UNSET


class PermitsGrantedJson(WriteAnswer):
    """Permits of a semaphore, of which `available` are left for others; `limit` is how many there are."""

    hold_id: str
    token: int
    name: str
    permits: int
    available: int
    expires_in_ms: int | Unset
    revision: int
    limit: int | Unset = UNSET
    value: str | Unset = UNSET
    no_deadline: bool | Unset = UNSET


class ElectedJson(WriteAnswer):
    """An election that was won. `hold_id` is the secret with which the leader proclaims and resigns."""

    hold_id: str
    token: int
    leader: Leader
    expires_in_ms: int
    revision: int
    already_held: bool | Unset = UNSET


class HeldPermitsJson(msgspec.Struct, frozen=True):
    """Permits of one semaphore in a hold of several kinds, as in `PermitsGranted`."""

    name: str
    permits: int
    available: int
    limit: int


class UsedRateJson(msgspec.Struct, frozen=True):
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
    rate_limits: tuple[UsedRateJson, ...]
    expires_in_ms: int
    revision: int


class StillWaitingJson(msgspec.Struct, frozen=True):
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
    """A hold whose lease starts anew, and what of it is to be given up nevertheless."""

    token: int
    expires_in_ms: int | Unset = UNSET
    revision: int = ABSENT
    revocations: tuple[Revocation, ...] | Unset = UNSET
    no_deadline: bool | Unset = UNSET


class ReleasedJson(WriteAnswer):
    """A hold that was released. `locks` is what is left of it, when only a part was.

    `released` is false when so many more releases end it as `depth` says.
    """

    released: bool
    revision: int
    locks: tuple[HeldLockJson, ...] | Unset = UNSET
    depth: int | Unset = UNSET


class ForceReleasedJson(WriteAnswer):
    """The holds that were ended."""

    forced: tuple[Holder, ...]
    revision: int = ABSENT


class RevokedJson(WriteAnswer):
    """The holders that were asked to give up; `left` is how many were not, for a call asks only so many."""

    revoked: tuple[Holder, ...]
    revision: int = ABSENT
    left: int = ABSENT


class RevocationsWithdrawnJson(WriteAnswer):
    """How many revocations were taken back; `left` is how many were not, for a call takes only so many."""

    withdrawn: int
    revision: int = ABSENT
    left: int = ABSENT


class WaitsForcedJson(WriteAnswer):
    """The waits that an operator ended; `left` is how many still wait, for a call ends only so many."""

    ended: tuple[Waiter, ...]
    revision: int = ABSENT
    left: int = ABSENT


class PutOffJson(WriteAnswer, kw_only=True):
    """A hold that is not forced for so long; nor can that be put off again."""

    token: int = ABSENT
    ends_in_ms: int
    revision: int = ABSENT


class HandedOverJson(WriteAnswer, kw_only=True):
    """The lock is held by `owner` from now on, with `token`."""

    token: int
    owner: str = ABSENT
    revision: int = ABSENT


class WithdrawnJson(msgspec.Struct, frozen=True):
    """Whether there was anything to take back: a place in a queue, or a hold."""

    withdrawn: bool
    revision: int = ABSENT


class ProclaimedJson(WriteAnswer):
    """An election whose leader has changed its value."""

    token: int
    revision: int = ABSENT


class DelaysLiftedJson(WriteAnswer):
    """How many delays were ended, and how long the longest of them would have gone on."""

    lifted: int
    left_ms: int = ABSENT
    revision: int = ABSENT


class SemaphoreSize(msgspec.Struct, frozen=True):
    """A semaphore's limit, and how many permits are left; below 0 after it was made smaller."""

    name: str
    limit: int
    available: int


class ResizedJson(SemaphoreSize, frozen=True):
    """A semaphore with a new limit. `available` is negative while more is held than that."""

    revision: int
    repeated: bool | Unset = UNSET


# -- sessions ---------------------------------------------------------------------------------------------


class SessionOpenedJson(WriteAnswer, kw_only=True):
    """A new session. Its id is a secret: whoever knows it may use it."""

    session_id: str
    ttl_ms: int = ABSENT
    expires_in_ms: int
    revision: int = ABSENT


class SessionKeptJson(msgspec.Struct, kw_only=True):
    """A session whose ttl starts anew. `revoked` are those of its holds that it is to give up."""

    session_id: str = ABSENT
    expires_in_ms: int
    revision: int = ABSENT
    revoked: tuple[Holder, ...] | Unset = UNSET


class SessionClosedJson(WriteAnswer):
    """The names of what the session held."""

    names: tuple[str, ...]
    revision: int = ABSENT


class SessionForcedJson(WriteAnswer, kw_only=True):
    """A session that was ended by force, with the names of what it held."""

    session_name: str = ABSENT
    owner: str = ABSENT
    names: tuple[str, ...]
    revision: int = ABSENT


# -- fences and rate limits -------------------------------------------------------------------------------


class FenceAdvancedJson(WriteAnswer, kw_only=True):
    """A resource that accepts this token and higher ones."""

    accepted: bool = ABSENT
    highest_token: int
    revision: int = ABSENT


class FenceForgottenJson(WriteAnswer, kw_only=True):
    """The highest token that was forgotten; null if the resource never saw one."""

    forgotten: bool = ABSENT
    highest_token: int | None
    revision: int = ABSENT


class RatesForgottenJson(WriteAnswer, kw_only=True):
    """How many rate limits were forgotten, and whether more are left of those that were meant."""

    forgotten: int
    more: bool
    revision: int = ABSENT


class Taken(msgspec.Struct, frozen=True):
    """The answer of a rate limit. `retry_after_ms` is when the same request will be allowed."""

    allowed: bool
    remaining: int
    retry_after_ms: int
    reset_in_ms: int


class RateTakenJson(Taken, frozen=True):
    """The verdict of a rate limit; `retry_after_ms` is 0 when the request is allowed."""

    revision: int
    repeated: bool | Unset = UNSET


class RatePeekJson(ReadAnswer, frozen=True):
    """What a rate limit would answer; nothing was taken. `remaining` is what is left before the cost."""

    allowed: bool
    remaining: int
    retry_after_ms: int
    reset_in_ms: int
