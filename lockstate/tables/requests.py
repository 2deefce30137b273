"""The memory of requests: a repeated `request_id` gets the first outcome. Part of the replicated state."""

import hashlib
import operator
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

import msgspec

from lockstate.tables import marks
from lockstate.tables.ledger import Ledger
from lockstate.tables.records import RequestKey
from lockstate.words import limits
from lockstate.words.commands import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    AdvanceFence,
    Campaign,
    CloseSession,
    Command,
    Convert,
    DeleteCells,
    ForceCloseSession,
    ForceRelease,
    ForgetFence,
    LiftDelay,
    OpenSession,
    Proclaim,
    PutCell,
    PutOff,
    Release,
    ReleaseByValue,
    Renew,
    RenewByValue,
    ResizeSemaphore,
    Revoke,
    SetNamespace,
    SetQuota,
    TakeRate,
    TransactCells,
    Uncommon,
)
from lockstate.words.ids import NO_HOLD, HoldId
from lockstate.words.results import CellRead, Granted, Queued, Refused, Result, Transacted

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_DIGEST_BYTES = 12
"""Bytes of a digest of what a request asks."""
_new_digest = hashlib.blake2b(digest_size=_DIGEST_BYTES).copy
"""A copy of an empty digest takes half as long as a new one."""
_mark_of = marks.of_content

_of_session = operator.attrgetter("session_id")
_of_hold = operator.attrgetter("hold_id")
_of_name = operator.attrgetter("name")


