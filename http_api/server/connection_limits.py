"""How many connections clients may have, which of them end for others, and what becomes of those above that.

A node that runs out of descriptors could not write its journal, so clients get only so many. Whoever opens
many and is silent must not keep others out, so a connection has to earn its place:

    it waits       for the head of a request, which has to come in time; then it is a request's
    it rests       between requests, for a while
    it is busy     while a request is answered, which may take as long as the request says

When the room is full, the one that has been waiting or resting longest goes. One address has a share of the
room, and so has one principal, once it has proven who it is. Where nobody can go, a few connections more are
taken: this machine is served on them, and probes are answered to all, so that supervisors and people can
still ask what is wrong.
"""

import enum
import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from cluster.observing.samples import Sample, counter, gauge
from http_api.server.log_budget import LogBudget
from http_api.server.peer_address import UNIX
from http_api.server.quiet import Quiet

SPARE_COUNT_MAX: Final = 50
"""Connections above the bound, for probes. The oldest of these ends when another one comes."""
LOCAL_COUNT_MAX: Final = 50
"""Connections above the bound, for programs on this machine."""
LOCAL: Final = ""
"""What connections of this machine are counted by."""
LOOKS_COUNT_MAX: Final = 1_000
"""Resting connections among which one of a principal is looked for: they are kept by address only."""
LINES_A_MINUTE: Final = 1
"""Log lines of one kind, at most."""

logger = logging.getLogger("http_api")


class Connection(Protocol):
    """A connection of a client."""

    def end(self) -> None:
        """Close it at once."""


class ConnectionEnd(enum.StrEnum):
    """What a connection was ended for."""

    HEAD = "head"
    """The head of a request did not come in time."""
    IDLE = "idle"
    """It rested for too long."""
    ROOM = "room"
    """The room was full, and it was the one that had been quiet longest."""
    ADDRESS = "address"
    """So it was among those of an address that has its share."""
    PRINCIPAL = "principal"
    """It rested, and its principal has its share."""
    SPARE = "spare"
    """It was for probes only, and another one came."""
    UNREAD = "unread"
    """The client did not read its answer."""


