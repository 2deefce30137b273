"""How something is to be acquired and kept: the keywords of each call that acquires, written once. No I/O."""

import asyncio
import difflib
import math
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any, Final, Generic, Literal, TypeAlias, TypedDict, TypeVar

from holdfast.operations.wanted import HoldRequest
from holdfast.values.durations import Seconds, to_ms, to_s
from holdfast.values.other_words import REVOKED
from holdfast.values.words import Mode, Scope
from holdfast.wire.words import PRIORITY_DEFAULT

S = TypeVar("S")
H = TypeVar("H")

Wait: TypeAlias = Seconds | EllipsisType | None
"""How long to wait in a queue: seconds (0 tries once), None or inf for as long as it takes, `...` for what
was said before."""
Owner: TypeAlias = asyncio.Task[Any] | threading.Thread
"""What a hold may be tied to."""

# The defaults of both clients and of the command line. They differ in one: the command line does not wait for
# a lock unless it is told to (`--wait`), because jobs that cron starts again and again would pile up.
DEFAULT_TTL_S: Final = 30.0
"""Seconds of a lease: others wait so long after a crash, and a failover of the cluster takes less than its
third."""
DEFAULT_SESSION_TTL_S: Final = 15.0
"""Seconds of a session, and so of a leader: others campaign so long after it has died."""
DEFAULT_TIMEOUT_S: Final = 10.0
"""Seconds for which nodes are tried before a call fails, its wait in a queue not counted."""
DEFAULT_GRACE_S: Final = 30.0
"""Seconds that the holders have who are asked to give up."""


class CommonTerms(TypedDict, Generic[S, H], total=False):
    """The keywords of every call that acquires.

    The hold has a lease of its own, of `ttl` (30 s by default), or lives with a `session`. `wait` is how long
    to wait in the queue: 0 tries once, None (the default) or inf waits for as long as it takes. If the hold
    ends otherwise than by a release, the lock stays closed for `lock_delay`; `note` is shown to others.

    A hold is renewed until it is released, lost, or collected. `renew=False` leaves it to its lease, and
    `lost` is set when the lease is over; a hold that is `tied_to` a task or a thread is renewed only while
    that runs. After `max_hold` it is lost, whatever its user does. `on_lost` is called with a lost hold. With
    `push` the client hears at once that others have ended the hold, over a connection of its own, instead of
    with the next renewal; give many holds one `session` with `push` instead.
    """

    ttl: Seconds | None
    session: S | None
    wait: Seconds | None
    lock_delay: Seconds
    note: str
    renew: bool
    tied_to: Owner | None
    push: bool
    max_hold: Seconds | None
    on_lost: Callable[[H], object] | None


class HoldTerms(CommonTerms[S, H], total=False):
    """The further keywords of locks and semaphores.

    The hold carries `value`, by which it can be released and renewed as well (`release_by_value`); with
    `value_secret` only its holder sees it. With `no_deadline`, which a node must allow, it has no lease: it
    is held until it is released or ended by others, even if this program dies. `priority` is 0 to 9: the
    highest goes first in the queue, where the nodes allow it.

    A wait that is longer than `ask_after` asks the holders in its way, once, to give up within `grace`: those
    of its own principal and those of a lower priority. A namespace must allow it.
    """

    value: str
    value_secret: bool
    no_deadline: bool
    priority: int
    ask_after: Seconds
    grace: Seconds


class LockTerms(HoldTerms[S, H], total=False):
    """The further keywords of locks: the mode, the scope, and acquiring again.

    `if_held="count"` lets a block that holds the lock acquire it again, as an RLock does: the hold ends after
    as many releases. Otherwise that is an error, because it would wait for itself.
    """

    mode: Mode
    scope: Scope
    if_held: Literal["refuse", "count"]


class CampaignTerms(TypedDict, Generic[S, H], total=False):
    """The keywords of elections. See `CommonTerms`; the leader leads for a session, its own or this one."""

    session: S | None
    wait: Seconds | None
    tied_to: Owner | None
    push: bool
    max_hold: Seconds | None
    on_lost: Callable[[H], object] | None


