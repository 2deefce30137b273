"""What this face is given by the program that runs the node (`http_api/__main__.py`): contracts, no code.

Connections have their places among all others of the node's clients, callers are known by the same tokens,
and what they may ask in a second is counted together, whichever face they use.
"""

import asyncio
from typing import Any, Protocol

from lockapi.gateway import Gateway
from lockapi.needs import Need


class Place(Protocol):
    """The place of one connection among all those of the node's clients."""

    connection: "Connection"
    address: str
    origin: str
    """What its requests are counted by, where nobody says who asks."""

    @property
    def refused(self) -> object:
        """Return why there is no room for the connection, None if there is."""
        ...

    def heard(self) -> None:
        """Record that bytes came."""

    def begin(self) -> None:
        """Record that something is asked."""

    def rest(self) -> None:
        """Record that all answers are out."""

    def unread(self) -> None:
        """End the connection: its client does not read."""

    def gone(self) -> None:
        """Record the end of the connection."""


class Connection(Protocol):
    """A connection, as whoever gives out places sees it."""

    def end(self) -> None:
        """Close it at once."""


class Room(Protocol):
    """Gives out places."""

    def come(self, connection: Connection, address: str) -> Place:
        """Take a new connection. Another one may end for it."""
        ...


class Admission(Protocol):
    """Knows the callers."""

    def caller(self, credentials: bytes, place: Any, transport: asyncio.BaseTransport | None) -> Gateway:
        """Return the gateway of who has these credentials, b"" for none. Raises ProblemError.

        `place` is one that the room has given out: it keeps there what was proven.
        """
        ...

    def note_refused(
        self, exc: Exception, transport: asyncio.BaseTransport | None, *, principal: str, command: str
    ) -> None:
        """Count and keep what was refused because of who asked."""

    @property
    def asks_for_tokens(self) -> bool:
        """Return whether callers have to say who they are."""
        ...


class Rates(Protocol):
    """Counts what each caller asks for in a second."""

    def take(self, caller: str, need: Need, count: int = 1) -> None:
        """Take a request. Raises ProblemError if there have been too many."""

    def add(self, caller: str, count: int) -> None:
        """Count so many more for a request that was taken; the caller's next one waits for them."""
