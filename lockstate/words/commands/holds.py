"""The commands that ask for a hold or a change of one, and what its holder does with it."""

from lockstate.words.commands.base import WithRequestId
from lockstate.words.ids import NO_HOLD, NO_OWNER, NO_SESSION, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.wanted import Uncommon, Wanted, WantedPermits, WantedRate


class Acquire(WithRequestId, frozen=True, tag=4):
    """Ask for a lock, for a session (`session_id`) or with a lease of its own (`ttl_ms`): one of the two.

    Several locks at once are listed in `locks`; then `name` is empty, and `mode` and `scope` mean nothing.
    `hold_id` is the secret that the hold gets if this command is granted. `attempt_id` names this attempt: a
    repeated request carries the same `request_id` and a new attempt id; `Cancel` ends only the attempt it
    names.

    `if_held` says what is to be done if the session holds just that already. None does not say it: then it is
    renewed, unless a namespace says otherwise. To count means that as many releases end the hold.
    """

    name: str
    mode: Mode
    hold_id: HoldId
    attempt_id: AttemptId
    session_id: SessionId = NO_SESSION
    ttl_ms: int = 0
    owner: OwnerName = NO_OWNER
    wait_ms: int = 0
    request_id: str = ""
    scope: Scope = Scope.NODE
    locks: tuple[Wanted, ...] = ()
    if_held: IfHeld | None = None
    uncommon: Uncommon | None = None


class AcquireSeveral(Acquire, frozen=True, tag=81):
    """Ask for locks, permits and places of rate limits, all of them or none; `name` is empty.

    There is a lock or a permit among them, and something that is not a lock: several locks are an `Acquire`.
    Of what is uncommon it may have a note and a lock-delay.
    """

    permits: tuple[WantedPermits, ...] = ()
    rates: tuple[WantedRate, ...] = ()


class AcquirePermits(WithRequestId, frozen=True, tag=12):
    """Ask for `permits` of a semaphore. The other fields are those of `Acquire`.

    It may have another limit than `limit`, or with 0 any that it has. With `is_strict` another one is a
    mistake.
    """

    name: str
    limit: int
    permits: int
    hold_id: HoldId
    attempt_id: AttemptId
    session_id: SessionId = NO_SESSION
    ttl_ms: int = 0
    owner: OwnerName = NO_OWNER
    wait_ms: int = 0
    request_id: str = ""
    is_strict: bool = False
    uncommon: Uncommon | None = None


class Campaign(WithRequestId, frozen=True, tag=14):
    """Ask to lead an election, for a session, with a value that everybody can read.

    `if_held` is as in `Acquire`, without to count: a leader that campaigns again goes on, or is refused.
    """

    name: str
    session_id: SessionId
    value: str
    hold_id: HoldId
    attempt_id: AttemptId
    owner: OwnerName = NO_OWNER
    wait_ms: int = 0
    request_id: str = ""
    if_held: IfHeld | None = None


class Convert(WithRequestId, frozen=True, tag=11):
    """Change the mode of a hold: down at once, up as soon as no other holder is in the way.

    `ticket_id` is the id under which the conversion waits; `attempt_id` is as for an acquire.
    """

    hold_id: HoldId
    mode: Mode
    ticket_id: HoldId
    attempt_id: AttemptId
    wait_ms: int = 0
    request_id: str = ""


class AddLocks(WithRequestId, frozen=True, tag=82):
    """Add locks to a hold: all of them at once, or none.

    `ticket_id` is the id under which this waits; `attempt_id` is as for an acquire. What the hold has already
    in the same mode and scope is not added again. `endless_not_for` is as for an acquire, and means something
    if the hold has no deadline.
    """

    hold_id: HoldId
    locks: tuple[Wanted, ...]
    ticket_id: HoldId
    attempt_id: AttemptId
    wait_ms: int = 0
    request_id: str = ""
    endless_not_for: tuple[str, ...] = ()


Acquisition = Acquire | AcquirePermits | Campaign | AcquireSeveral
"""The commands that ask for a new hold."""


Change = Convert | AddLocks
"""The commands that change what a hold has, and may wait for that under an id of their own."""


MayWait = Acquisition | Change
"""The commands whose answer may be that they wait: for a hold, or for a change of one."""


class Renew(WithRequestId, frozen=True, tag=6):
    """Start the lease of a hold anew, with another length if `ttl_ms` is not 0.

    `kind` is what it takes the hold for: refused with `wrong-kind` if that is something else. None does not
    say it. If `exact`, the lease ends after `ttl_ms` even if it was to last longer.
    """

    hold_id: HoldId
    ttl_ms: int = 0
    request_id: str = ""
    kind: HoldKind | None = None
    exact: bool = False


class RenewByValue(WithRequestId, frozen=True, tag=80):
    """Renew the hold of a name that has a value; of several with it, the one held longest.

    If `adds`, the lease gets `ttl_ms` on top of what is left of it.
    """

    name: str
    value: str
    ttl_ms: int = 0
    kind: HoldKind = HoldKind.LOCK
    request_id: str = ""
    exact: bool = False
    adds: bool = False


class Release(WithRequestId, frozen=True, tag=7):
    """Give a hold back; of a hold of several locks only those in `names`, unless `names` is empty.

    `kind` is as for a renewal.
    """

    hold_id: HoldId
    request_id: str = ""
    names: tuple[str, ...] = ()
    kind: HoldKind | None = None


class ReleaseByValue(WithRequestId, frozen=True, tag=79):
    """Give back the hold of a name that has a value, as a whole; of several with it, the one held longest."""

    name: str
    value: str
    kind: HoldKind = HoldKind.LOCK
    request_id: str = ""


class Proclaim(WithRequestId, frozen=True, tag=15):
    """Change the value of the election that a hold leads."""

    hold_id: HoldId
    value: str
    request_id: str = ""


class PutOff(WithRequestId, frozen=True, tag=74):
    """Answer revocations with "not yet": each grace counts once more. Possible once for each name."""

    hold_id: HoldId
    kind: HoldKind = HoldKind.LOCK
    request_id: str = ""


class HandOver(WithRequestId, frozen=True, tag=92):
    """Give the hold of a lock to another client, ahead of all that wait: it is never free in between.

    Exactly one of the two is the receiver: `to_ticket`, the public number of a wait for the same name, or
    `to_session`, the public name of a session of the same principal. That gets the lock as it is held now,
    under `new_hold_id`, which the client makes.
    """

    hold_id: HoldId
    to_ticket: int = 0
    to_session: str = ""
    new_hold_id: HoldId = NO_HOLD
    request_id: str = ""