def _of_value(command: ReleaseByValue | RenewByValue) -> str:
    """Return what stands for a name and a value, which may be longer than a scope."""
    digest = _new_digest()
    digest.update(f"{command.name}\0{command.value}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


_SCOPES: Final[dict[type, Callable[[Any], str]]] = {
    Acquire: lambda command: command.session_id or command.owner,
    AcquirePermits: lambda command: command.session_id or command.owner,
    Campaign: lambda command: command.session_id or command.owner,
    OpenSession: lambda _: "",
    CloseSession: _of_session,
    Renew: _of_hold,
    Release: _of_hold,
    Convert: _of_hold,
    AddLocks: _of_hold,
    Proclaim: _of_hold,
    ForceRelease: _of_name,
    ResizeSemaphore: _of_name,
    TakeRate: _of_name,
    AdvanceFence: operator.attrgetter("resource"),
    PutCell: lambda command: command.key.decode("utf-8", "replace"),
    DeleteCells: lambda command: command.key.decode("utf-8", "replace"),
    TransactCells: lambda _: "",
    ForceCloseSession: operator.attrgetter("session_name"),
    LiftDelay: _of_name,
    Revoke: _of_name,
    PutOff: _of_hold,
    ReleaseByValue: _of_value,
    RenewByValue: _of_value,
    AcquireSeveral: lambda command: command.session_id or command.owner,
    ForgetFence: operator.attrgetter("resource"),
    SetQuota: operator.attrgetter("principal"),
    SetNamespace: operator.attrgetter("prefix"),
}
"""What tells apart clients that count their requests from 1: for each command that may be remembered."""
_ATTEMPT: Final[dict[str, Any]] = {"hold_id": "", "attempt_id": ""}
_CHANGE: Final[dict[str, Any]] = {"ticket_id": "", "attempt_id": ""}
_OF_ATTEMPTS: Final[dict[type, dict[str, Any]]] = {
    Acquire: _ATTEMPT,
    AcquirePermits: _ATTEMPT,
    AcquireSeveral: _ATTEMPT,
    Campaign: _ATTEMPT,
    Convert: _CHANGE,
    AddLocks: {**_CHANGE, "endless_not_for": ()},
    OpenSession: {"session_id": ""},
}
"""What differs between attempts of one request: their ids, and how the node is set that was asked.

The latter also stands in what is uncommon.
"""


class Remembered(msgspec.Struct, array_like=True, gc=False):
    """One remembered request: a digest of what it asked, when its outcome came, and the outcome so far."""

    digest: bytes
    at_ms: int
    result: Result


def request_key(command: Command) -> tuple[str, str] | None:
    """Return the key under which `command` is remembered, scope and request id; None if it carries no id.

    The scope tells apart clients that count their requests from 1. It is the session or hold that a request
    is about (both secrets), else the owner or the name that it gives.
    """
    request_id = command.request_id
    return (_SCOPES[command.__class__](command), request_id) if request_id else None


_OF: Final = "\0"
"""Stands between a request id, in which it cannot be, and the principal whose it is."""


def key_of(principal: str, key: tuple[str, str]) -> tuple[str, str]:
    """Return a key as it is of a principal, "" for nobody: others may have the same request id."""
    return (key[0], f"{key[1]}{_OF}{principal}") if principal else key


def content_digest(command: Command) -> bytes:
    """Return a digest of what `command` asks, without what differs between attempts."""
    of_attempt = _OF_ATTEMPTS.get(command.__class__)
    if of_attempt is not None:
        uncommon: Uncommon | None = getattr(command, "uncommon", None)
        if uncommon is not None:
            asked = msgspec.structs.replace(uncommon, priority_not_for=(), endless_not_for=())
            of_attempt = {**of_attempt, "uncommon": asked}
        command = msgspec.structs.replace(command, **of_attempt)
    digest = _new_digest()
    digest.update(_encoder.encode(command))
    return digest.digest()


def _hold_id(result: Result) -> HoldId:
    """Return the id of the hold that a result grants or queues for; NO_HOLD if neither."""
    return result.hold_id if isinstance(result, Granted | Queued) else NO_HOLD


def brief(result: Result) -> Result:
    """Return what is worth remembering of a result: what was in the way, or read, is out of date later.

    The owners and notes of holders could take 30 kB, a million times; the cells of a transaction 256 kB.
    """
    if isinstance(result, Transacted):
        nothing = CellRead(None)
        results = [nothing if isinstance(part, CellRead) else part for part in result.results]
        return msgspec.structs.replace(result, results=tuple(results))
    if isinstance(result, Refused) and (result.holders or result.cycle):
        return msgspec.structs.replace(result, holders=(), cycle=())
    return result


def _mark(key: RequestKey, remembered: Remembered) -> int:
    """Return the mark of an outcome. Of its key it has the length: the digest implies the rest."""
    return _mark_of(remembered, len(key[0]) + len(str(key[1])))


def _parts(key: RequestKey) -> tuple[RequestKey, str]:
    """Return a key as it is of nobody, and whose it is."""
    request_id, _, principal = str(key[1]).partition(_OF)
    return (key[0], request_id), principal


class RequestMemory:
    """Outcomes by request key, oldest first; bounded by age and count, see `limits`."""

    def __init__(self, ledger: Ledger | None = None) -> None:
        self._requests: OrderedDict[RequestKey, Remembered] = OrderedDict()
        self.askers: dict[RequestKey, set[str]] = {}
        """The principals that have a request under each key, as it would be of nobody. It is derived."""
        self._ledger = Ledger() if ledger is None else ledger
        self.get: Callable[[RequestKey], Remembered | None] = self._requests.get
        """Return what is remembered under a key. It is the table's own: every request with an id asks."""

    def __len__(self) -> int:
        """Return how many requests are remembered."""
        return len(self._requests)

    def __contains__(self, key: RequestKey) -> bool:
        """Whether anything is remembered under `key`."""
        return key in self._requests

    def askers_of(self, key: RequestKey) -> tuple[str, ...]:
        """Return the principals that have a request under `key`, in order of their names."""
        return tuple(sorted(self.askers.get(key, ())))

    def note_asker(self, key: RequestKey) -> None:
        """Note whose request is remembered now, if it is somebody's."""
        plain, principal = _parts(key)
        if principal:
            self.askers.setdefault(plain, set()).add(principal)

    def _leave(self, key: RequestKey) -> None:
        """Note whose request is remembered no more."""
        plain, principal = _parts(key)
        if principal:
            askers = self.askers[plain]
            askers.remove(principal)
            if not askers:
                del self.askers[plain]

    @property
    def is_full(self) -> bool:
        """Whether another request would push out one that must still be remembered."""
        return len(self._requests) >= limits.REQUESTS_COUNT_MAX

    def remember(self, key: tuple[str, str], digest: bytes, now_ms: int, result: Result) -> None:
        """Remember the first outcome of a request; if that is `Queued`, it is settled later.

        Whoever remembers that of a principal says so (`note_asker`).
        """
        if result.__class__ is Refused or result.__class__ is Transacted:
            result = brief(result)
        self._requests[key] = remembered = Remembered(digest, now_ms, result)
        # As `_mark` does, without the call: every outcome comes by here.
        self._ledger.settled_sum += _mark_of(remembered, len(key[0]) + len(key[1]))

    def settle(self, key: RequestKey | None, now_ms: int, result: Result) -> None:
        """Replace the outcome of a request that waited. Its age counts from now."""
        remembered = None if key is None else self._requests.get(key)
        if key is None or remembered is None:
            return
        self._ledger.settled_sum -= _mark_of(remembered)
        remembered.result = brief(result)
        remembered.at_ms = now_ms
        self._ledger.settled_sum += _mark_of(remembered)
        self._requests.move_to_end(key)

    def forget(self, key: RequestKey | None, hold_id: HoldId) -> None:
        """Forget the request that led to `hold_id` and was undone, so that a repetition starts afresh."""
        remembered = None if key is None else self._requests.get(key)
        if key is not None and remembered is not None and _hold_id(remembered.result) == hold_id:
            del self._requests[key]
            if self.askers:
                self._leave(key)
            self._ledger.settled_sum -= _mark(key, remembered)

    def next_ms(self) -> int | None:
        """Return the last millisecond for which the oldest outcome is remembered; None if there is none."""
        oldest = next(iter(self._requests.values()), None)
        return None if oldest is None else oldest.at_ms + limits.REQUEST_AGE_MS

    def prune(self, now_ms: int) -> None:
        """Forget a limited number of outcomes that are old enough. Requests that still wait stay."""
        if not self._requests:
            return
        for _ in range(min(len(self._requests), limits.REQUESTS_PER_ENTRY_MAX)):
            key, oldest = next(iter(self._requests.items()))
            if oldest.at_ms + limits.REQUEST_AGE_MS >= now_ms:
                return
            self._ledger.settled_sum -= _mark(key, oldest)
            if isinstance(oldest.result, Queued):
                oldest.at_ms = now_ms
                self._ledger.settled_sum += _mark(key, oldest)
                self._requests.move_to_end(key)
            else:
                del self._requests[key]
                if self.askers:
                    self._leave(key)

    def dump(self) -> list[tuple[RequestKey, Remembered]]:
        """Return everything, oldest first, for a snapshot."""
        return list(self._requests.items())

    def load(self, items: list[tuple[RequestKey, Remembered]]) -> None:
        """Add a part of what `dump` returned, after what is there."""
        self._requests.update(items)
        for key, _ in items:
            self.note_asker(key)
        self._ledger.settled_sum += sum([_mark(key, remembered) for key, remembered in items])

    def recomputed_sum(self) -> int:
        """Return the sum of the marks of all outcomes, and of the lengths of their keys (see `marks`)."""
        return sum([_mark(key, remembered) for key, remembered in self._requests.items()])
