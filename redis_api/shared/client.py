"""One client: what its connection has said about it, and what all clients of a node share."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from holdfast.token_lines import Right
from lockapi.gateway import Gateway
from lockapi.needs import Need
from lockapi.node import Begun
from lockapi.problems import ProblemError
from lockstate.words.ids import HoldId, OwnerName
from redis_api.lua.scripts import Scripts
from redis_api.protocol.errors import CommandRefused
from redis_api.protocol.resp import Push, Reply, encode
from redis_api.shared.cursors import Cursors
from redis_api.shared.doors import Admission, Place, Rates
from redis_api.shared.key_waits import KeyWaits, Waiter
from redis_api.shared.left_grants import Attempt, LeftGrants
from redis_api.shared.listeners import Listeners, Listening
from redis_api.shared.multi_queue import Queue, Watched
from redis_api.shared.name_turns import NameTurns
from redis_api.shared.script_pace import ScriptPace

OWN_COUNT_MAX: Final = 10_000
"""Holds that a connection is known to have taken. It loses sight of the oldest ones first."""
UNREAD_BYTES_MAX: Final = 1024 * 1024
"""Bytes of messages that a client has not read; with more of them it is cut off."""
UNREAD_OF_ALL_BYTES_MAX: Final = 512 * 1024 * 1024
"""The same of all clients of a node, of which each has its share, and one message more."""
BEHIND_A_WAIT: Final = "too many commands behind one that waits: use another connection"

_OWNERS_KEPT_MAX: Final = 1024
"""Owners of holds that are kept, as texts: a client takes many."""


@dataclass(slots=True)
class Face:
    """What all clients of one node share."""

    admission: Admission
    rates: Rates
    request_timeout_s: float
    gateway: Gateway
    """Through which the face itself looks at its node; what clients ask for goes through their own."""
    version: str = ""
    starting: Callable[[], str] = str
    """Returns how far a node is that still starts, "" once it serves."""
    scripts: Scripts = field(default_factory=Scripts)
    left: LeftGrants = field(default_factory=LeftGrants)
    cursors: Cursors = field(default_factory=Cursors)
    waits: KeyWaits = field(default_factory=KeyWaits)
    turns: NameTurns = field(default_factory=NameTurns)
    pace: ScriptPace = field(default_factory=ScriptPace)
    listeners: Listeners = field(default_factory=Listeners)
    commands: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    began_s: float = field(default_factory=time.monotonic)
    clients: set["Client"] = field(default_factory=set)
    """The connections."""
    came_count: int = 0
    """Connections since the start."""
    has_told_same_value: bool = False

    @property
    def clients_count(self) -> int:
        """Return how many connections there are."""
        return len(self.clients)


class Client:
    """A connection, as commands know it."""

    __slots__ = (
        "_gateway", "attempt", "credentials", "database", "face", "is_counted", "is_gone", "is_leaving",
        "is_waiting", "library", "library_version", "listening", "name", "number", "own", "place", "protocol",
        "queue", "transport", "waiter", "watched",
    )  # fmt: skip

    def __init__(self, face: Face, place: Place, transport: asyncio.Transport, number: int) -> None:
        self.face, self.place, self.transport, self.number = face, place, transport, number
        self.listening = Listening(face.listeners, self.tell)
        self.own: dict[str, HoldId] = {}
        """The holds that were taken on this connection, by their names."""
        self.attempt: Attempt | None = None
        """The attempt to take a hold whose answer has not been written."""
        self.is_counted = False
        """Whether the command at hand has been counted in the caller's requests a second."""
        self.is_leaving = False
        """Whether the connection ends behind the answer."""
        self.is_gone = False
        """Whether the connection is over."""
        self.is_waiting = False
        """Whether a command waits that may do so for very long."""
        self.waiter: Waiter | None = None
        """What wakes a command that waits."""
        self._gateway: Gateway | None = None
        self.reset()
        self.credentials = b""

    def reset(self) -> None:
        """Forget what the connection has said, as RESET does. What it took stays its own."""
        self.database, self.protocol = 0, 2
        self.name = self.library = self.library_version = ""
        self.queue: Queue | None = None
        """The commands of a transaction that has begun."""
        self.watched: list[Watched] = []
        self.credentials = b""
        self.listening.end_all()

    def admit(self) -> Gateway:
        """Return the gateway of the caller as it is now: tokens end, rights change. Raises ProblemError."""
        self._gateway = None
        self._gateway = self.face.admission.caller(self.credentials, self.place, self.transport)
        return self._gateway

    @property
    def gateway(self) -> Gateway:
        """Return the gateway of the caller, which was let in for this command."""
        assert self._gateway is not None, "no command that needs a caller runs without one"
        return self._gateway

    @property
    def principal(self) -> str:
        """Return the name of the caller, "" if it is not known."""
        return self._gateway.principal.name if self._gateway is not None else ""

    def count(self, need: Need, count: int = 1) -> None:
        """Count requests of the caller. Raises ProblemError if it has made too many within a second."""
        self.face.rates.take(self.principal or self.place.origin, need, count)

    def count_more(self, count: int) -> None:
        """Count what the command at hand costs beyond one request: the caller's next one waits for it."""
        self.face.rates.add(self.principal or self.place.origin, count)

    @property
    def lane(self) -> str:
        """Return what keeps commands of this connection in their order that are begun without waiting."""
        return f"redis-{self.number}"

    @property
    def timeout_s(self) -> float:
        """Return the seconds that a command may take."""
        return self.face.request_timeout_s

    @property
    def owner(self) -> OwnerName:
        """Return what others are shown as the owner of a hold of this client."""
        return _owner(self.name or self.library, self.place.address)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Wait in the block for something that may never come. Raises CommandRefused.

        Nobody hears of a client that goes while its connection is not read. So a command that waits may have
        no more behind it than fits into the buffer.
        """
        if not self.transport.is_reading():
            raise CommandRefused(BEHIND_A_WAIT)
        self.is_waiting = True
        try:
            yield
        finally:
            self.is_waiting = False

    def leave(self) -> None:
        """Record that the connection is over."""
        self.is_gone = True
        if self.waiter is not None:
            self.waiter.woken.set()

    def took(self, name: str, hold_id: HoldId) -> None:
        """Remember that the connection took a hold."""
        self.own.pop(name, None)
        if len(self.own) >= OWN_COUNT_MAX:
            del self.own[next(iter(self.own))]
        self.own[name] = hold_id

    def tell(self, name: str, push: Push) -> bool:
        """Tell the client of a message on a channel; return whether it could be told.

        What it may read is looked up each time: tokens end, rights change. One that does not read is cut off.
        """
        if self.transport.is_closing():
            return False
        try:
            rights = self.face.admission.caller(self.credentials, self.place, self.transport).rights
        except ProblemError as problem:
            self.note(problem, "SUBSCRIBE")
            self.transport.close()
            return False
        if not rights.covers(Right.READ, name):
            return False
        share_bytes = UNREAD_OF_ALL_BYTES_MAX // max(self.face.clients_count, 1)
        if self.transport.get_write_buffer_size() > min(UNREAD_BYTES_MAX, share_bytes):
            self.place.unread()
            return False
        self.transport.write(encode(push, self.protocol))
        return True

    def note(self, problem: Exception, command: str) -> None:
        """Keep what was refused because of who asked."""
        if isinstance(problem, ProblemError):
            self.face.admission.note_refused(
                problem, self.transport, principal=self.principal, command=command
            )


@lru_cache(_OWNERS_KEPT_MAX)
def _owner(name: str, address: str) -> OwnerName:
    return OwnerName(f"{name or 'redis'}@{address}")


class Started:
    """A command on its way that nobody waits for."""

    __slots__ = ("attempt", "begun", "finish", "is_done", "name")

    def __init__(self, begun: Begun, finish: Callable[[], Reply], attempt: Attempt | None = None) -> None:
        self.begun, self.attempt = begun, attempt
        self.finish = finish
        """Returns the answer once there is an outcome. Raises ProblemError, ClusterError."""
        self.name = ""
        self.is_done = False