_OTHER_WORDS: Final[Mapping[str, str]] = {
    "timeout": "how long to wait for the lock is wait=, how long its lease lasts is ttl=; "
    "timeout= is the client's: Client(timeout=...)",
    **dict.fromkeys(
        ("blocking_timeout", "wait_timeout", "acquire_timeout"), "how long to wait for the lock is wait="
    ),
    "blocking": "wait=0 tries once, or raises LockHeld",
    "shared": "mode='shared' lets other readers in",
    "read": "mode='shared' lets other readers in",
    **dict.fromkeys(
        ("expire", "expires", "expiry", "lease", "lease_time"), "how long the lease lasts is ttl="
    ),
    **dict.fromkeys(("auto_renewal", "auto_renew"), "holds are renewed unless you say renew=False"),
    "request_id": "the client makes one for each call, and repeats it with the call",
    "burst": "limit= is the burst, too; algorithm='gcra' spreads what follows evenly",
    "on_revoke": REVOKED,
    "on_revoked": REVOKED,
    "on_revocation": REVOKED,
    "thread_local": "a hold belongs to no thread; tied_to= ties it to one",
    "limit": "several holders at a time are client.semaphore(name, limit)",
    "max_leases": "the number of permits of a semaphore is limit=",
    "weight": "how many permits to take is permits=",
    "count": "how many permits to take is permits=",
    "owner": "owner= is the client's: Client(owner=...)",
    "identifier": "what others see as the holder is the client's: Client(owner=...)",
    "client_id": "what others see as the holder is owner=",
    **dict.fromkeys(("host", "hosts", "endpoints", "url"), "the addresses are the first argument, nodes"),
    **dict.fromkeys(("sleep", "retry_interval", "retry_delay"), "who waits stands in a queue: nothing polls"),
    "window": "the length of a period is per=",
    "period": "the length of a period is per=",
    "interval": "the length of a period is per=",
    "rate": "how much is allowed in a period is limit=, or both are one text: '100/minute'",
    "max_rate": "how much is allowed in a period is limit=",
    "max_calls": "how much is allowed in a period is limit=",
    "calls": "how much is allowed in a period is limit=",
}
"""What callers say that come from other libraries, and what it is called here."""
WORDS_OF_RATE: Final = ("limit", "per", "algorithm")
"""The arguments of a rate limit."""
WORDS_OF_ACQUIRE: Final = ("blocking", "wait")
"""The arguments of `acquire` of a lock."""


def refuse_unknown(call: str, given: Collection[str], known: Collection[str]) -> None:
    """Raise TypeError for a keyword that a call does not have; it says which word is meant."""
    for word in given:
        if word not in known:
            near = difflib.get_close_matches(word, known, 1)
            hint = _OTHER_WORDS.get(word) or (f"did you mean {near[0]}=?" if near else "")
            raise TypeError(f"{call}() has no argument {word!r}" + (f": {hint}" if hint else ""))


def wait_s(wait: Seconds | None) -> float | None:
    """Return a wait in seconds, None for as long as it takes. Raises ValueError or TypeError."""
    if wait is None or wait == math.inf:
        return None
    if wait == -1:
        raise ValueError("wait: -1 is not a length of time; None waits for as long as it takes")
    return to_s(wait, "wait")


def check_owner(tied_to: object) -> None:
    """Raise TypeError for what a hold cannot be tied to: nobody could ask whether it still runs."""
    if tied_to is not None and not isinstance(tied_to, asyncio.Task | threading.Thread):
        raise TypeError(f"tied_to: {tied_to!r} is neither a task nor a thread")


