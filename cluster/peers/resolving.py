"""Where a peer's name leads to. Lookups cannot be broken off, and may take half a minute to fail."""

import asyncio
import socket

from cluster.config import Address


class Resolver:
    """The lookups of one node that are under way; one for each address, however often it is asked for."""

    def __init__(self) -> None:
        self._under_way: dict[Address, asyncio.Task[list[Address]]] = {}
        self._found: dict[Address, list[Address]] = {}

    async def resolve(self, address: Address) -> list[Address]:
        """Return where to connect, in the order to be tried. Raises OSError, and ValueError for nonsense.

        Who gives up waiting leaves the lookup to itself: the next one who asks gets its answer, and nobody
        has to look at its failure.
        """
        lookup = self._under_way.get(address)
        if lookup is None:
            lookup = asyncio.get_running_loop().create_task(_look_up(address), name=f"resolve-{address}")
            self._under_way[address] = lookup
            lookup.add_done_callback(lambda done: self._ended(address, done))
        return await asyncio.shield(lookup)

    def found(self, address: Address) -> list[Address]:
        """Return where an address has led to the last time that it led anywhere."""
        return self._found.get(address, [])

    def _ended(self, address: Address, lookup: "asyncio.Task[list[Address]]") -> None:
        del self._under_way[address]
        if not lookup.cancelled() and lookup.exception() is None:
            self._found[address] = lookup.result()


async def _look_up(address: Address) -> list[Address]:
    found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    return [Address(*where[:2]) for _, _, _, _, where in found]
