"""What happened, for everybody that may see it."""

import enum
from typing import Final

from lockstate.words.ids import HoldId, OwnerName, SessionId
from lockstate.words.kinds import ClusterAct, HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.shape import Array


class EventKind(enum.StrEnum):
    """What happened. The values are the public event names."""

    GRANTED = "granted"
    QUEUED = "queued"
    RELEASED = "released"
    EXPIRED = "expired"
    FORCED = "forced"
    HANDED_OVER = "handed-over"
    CONVERTED = "converted"
    ELECTED = "elected"
    RESIGNED = "resigned"
    SESSION_EXPIRED = "session-expired"
    SESSION_FORCED = "session-forced"
    DELAY_LIFTED = "delay-lifted"
    FENCE_FORGOTTEN = "fence-forgotten"
    RATE_LIMIT_FORGOTTEN = "rate-limit-forgotten"
    WAIT_FORCED = "wait-forced"
    REVOKED = "revoked"
    REVOCATION_WITHDRAWN = "revocation-withdrawn"
    PUT_OFF = "put-off"
    FROZEN = "frozen"
    THAWED = "thawed"
    LEFT = "left"
    RESIZED = "resized"
    QUOTA_SET = "quota-set"
    QUOTA_REMOVED = "quota-removed"
    NAMESPACE_SET = "namespace-set"
    NAMESPACE_REMOVED = "namespace-removed"
    MEMBER_ADD_ASKED = "member-add-asked"
    MEMBER_MOVE_ASKED = "member-move-asked"
    MEMBER_REMOVE_ASKED = "member-remove-asked"
    TRANSFER_ASKED = "transfer-asked"
    RULES_HELD = "rules-held"
    RULES_RELEASED = "rules-released"
    LEADER_PREFERRED = "leader-preferred"
    PREFERENCE_ENDED = "preference-ended"
    RESTORED = "restored"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


OF_SETTINGS: Final = frozenset(
    {
        EventKind.QUOTA_SET,
        EventKind.QUOTA_REMOVED,
        EventKind.NAMESPACE_SET,
        EventKind.NAMESPACE_REMOVED,
    }
)
"""What operators set for others, and what that was before is gone. What it is now is the `value`, as JSON."""


OF_CLUSTER: Final = {
    ClusterAct.ADD: EventKind.MEMBER_ADD_ASKED,
    ClusterAct.MOVE: EventKind.MEMBER_MOVE_ASKED,
    ClusterAct.REMOVE: EventKind.MEMBER_REMOVE_ASKED,
    ClusterAct.TRANSFER: EventKind.TRANSFER_ASKED,
}
"""What operators are about to do to the cluster itself."""


OF_NODES: Final = frozenset({*OF_CLUSTER.values(), EventKind.LEADER_PREFERRED, EventKind.PREFERENCE_ENDED})
"""What operators do about nodes. Which one is meant is the `value`, as JSON."""


OF_OPERATORS: Final = OF_SETTINGS.union(
    OF_NODES,
    {
        EventKind.FORCED,
        EventKind.SESSION_FORCED,
        EventKind.WAIT_FORCED,
        EventKind.REVOKED,
        EventKind.REVOCATION_WITHDRAWN,
        EventKind.DELAY_LIFTED,
        EventKind.FENCE_FORGOTTEN,
        EventKind.RATE_LIMIT_FORGOTTEN,
        EventKind.RESIZED,
        EventKind.FROZEN,
        EventKind.THAWED,
        EventKind.RULES_HELD,
        EventKind.RULES_RELEASED,
        EventKind.RESTORED,
    },
)
"""What operators do, and give a reason for."""


class Left(enum.StrEnum):
    """Why a wait ended without a grant of its own: the reason of the event `left`."""

    TIMED_OUT = "timed-out"
    CANCELLED = "cancelled"
    ABANDONED = "abandoned"
    SHARED = "shared"
    ALREADY_HELD = "already-held"
    LIMIT_MISMATCH = "limit-mismatch"
    LEASE_EXPIRED = "lease-expired"
    SESSION_CLOSED = "session-closed"
    SESSION_EXPIRED = "session-expired"
    SESSION_FORCED = "session-forced"
    FORCED = "forced"
    RATE_LIMITED = "rate-limited"

    __hash__ = str.__hash__


HELD_TOO_LONG: Final = "held-too-long"
"""Why a holder is to give up what a namespace lets nobody hold longer. No operator can give this reason."""


class Event(Array, frozen=True):
    """Something that happened at a revision. A hold of several locks causes one event for each of them.

    `session_id` is the id of the session, or of the hold if it has a lease of its own. It is a secret: it
    selects the events for a client that names it, and never leaves the node. `lasted_ms` is how long the hold
    or the wait that ended had lasted; of a grant, how long it was waited for. `value` is an elected leader's.

    `ticket` is the public number of the wait that began or ended with it, or for which a holder is to give
    up within `ends_in_ms`; both are 0 if there is no such thing. `to_token` is that of the hold to which this
    one was handed over, and which is granted with the next event; 0 of any other.

    The end of a session has no name, and no more than its owner and, if it was forced, a reason. A delay that
    was lifted, what was forgotten (a fence or a rate limit), a semaphore that was resized (to so many
    `permits`), a prefix that was frozen or thawed, and what operators set (`OF_SETTINGS`) or do about
    nodes (`OF_NODES`), have no owner and no session.

    `principal` is whom it belongs to, and `by` who overrode somebody: forced, revoked, lifted, forgot, or set
    something. Both are empty if nodes were told of no principals. A quota has no name: it is the principal's.
    """

    revision: int
    now_ms: int
    kind: EventKind
    name: str
    mode: Mode
    owner: OwnerName
    token: int
    session_id: SessionId | HoldId
    lasted_ms: int
    reason: str = ""
    of: HoldKind = HoldKind.LOCK
    scope: Scope = Scope.NODE
    permits: int = 0
    value: str = ""
    ticket: int = 0
    ends_in_ms: int = 0
    principal: str = ""
    by: str = ""
    to_token: int = 0

    @property
    def concerns_others(self) -> bool:
        """Whether an operator did it, and to something that is not known to be its own.

        What ends with the grace of a revocation is nobody's deed: that was the revocation. What is set for
        a principal concerns whoever has to know why, also if an operator sets it for itself.
        """
        if self.kind is EventKind.REVOKED and self.reason == HELD_TOO_LONG:
            return False
        is_own = self.principal and self.by in ("", self.principal) and self.kind not in OF_SETTINGS
        return self.kind in OF_OPERATORS and not is_own


class CellEventKind(enum.StrEnum):
    """What happened to a cell. The values are the public event names."""

    PUT = "cell-put"
    DELETED = "cell-deleted"
    EXPIRED = "cell-expired"

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


class CellEvent(Array, frozen=True):
    """A change of a cell. `mod_revision` is that of the change, `version` 0 if the cell is gone.

    It expired if its lease or its session did. The value is not told: whoever wants it reads the cell.
    """

    revision: int
    now_ms: int
    kind: CellEventKind
    key: bytes
    mod_revision: int
    version: int

    @property
    def name(self) -> str:
        """The key as text."""
        return self.key.decode("utf-8", "backslashreplace")
