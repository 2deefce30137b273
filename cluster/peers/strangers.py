"""How many connections that have proven nothing a node keeps, and which of them make room. Pure.

Every one of them takes a descriptor while its handshake may last. The journal needs descriptors, too,
so there is a bound; and whoever fills the room must not keep members out. So nobody is turned away at the
door: the oldest goes. A member needs two round trips to prove itself; who sits there silently is older.

    one address      has little room, so that one machine cannot take everybody's
    all addresses    share what there is, members' addresses apart
    a member's       has room of its own: strangers elsewhere, however many, cannot disturb a member
"""

import ipaddress
from collections.abc import Collection, Hashable
from typing import Final, Generic, TypeVar

PER_ADDRESS_MAX: Final = 8
"""Connections of one address in their handshake. A member has one, or two when it has just been restarted."""
ALL_MAX: Final = 64
"""Connections in their handshake of all addresses that are not members'."""
_PREFIX_BITS: Final = 64
"""One machine has as many IPv6 addresses as it likes: those with one prefix are one."""

T = TypeVar("T", bound=Hashable)


def origin_of(address: str) -> str:
    """Return what connections are counted by: an IPv4 address, the prefix of an IPv6 address, or a name."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            return str(ipaddress.ip_network((parsed, _PREFIX_BITS), strict=False))
        parsed = parsed.ipv4_mapped
    return str(parsed)


class Strangers(Generic[T]):
    """The connections in their handshake, in the order in which they came."""

    def __init__(self) -> None:
        self._origins: dict[T, str] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._origins)

    def come(self, who: T, address: str, members: Collection[str]) -> T | None:
        """Take one more; return who has to go for it, None if there is room. `members` are their origins."""
        origin = origin_of(address)
        same = [other for other, others in self._origins.items() if others == origin]
        rest = [other for other, others in self._origins.items() if others not in members]
        goes = None
        if len(same) >= PER_ADDRESS_MAX:
            goes = same[0]
        elif origin not in members and len(rest) >= ALL_MAX:
            goes = rest[0]
        if goes is not None:
            del self._origins[goes]
        self._origins[who] = origin
        return goes

    def gone(self, who: T) -> None:
        """Forget one that has proven itself, or has ended."""
        self._origins.pop(who, None)
