"""What operators do to what others have: the commands that need the right `force`."""

from lockstate.words.commands.base import WithRequestId
from lockstate.words.kinds import HoldKind


class ForceCloseSession(WithRequestId, frozen=True, tag=47):
    """End somebody else's session, known by its public name, with its holds and waits."""

    session_name: str
    reason: str
    request_id: str = ""


class ForceRelease(WithRequestId, frozen=True, tag=8):
    """End every hold of a name, or the one that has `token`, of one kind; 0 stands for all of them."""

    name: str
    reason: str
    lock_delay_ms: int = 0
    request_id: str = ""
    kind: HoldKind = HoldKind.LOCK
    token: int = 0


class ForceWaits(WithRequestId, frozen=True, tag=86):
    """End the waits for a name, or the one that has number `ticket`; 0 stands for all of them.

    One command ends only a limited number, those that come first.
    """

    name: str
    reason: str
    kind: HoldKind = HoldKind.LOCK
    ticket: int = 0
    request_id: str = ""


class Revoke(WithRequestId, frozen=True, tag=73):
    """Ask the holders of a name, or the one that has `token`, to give up; after `grace_ms` they are forced.

    `ticket` is the public number of the wait for which that is asked; 0 if for none. With one, only holders
    that are in its way are asked, and no longer than it waits.
    """

    name: str
    reason: str
    grace_ms: int
    kind: HoldKind = HoldKind.LOCK
    token: int = 0
    ticket: int = 0
    request_id: str = ""


class WithdrawRevocation(WithRequestId, frozen=True, tag=90):
    """Take back what was asked of the holders of a name, or of the one that has `token`.

    With a `ticket`, only what was asked for that wait. One command takes back only a limited number.
    """

    name: str
    reason: str
    kind: HoldKind = HoldKind.LOCK
    token: int = 0
    ticket: int = 0
    request_id: str = ""


class LiftDelay(WithRequestId, frozen=True, tag=48):
    """End the lock-delays of a name, of a lock or a semaphore, before their time."""

    name: str
    reason: str
    kind: HoldKind = HoldKind.LOCK
    request_id: str = ""


class ForgetRates(WithRequestId, frozen=True, tag=87):
    """Forget the rate limits of a name, or a limited number of those whose names begin with it, in order.

    Each of them is as new then, whatever was taken from it. An empty name with `is_prefix` stands for all.
    """

    name: str
    reason: str
    is_prefix: bool = False
    request_id: str = ""


class ForgetFence(WithRequestId, frozen=True, tag=49):
    """Forget the highest token that a resource has seen: from now on it accepts any."""

    name: str
    reason: str
    request_id: str = ""


class Freeze(WithRequestId, frozen=True, tag=88):
    """Grant nothing new at or below a prefix for `for_ms`, or until it is thawed if that is 0.

    If it is frozen already, this freeze replaces the one that there is.
    """

    prefix: str
    reason: str
    for_ms: int = 0
    request_id: str = ""


class Thaw(WithRequestId, frozen=True, tag=89):
    """End the freeze of a prefix, and grant what waits for it."""

    prefix: str
    reason: str
    request_id: str = ""
