"""What the model keeps in its lists: plain records, changed in place."""

from dataclasses import dataclass
from typing import TypeAlias

from lockstate.commands import Acquire
from lockstate.modes import Mode
from lockstate.results import Result

Key: TypeAlias = tuple[str, str]
"""Scope and request id of a remembered request."""


@dataclass
class Lease:
    """A right that ends once cluster time has passed `expires_at_ms`."""

    ttl_ms: int
    expires_at_ms: int
    created: int


@dataclass
class Session:
    """A registered client."""

    session_id: str
    owner: str
    labels: dict[str, str]
    lease: Lease


@dataclass
class Hold:
    """A granted right. Its lease is the session's, or its own when `session_id` is empty."""

    hold_id: str
    attempt_id: str
    name: str
    mode: Mode
    owner: str
    token: int
    lease: Lease
    session_id: str
    lock_delay_ms: int
    note: str
    request: Key | None
    """The request of the latest attempt."""


@dataclass
class Ticket:
    """A place in a queue."""

    acquire: Acquire
    attempt_id: str
    request: Key | None
    owner: str
    queued_at_ms: int
    deadline_ms: int
    created: int


@dataclass
class Delay:
    """A time in which a lock is granted to nobody."""

    until_ms: int
    created: int


@dataclass
class Request:
    """A remembered request; `result` is None while it waits."""

    content: object
    hold_id: str
    result: Result | None
    outcome_ms: int