def _check_text(call: str, word: str, given: Mapping[str, Any]) -> None:
    """Raise TypeError for a note or value that is not a text, such as the `value` of Python's semaphores."""
    if not isinstance(text := given.get(word, ""), str):
        permits = "; the number of permits is limit=" if call == "semaphore" and word == "value" else ""
        raise TypeError(f"{word}: {text!r} is not a str: others read it beside the hold{permits}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How something is to be acquired and kept. `wait_s` None waits for as long as it takes.

    `session` is a `Session`; this module does not know it, because it knows this one.
    """

    owner: str
    ttl_ms: int | None = None
    session: Any = None
    wait_s: float | None = None
    lock_delay_ms: int = 0
    note: str = ""
    value: str = ""
    is_value_secret: bool = False
    has_no_deadline: bool = False
    priority: int = PRIORITY_DEFAULT
    ask_after_ms: int | None = None
    grace_ms: int | None = None
    is_renewed: bool = True
    tied_to: Owner | None = None
    is_pushed: bool = False
    is_counted: bool = False
    max_hold_s: float | None = None
    on_lost: Callable[[Any], object] | None = None

    def wanted(self, wait_ms: int | None) -> HoldRequest:
        """Return what one request says of them."""
        return HoldRequest(
            owner=self.owner,
            ttl_ms=self.ttl_ms,
            session_id="" if self.session is None else self.session.session_id,
            wait_ms=wait_ms,
            lock_delay_ms=self.lock_delay_ms,
            note=self.note,
            value=self.value,
            is_value_secret=self.is_value_secret,
            has_no_deadline=self.has_no_deadline,
            priority=self.priority,
            is_counted=self.is_counted and self.session is not None,
            ask_after_ms=self.ask_after_ms,
            grace_ms=self.grace_ms,
        )

    def waiting(self, wait: Wait) -> "Terms":
        """Return the same with another wait. Raises ValueError."""
        return self if wait is ... else replace(self, wait_s=wait_s(wait))


def terms_of(call: str, owner: str, known: type, given: Mapping[str, Any]) -> Terms:
    """Make terms of the keywords of a call, which are those of the typed dict `known`.

    `mode` and `scope` are the call's own. Raises TypeError for an unknown one, ValueError for a wrong value.
    """
    refuse_unknown(call, given, known.__annotations__)
    ttl, session, endless = given.get("ttl"), given.get("session"), given.get("no_deadline", False)
    if ttl is not None and session is not None:
        raise ValueError("give either ttl or session, not both")
    if endless and (ttl is not None or session is not None):
        raise ValueError("give either no_deadline, or ttl or session")
    if given.get("push") and session is not None:
        raise ValueError("give push to the session: it hears of what it loses as a whole")
    if given.get("tied_to") is not None and session is not None:
        raise ValueError("tied_to: what lives in a session is renewed with it; tie the session")
    if given.get("tied_to") is not None and endless:
        raise ValueError("tied_to: what has no deadline is not renewed, and would outlive it")
    check_owner(given.get("tied_to"))
    _check_text(call, "note", given)
    _check_text(call, "value", given)
    if "grace" in given and "ask_after" not in given:
        raise ValueError("grace: needs ask_after, which says when the wait asks")
    if given.get("if_held", "refuse") not in ("refuse", "count"):
        raise ValueError(f"if_held: {given['if_held']!r} is neither refuse nor count")
    has_ttl = "ttl" in known.__annotations__
    if has_ttl and ttl is None and session is None and not endless:
        ttl = DEFAULT_TTL_S
    max_hold = given.get("max_hold")
    return Terms(
        owner=owner,
        ttl_ms=None if ttl is None else to_ms(ttl, "ttl"),
        session=session,
        wait_s=wait_s(given.get("wait")),
        lock_delay_ms=to_ms(given.get("lock_delay", 0), "lock_delay"),
        note=given.get("note", ""),
        value=given.get("value", ""),
        is_value_secret=given.get("value_secret", False),
        has_no_deadline=endless,
        priority=given.get("priority", PRIORITY_DEFAULT),
        ask_after_ms=to_ms(given["ask_after"], "ask_after") if "ask_after" in given else None,
        grace_ms=to_ms(given["grace"], "grace") if "grace" in given else None,
        is_renewed=given.get("renew", True),
        tied_to=given.get("tied_to"),
        is_pushed=given.get("push", False),
        is_counted=given.get("if_held") == "count",
        max_hold_s=None if max_hold is None else to_s(max_hold, "max_hold"),
        on_lost=given.get("on_lost"),
    )
