"""Two secrets at a time, over real sockets: nodes learn of an exchange in any order, and links go on."""

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from typing import cast

import pytest

from cluster.config_secrets import Secrets
from cluster.peers import handshake, secret_watch
from cluster.peers.cuts import Cut
from cluster.peers.handshake import HandshakeState, new_nonce
from cluster.peers.link import FrameKind
from cluster.peers.links import PeerLinks
from cluster.peers.peering import Peering
from cluster.peers.secret_use import SecretsSaid, SecretUse
from cluster.peers.secret_watch import SecretWatch
from tests.unit.cluster.peers.test_links import A, Host, anywhere, free_address, node, raw, until

OLD, NEW = b"the old secret of the cluster", b"the new secret of the cluster"
BEGUN, SWITCHED, DONE = Secrets(OLD, NEW, "next"), Secrets(NEW, OLD, "previous"), Secrets(NEW)


def exchange() -> HandshakeState:
    """Return a connection of a with b."""
    return HandshakeState("a", "b", new_nonce(), new_nonce())


# -- rules --------------------------------------------------------------------------------------------------


def test_the_current_secret_is_tried_first_and_then_the_other() -> None:
    """Each round begins again with the current one; who gets through begins anew."""
    use = SecretUse(BEGUN)
    assert use.to_dial("b") == OLD
    assert use.failed("b"), "there is another one"
    assert use.to_dial("b") == NEW
    assert not use.failed("b"), "both were tried"
    assert use.to_dial("b") == OLD
    use.failed("b")
    use.succeeded("b")
    assert use.to_dial("b") == OLD
    use.failed("b")
    use.change(DONE)
    assert use.to_dial("b") == NEW
    assert not use.failed("b"), "there is one only"


def test_nodes_agree_when_they_have_the_same_secrets_and_step() -> None:
    """What is told holds on one connection, for one sender, and shows no secret."""
    link, ours = exchange(), SecretUse(BEGUN)
    assert not ours.agrees("b"), "it has told nothing"
    for theirs, agrees, accepts in (
        (BEGUN, True, True),
        (SWITCHED, False, True),
        (Secrets(OLD), False, True),
        (DONE, False, False),
        (Secrets(OLD, b"another new secret", "next"), False, True),
    ):
        said = SecretUse(theirs).saying(link, "b")
        ours.heard("b", link, said)
        assert (ours.agrees("b"), ours.is_current_accepted("b")) == (agrees, accepts), theirs.step
        assert not {OLD, NEW} & set(said.shown)
    ours.heard("b", link, ours.saying(exchange(), "b"))
    assert not ours.agrees("b"), "told on another connection"
    ours.heard("b", link, ours.saying(link, "a"))
    assert not ours.agrees("b"), "our own words, sent back"
    ours.heard("b", link, SecretsSaid("next", ()))
    assert not ours.agrees("b")
    ours.heard("b", link, ours.saying(link, "b"))
    assert ours.agrees("b")
    ours.forget("b")
    assert not ours.agrees("b"), "it is gone"


# -- on links -----------------------------------------------------------------------------------------------


async def connected(*links: PeerLinks) -> None:
    """Wait until two nodes have a link."""
    await until(lambda: links[0].is_up("b") and links[1].is_up("a"))


