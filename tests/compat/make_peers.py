"""How `stored/1.0.0/peers.json` was made: what nodes of release 1.0.0 say to each other.

python -m tests.compat.make_peers tests/compat/stored/1.0.0
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec

from cluster.config import load
from cluster.consensus import member_list
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.messages import AppendEntries
from cluster.node import Node
from cluster.peers import handshake
from cluster.peers.handshake import Challenge, HandshakeState, Hello, Objection, Particulars
from cluster.peers.link import FrameKind, Link
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from tests.unit.cluster.peers.test_links import free_address

SECRET: Final = b"the secret of a stored cluster"
NONCES: Final = (b"1" * handshake.NONCE_BYTES, b"2" * handshake.NONCE_BYTES)
S: Final = 20.0


async def frames() -> dict[str, str]:
    """Return one frame of each kind, and of each Raft message, as three nodes sent them to each other."""
    seen: dict[str, str] = {}
    send = Link.send

    def note(self: Link, kind: FrameKind, body: Any, **how: bool) -> None:
        has_entries = isinstance(body, AppendEntries) and isinstance(body.entries, list) and body.entries
        said = msgspec.to_builtins(body, builtin_types=(bytes, msgspec.Raw)) if kind is FrameKind.RAFT else {}
        name = f"RAFT {said['type']}" + " with entries" * bool(has_entries) if said else kind.name
        seen[name] = msgspec.msgpack.encode((int(kind), 0, body)).hex()
        send(self, kind, body, **how)

    Link.send = note  # type: ignore[method-assign]
    work = Path(tempfile.mkdtemp())
    (work / "secret").write_bytes(SECRET)
    (work / "secret").chmod(0o600)
    peers = ",".join(f"n{number}={free_address()}" for number in (1, 2, 3))
    nodes = {}
    for node_id in ("n1", "n2", "n3"):
        flags = ["--node-id", node_id, "--data-dir", str(work / node_id), "--http", "127.0.0.1:0"]
        nodes[node_id] = Node(load([*flags, "--peers", peers, "--secret-file", str(work / "secret")], {}))
        await nodes[node_id].start()
    for node in nodes.values():
        await node.read(lambda machine: machine.revision, S)
    for node_id, node in nodes.items():
        hold_id, attempt_id = HoldId(f"hold-of-{node_id}".ljust(32, "0")), AttemptId(f"at-{node_id}")
        acquire = Acquire(node_id, Mode.EXCLUSIVE, hold_id, attempt_id, ttl_ms=86_400_000)
        await node.submit(acquire, S)
    for node in nodes.values():
        await node.transfer_leadership(None, S)
        await node.add_member("n4", "127.0.0.1:1", S)
        await node.remove_member("n4", S)
    nodes["n1"].channels.publish("redis/0/unlocked", b"1")
    for node in nodes.values():
        await node.stop()
    seen["REFUSED"] = msgspec.msgpack.encode((int(FrameKind.REFUSED), 0, refusal())).hex()
    return seen


def refusal() -> Objection:
    """Return why a node is not let in."""
    return Objection("it was removed", is_final=True, kind="removed")


def messages() -> dict[str, str]:
    """Return both handshakes, one that is let in and one that is refused."""
    exchange = HandshakeState("n1", "n2", *NONCES)
    stored: dict[str, handshake.Handshake] = {
        "hello": Hello(handshake.PROTOCOL, "n1", "n2", NONCES[0]),
        "challenge": Challenge(NONCES[1]),
        "dialer": exchange.prove(SECRET, b"dialer", Particulars("disk-1", "http://n1", 5, cluster_id="c1")),
        "acceptor": exchange.prove(SECRET, b"acceptor", Particulars("disk-2", "http://n2")),
        "refusal": exchange.refuse(SECRET, refusal()),
    }
    return {name: handshake.encode(message).hex() for name, message in stored.items()}


def member_lists() -> dict[str, str]:
    """Return member lists as they stand in the log and in snapshots."""
    three = {
        f"n{n}": MemberRecord(f"127.0.0.1:700{n}", is_voter=True, disk_id=f"disk-{n}") for n in (1, 2, 3)
    }
    first = Members(three, cluster_id="c" * 32)
    joining = member_list.with_learner(first, "n4", "127.0.0.1:7004")
    grown = member_list.promoted(joining, "n4", "disk-4")
    lists = {
        "first": first,
        "joining": joining,
        "replaced": member_list.without(grown, "n1", "", grown.nodes),
    }
    return {name: member_list.encode(members).hex() for name, members in lists.items()}


def main() -> None:
    """Make everything."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    peers = {"handshake": messages(), "frames": asyncio.run(frames()), "members": member_lists()}
    (directory / "peers.json").write_text(json.dumps(peers, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
