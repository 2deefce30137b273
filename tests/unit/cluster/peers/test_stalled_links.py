"""A link on which nothing comes through any more, in one direction only, is replaced by a new connection."""

import asyncio

import pytest

from cluster.peers import links as links_module
from cluster.peers.link import FrameKind
from tests.support.tap import tapped
from tests.unit.cluster.peers.test_links import free_address, node, until


@pytest.mark.parametrize("side", ["dialer", "acceptor"])
async def test_a_link_that_stalls_in_one_direction_is_replaced(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    """Whoever hears nothing makes a new connection before the silence ends the old one."""
    monkeypatch.setattr(links_module, "PING_S", 0.05)
    monkeypatch.setattr(links_module, "STALLED_S", 0.25)
    monkeypatch.setattr(links_module, "SILENCE_S_MAX", 1000.0)
    a_address, b_address = free_address(), free_address()
    async with (
        tapped(b_address) as (tap, between),
        node("b", {"a": a_address, "b": b_address}) as (b_links, b),
        node("a", {"a": a_address, "b": between}) as (a_links, a),
    ):
        await until(lambda: a_links.is_up("b") and b_links.is_up("a"))
        tap.stall(side)
        sender, receiver, host = (a_links, "b", b) if side == "dialer" else (b_links, "a", a)
        count = 0
        while ("RAFT", sender.node_id, "through") not in host.log:
            # What was sent over the old connection is lost with it.
            sender.send(receiver, FrameKind.RAFT, "through")
            await asyncio.sleep(0.01)
            count += 1
            assert count < 2000, "the link was not replaced"


async def test_a_slow_link_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """One on which bytes still come is left alone, however long a frame takes."""
    monkeypatch.setattr(links_module, "PING_S", 0.05)
    a_address, b_address = free_address(), free_address()
    async with (
        tapped(b_address) as (tap, between),
        node("b", {"a": a_address, "b": b_address}),
        node("a", {"a": a_address, "b": between}) as (a_links, _),
    ):
        await until(lambda: a_links.is_up("b"))
        link = a_links._open["b"]
        now_s = asyncio.get_running_loop().time()
        a_links._renew_if_stalled("b", link, link.bytes_s + links_module.STALLED_S - 0.01)
        assert not a_links._renewals
        # Nothing proven has come for long, but bytes have.
        link.heard_s = now_s - 100.0
        link.bytes_s = now_s
        a_links._renew_if_stalled("b", link, now_s + 1.0)
        assert not a_links._renewals
        a_links._renew_if_stalled("b", link, now_s + links_module.STALLED_S + 0.01)
        assert a_links._renewals
        await until(lambda: tap.connections == 2 and not a_links._renewals)
