"""Names are looked up once at a time, and a lookup that nobody waits for any more disturbs nobody."""

import asyncio
import gc
import socket
from typing import Any

import pytest

from cluster.config import Address
from cluster.peers import links as links_module
from cluster.peers.handshake_budget import HandshakeBudget
from cluster.peers.resolving import Resolver
from tests.unit.cluster.peers.test_links import free_address, node, until

PEER = Address("n2.example", 7800)


class Names:
    """A resolver that answers when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lookups = 0
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", self._getaddrinfo)

    async def _getaddrinfo(self, *_: object, **__: object) -> Any:
        self.lookups += 1
        return await self.answer


async def test_those_who_ask_at_once_share_a_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after one of them gave up waiting; a later one looks again."""
    names, resolver = Names(monkeypatch), Resolver()
    asked = [asyncio.create_task(resolver.resolve(PEER)) for _ in range(3)]
    await until(lambda: names.lookups)
    asked[0].cancel()
    names.answer.set_result(
        [(socket.AF_INET6, 1, 6, "", ("::1", 7800, 0, 0)), (2, 1, 6, "", ("1.2.3.4", 7800))]
    )
    assert await asyncio.gather(*asked[1:]) == [[Address("::1", 7800), Address("1.2.3.4", 7800)]] * 2
    assert names.lookups == 1
    await resolver.resolve(PEER)
    assert names.lookups == 2


async def test_where_an_address_has_led_to_stays_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also when a later lookup fails: what connects from there has a member's share, and not a stranger's."""
    names, resolver = Names(monkeypatch), Resolver()
    assert resolver.found(PEER) == []
    names.answer.set_result([(2, 1, 6, "", ("1.2.3.4", 7800))])
    await resolver.resolve(PEER)
    await asyncio.sleep(0)
    assert resolver.found(PEER) == [Address("1.2.3.4", 7800)]
    names.answer = asyncio.get_running_loop().create_future()
    names.answer.set_exception(OSError("no resolver"))
    with pytest.raises(OSError, match="no resolver"):
        await resolver.resolve(PEER)
    await asyncio.sleep(0)
    assert resolver.found(PEER) == [Address("1.2.3.4", 7800)]


async def test_strangers_do_not_use_up_the_handshakes_of_a_member_that_has_a_name() -> None:
    """Nor of one that was never linked with this node: its address counts as soon as it was dialed."""
    address = Address("localhost", free_address().port)
    async with node("b", {"a": address, "b": free_address()}) as (links, _):
        links._handshakes = HandshakeBudget(lambda: 0.0)
        while links._may_shake("10.9.9.9"):
            pass
        assert not links._may_shake("127.0.0.1")
        await links._resolver.resolve(address)
        await asyncio.sleep(0)
        assert links._may_shake("127.0.0.1")
        assert not links._may_shake("10.9.9.9")


async def test_a_lookup_that_fails_late_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dialer waits for 2 s, resolvers take longer; what they say then concerns nobody."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    monkeypatch.setattr(links_module, "DIAL_S_MAX", 0.01)
    monkeypatch.setattr(links_module, "RETRY_S_MIN", 0.001)
    names = Names(monkeypatch)
    async with node("n1", {"n1": Address("127.0.0.1", 0), "n2": PEER}) as (links, _):
        links.set_peers({"n2": PEER})
        await until(lambda: links.absences.all()["n2"].reason)
        names.answer.set_exception(socket.gaierror(-3, "Temporary failure in name resolution"))
        await until(lambda: "Temporary failure" in links.absences.all()["n2"].reason)
    gc.collect()
    await asyncio.sleep(0)
    assert told == []


async def test_all_addresses_of_a_name_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a name with two addresses the second is taken when nobody answers at the first."""
    addresses = {"a": free_address(), "b": free_address()}
    dead = free_address()
    async with node("b", addresses) as (b_links, _):
        names = Names(monkeypatch)
        monkeypatch.setattr(Resolver, "resolve", _answer([dead, addresses["b"]]))
        async with node("a", {"a": addresses["a"], "b": PEER}) as (a_links, _):
            await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        assert not names.lookups


def _answer(found: list[Address]) -> Any:
    async def resolve(_: Resolver, address: Address) -> list[Address]:
        assert address == PEER
        return found

    return resolve