@pytest.mark.parametrize("first", ["a", "b"])
async def test_a_secret_is_exchanged_without_losing_the_link(first: str) -> None:
    """Whichever node learns first: at each step they talk, and in the end the old secret opens nothing."""
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses, OLD) as (a, a_host), node("b", addresses, OLD) as (b, b_host):
        await connected(a, b)
        order = (a, b) if first == "a" else (b, a)
        for number, secrets in enumerate((BEGUN, SWITCHED, DONE)):
            for links in order:
                links.use_secrets(secrets)
                assert a.send("b", FrameKind.RAFT, number)
                assert b.send("a", FrameKind.RAFT, number)
                await until(partial(b_host.log.__contains__, ("RAFT", "a", number)))
                await until(partial(a_host.log.__contains__, ("RAFT", "b", number)))
            await until(lambda: a.secrets.agrees("b") and b.secrets.agrees("a"))
            await until(lambda: a.links_behind() + b.links_behind() == 0)
        kinds = [entry[0] for entry in a_host.log if entry[0] != "RAFT"]
        assert kinds == ["up", "replaced", "up"], "one renewal, and nothing else"
        assert a.cuts.counts[Cut.SECRET] + b.cuts.counts[Cut.SECRET] == 0
        async with raw(addresses["b"]) as stranger:
            hello = await stranger.hello()
            stranger.send(handshake.encode(hello.prove(OLD, b"dialer", A)))
            assert await stranger.rest() == b""
        assert b.cuts.counts[Cut.SECRET] == 1


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [(SWITCHED, Secrets(OLD)), (Secrets(OLD), SWITCHED), (BEGUN, DONE), (DONE, BEGUN), (SWITCHED, BEGUN)],
)
async def test_nodes_at_different_steps_find_each_other(of_a: Secrets, of_b: Secrets) -> None:
    """One that was down during a step comes back: one common secret is enough, whoever dials."""
    addresses = {"a": free_address(), "b": free_address()}
    links = {}
    for node_id, secrets in (("a", of_a), ("b", of_b)):
        peers = {peer_id: address for peer_id, address in addresses.items() if peer_id != node_id}
        links[node_id] = PeerLinks(node_id, secrets, peers)
        links[node_id].host = cast("Peering", Host(node_id))
        await links[node_id].start(addresses[node_id], anywhere)
    try:
        await connected(links["a"], links["b"])
    finally:
        for of_node in links.values():
            await of_node.stop()


async def test_a_secret_that_is_taken_back_at_once_ends_its_links(caplog: pytest.LogCaptureFixture) -> None:
    """An operator who knows that a secret is known to others need not go step by step."""
    caplog.set_level(logging.INFO)
    addresses = {"a": free_address(), "b": free_address()}
    async with node("a", addresses, OLD) as (a, a_host), node("b", addresses, OLD) as (b, _):
        await connected(a, b)
        b.use_secrets(DONE)
        await until(lambda: ("down", "b") in a_host.log)
        assert "its secret is no longer accepted" in caplog.text
        await until(lambda: b.cuts.counts[Cut.SECRET] > 0)
        a.use_secrets(DONE)
        await connected(a, b)
    for secret in (OLD, NEW):
        assert secret.decode() not in caplog.text


# -- the file -----------------------------------------------------------------------------------------------


async def test_a_secret_file_is_read_again_when_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What is wrong with it changes nothing, and is said once; a signal makes it read at once."""
    monkeypatch.setattr(secret_watch, "LOOK_S", 0.01)
    path, used = tmp_path / "secret", list[Secrets]()
    path.write_bytes(OLD)
    watch = SecretWatch(path, Secrets(OLD), used.append)
    watch.start()
    try:
        path.write_bytes(b"current: " + OLD + b"\nnext: " + NEW)
        await until(lambda: used == [BEGUN])
        path.write_bytes(b"")
        await until(lambda: "event=secret-not-read" in caplog.text)
        assert "reason='the file is empty; the present secret stays in use'" in caplog.text
        path.unlink()
        await until(lambda: "cannot be read" in caplog.text)
        replacement = tmp_path / "new"
        replacement.write_bytes(b"current: " + NEW + b"\nprevious: " + OLD)
        os.replace(replacement, path)  # noqa: PTH105 - as editors and tools do it
        await until(lambda: used == [BEGUN, SWITCHED])
        monkeypatch.setattr(secret_watch, "LOOK_S", 1000.0)
        path.write_bytes(NEW)
        watch.read_now()
        await until(lambda: used == [BEGUN, SWITCHED, DONE])
        watch.read_now()
    finally:
        await watch.stop()
        await watch.stop()
    assert used == [BEGUN, SWITCHED, DONE], "the same again changes nothing"
    assert caplog.text.count("event=secret-not-read") == 2
    assert "watch-secret" not in {task.get_name() for task in asyncio.all_tasks()}
