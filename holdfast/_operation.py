"""One operation of the client as a value: what is sent, how its answer is read, how its effect is undone.

No I/O. `_exchange.py` decides to which node an operation is sent and how often; `_transport.py` sends it.
"""

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

import msgspec

from holdfast._errors import OutcomeUnknown

T = TypeVar("T")


class TimedAnswer(msgspec.Struct, frozen=True):
    """A good answer; by our clock, when its operation and the attempt that was answered began."""

    body: bytes
    asked_at_s: float
    attempted_at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation(Generic[T]):
    """One request, byte for byte what every repetition of it sends, and how to read its answer.

    `wait_ms` is how long the request may wait in a queue; it is in the body, too. `waits_for_ever` says that
    this is not a deadline of the caller: without a node that answers, nobody wants to wait so long.
    `undo` returns the operation that takes back what this one has given, for a caller that went away.
    """

    method: str
    path: str
    read: Callable[[TimedAnswer], T]
    body: bytes = b""
    request_id: str = ""
    wait_ms: int = 0
    waits_for_ever: bool = False
    undo: "Callable[[T], Operation[Any]] | None" = None

    @property
    def changes_nothing(self) -> bool:
        """Whether a lost answer leaves no doubt about its effect: there is none."""
        return self.method == "GET"


def new_request_id() -> str:
    """Return a fresh id: no two requests in the world share one."""
    return secrets.token_hex(16)


def write(
    path: str,
    fields: Mapping[str, object],
    read: Callable[[TimedAnswer], T],
    *,
    method: str = "POST",
    wait_ms: int = 0,
    waits_for_ever: bool = False,
    undo: Callable[[T], Operation[Any]] | None = None,
    always: str = "",
) -> Operation[T]:
    """Make a write. Fields that are None or empty are left out, for the node to choose; not `always`."""
    body = {key: value for key, value in fields.items() if key == always or value not in (None, "", {})}
    return Operation(
        method=method,
        path=path,
        read=read,
        body=msgspec.json.encode(body) if body else b"",
        request_id=str(body.get("request_id", "")),
        wait_ms=wait_ms,
        waits_for_ever=waits_for_ever,
        undo=undo,
    )


def ask(path: str, query: Mapping[str, str], read: Callable[[TimedAnswer], T]) -> Operation[T]:
    """Make a read. Query parameters that are empty are left out."""
    given = urlencode({key: value for key, value in query.items() if value})
    return Operation(method="GET", path=f"{path}?{given}" if given else path, read=read)


def decode(answer: TimedAnswer, kind: type[T]) -> T:
    """Decode an answer. It may not come from a node at all; then the outcome is not known."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise OutcomeUnknown(f"the answer is not that of a Holdfast node: {error}") from error