class ConnectionRefusal(enum.StrEnum):
    """Why only probes are answered on a connection."""

    FULL = "full"
    """All connections that clients may have are in use."""
    ADDRESS = "address"
    """Those that one address may have are."""
    PRINCIPAL = "principal"
    """Those that one principal may have are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceLimits:
    """How many connections there may be, of one address (0: half of all), and for how long quiet ones."""

    count_max: int = 50_000
    per_address_max: int = 0
    head_s: float = 10.0
    idle_s: float = 75.0

    @property
    def share(self) -> int:
        """Return how many connections one address may have."""
        return min(self.per_address_max or self._half, self.count_max)

    @property
    def principal_share(self) -> int:
        """Return how many connections one principal may have: it may be behind an address that has more."""
        return max(self.share, self._half)

    @property
    def _half(self) -> int:
        return max(self.count_max // 2, 1)


class Place:
    """What the room knows of one connection, which tells it what happens."""

    __slots__ = (
        "_room",
        "address",
        "connection",
        "is_gone",
        "is_revoked",
        "origin",
        "principal",
        "proven",
        "refused",
    )

    def __init__(self, room: "ConnectionPlaces", connection: Connection, address: str, origin: str) -> None:
        self._room, self.connection = room, connection
        self.address, self.origin = address, origin
        self.principal = ""
        """The name of its client, "" while it has not proven any."""
        self.refused: ConnectionRefusal | None = None
        self.is_gone = False
        self.is_revoked = False
        """Whether its client has shown a certificate that counts no longer."""
        self.proven: Any = None
        """Who its client has proven to be: kept by authentication.py."""

    def heard(self) -> None:
        """Record that bytes came: between requests they begin the head of the next one."""
        if self._room.idle.remove(self, self.origin):
            self._room.heads.add(self, self.origin)

    def begin(self) -> None:
        """Record that a request is answered from now on."""
        if not self._room.heads.remove(self, self.origin):
            self._room.idle.remove(self, self.origin)

    def rest(self) -> None:
        """Record that the answer is out."""
        if not self.is_gone:
            self._room.idle.add(self, self.origin)

    def belongs_to(self, principal: str) -> None:
        """Count the connection for a principal. If that has its share, it is for probes only from now on."""
        if principal != self.principal and self.refused is None and not self.is_gone:
            self._room.take_share(self, principal)

    def unread(self) -> None:
        """End the connection: its client does not read."""
        self._room.end(self, ConnectionEnd.UNREAD)

    def gone(self) -> None:
        """Record the end of the connection."""
        self._room.leave(self)


class ConnectionPlaces:
    """The connections of one node's clients."""

    def __init__(
        self,
        limits: PlaceLimits,
        origin_of: Callable[[str], str] = str,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`origin_of` returns what the connections of an address are counted by."""
        self._limits = limits
        self._origin_of = origin_of
        self._count = 0
        self._counts: Counter[str] = Counter()
        """Connections by origin."""
        self._of_principals: Counter[str] = Counter()
        self._spare: dict[Place, None] = {}
        self.heads, self.idle = Quiet[Place](now_s), Quiet[Place](now_s)
        self._ended: Counter[ConnectionEnd] = Counter()
        self._refused: Counter[ConnectionRefusal] = Counter()
        self._lines = LogBudget(LINES_A_MINUTE, now_s)

    @property
    def is_empty(self) -> bool:
        """Whether there are no connections."""
        return not self._count and not self._spare

    @property
    def connections(self) -> tuple[int, int]:
        """Return how many connections clients have, and how many they may have."""
        return self._count, self._limits.count_max

    def come(self, connection: Connection, address: str) -> Place:
        """Take a new connection from `address`, "" for one that has none. Another one may end for it."""
        origin = LOCAL if _is_local(address) else self._origin_of(address)
        place = Place(self, connection, address, origin)
        place.refused = self._make_room(place)
        if place.refused is None:
            self._count += 1
            self._counts[origin] += 1
        else:
            self._spare_one(place, place.refused)
        self.heads.add(place, origin)
        return place

    def take_share(self, place: Place, principal: str) -> None:
        """Count a connection for a principal. A resting one of the same principal may end for it."""
        if self._of_principals[principal] >= self._limits.principal_share:
            self._tell_principal(principal)
            resting = self.idle.oldest_where(lambda each: each.principal == principal, LOOKS_COUNT_MAX)
            if resting is None:
                self._uncount(place)
                self._spare_one(place, ConnectionRefusal.PRINCIPAL)
                return
            self.end(resting, ConnectionEnd.PRINCIPAL)
        _count_less(self._of_principals, place.principal)
        place.principal = principal
        self._of_principals[principal] += 1

    def _spare_one(self, place: Place, why: ConnectionRefusal) -> None:
        """Keep a connection for probes only. Another one may end for it."""
        place.refused = why
        self._refused[why] += 1
        if len(self._spare) >= SPARE_COUNT_MAX:
            self.end(next(iter(self._spare)), ConnectionEnd.SPARE)
        self._spare[place] = None

    def _uncount(self, place: Place) -> None:
        self._count -= 1
        _count_less(self._counts, place.origin)
        _count_less(self._of_principals, place.principal)

    def leave(self, place: Place) -> None:
        """Forget a connection."""
        if place.is_gone:
            return
        place.is_gone = True
        place.begin()
        if place.refused is not None:
            del self._spare[place]
        else:
            self._uncount(place)

    def end(self, place: Place, why: ConnectionEnd) -> None:
        """Close a connection; its place is free at once."""
        if not place.is_gone:
            self._ended[why] += 1
            self.leave(place)
            place.connection.end()

    def look(self) -> None:
        """End what has been quiet for too long."""
        for place in self.heads.longer_than(self._limits.head_s):
            self.end(place, ConnectionEnd.HEAD)
            self._tell_silent(place)
        for place in self.idle.longer_than(self._limits.idle_s):
            self.end(place, ConnectionEnd.IDLE)

    def _make_room(self, place: Place) -> ConnectionRefusal | None:
        """End another connection for a new one, if need be; return why not, if all of them are busy."""
        is_local = place.origin == LOCAL
        if not is_local and self._counts[place.origin] >= self._limits.share:
            self._tell_share(place)
            return self._end_oldest(place.origin, ConnectionEnd.ADDRESS, ConnectionRefusal.ADDRESS)
        if self._count >= self._limits.count_max + (LOCAL_COUNT_MAX if is_local else 0):
            self._tell_full()
            return self._end_oldest(None, ConnectionEnd.ROOM, ConnectionRefusal.FULL)
        return None

    def _end_oldest(
        self, origin: str | None, why: ConnectionEnd, refused: ConnectionRefusal
    ) -> ConnectionRefusal | None:
        """End what was quiet longest, those first that asked nothing; return `refused` if nothing is."""
        while place := self.heads.oldest(origin) or self.idle.oldest(origin):
            if place.refused is None:
                self.end(place, why)
                return None
            self.end(place, ConnectionEnd.SPARE)
        return refused

    # -- what is told ---------------------------------------------------------------------------------------

    def _tell_full(self) -> None:
        if self._lines.take("full"):
            logger.warning(
                "event=connections-full in_use=%d limit=%d refused=%d ended=%d detail=%r",
                *(
                    self._count,
                    self._limits.count_max,
                    self._refused[ConnectionRefusal.FULL],
                    self._ended[ConnectionEnd.ROOM],
                ),
                "clients have as many connections as the limit of open files allows (ulimit -n, LimitNOFILE):"
                " raise it, spread the clients over the nodes, or find out which client opens them. Each new"
                " connection ends the one that has been quiet longest, or is for probes only if all are busy",
            )

    def _tell_share(self, place: Place) -> None:
        if self._lines.take("share"):
            logger.warning(
                "event=connections-of-address address=%r limit=%d refused=%d ended=%d detail=%r",
                *(place.address, self._limits.share, self._refused[ConnectionRefusal.ADDRESS]),
                self._ended[ConnectionEnd.ADDRESS],
                "one address has reached its bound on connections (--connections-per-address): raise it if"
                " many clients share the address, or find out which client opens them",
            )

    def _tell_principal(self, principal: str) -> None:
        if self._lines.take("principal"):
            logger.warning(
                "event=connections-of-principal principal=%r limit=%d refused=%d ended=%d detail=%r",
                *(principal, self._limits.principal_share, self._refused[ConnectionRefusal.PRINCIPAL]),
                self._ended[ConnectionEnd.PRINCIPAL],
                "one principal has reached its bound on connections, which is half of all, or what one"
                " address may have (--connections-per-address): find out why it opens so many",
            )

    def _tell_silent(self, place: Place) -> None:
        if self._lines.take("silent"):
            logger.warning(
                "event=connections-silent address=%r ended=%d detail=%r",
                *(place.address, self._ended[ConnectionEnd.HEAD]),
                f"a request was not sent within {self._limits.head_s:g} s of opening a connection"
                " (--head-timeout-ms); the address belongs to the last one",
            )

    def samples(self) -> Iterator[Sample]:
        """Yield what is so now, and what has been counted."""
        yield gauge("http_connections", "Connections of clients.", self._count)
        yield gauge("http_connections_max", "Connections that clients may have.", self._limits.count_max)
        text = "Connections on which only probes are answered, by the bound that was reached."
        for refused in ConnectionRefusal:
            count = self._refused[refused]
            yield counter("http_connections_refused_total", text, count, reason=refused.value)
        text = "Connections that the node has ended, by reason."
        for ended in ConnectionEnd:
            yield counter("http_connections_ended_total", text, self._ended[ended], reason=ended.value)


def _count_less(counts: Counter[str], key: str) -> None:
    """Count one less of what has been counted."""
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


def _is_local(address: str) -> bool:
    """Whether a client is on this machine."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address in ("", UNIX)
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return (mapped or parsed).is_loopback
