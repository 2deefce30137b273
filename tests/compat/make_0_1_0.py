"""How tests/compat/stored/0.1.0 was made: by release 0.1.0 itself. It is not run again.

    git archive $(cat tests/compat/previous_release.txt) | tar -x -C OLD
    cp tests/compat/{make_0_1_0,values}.py OLD
    cd OLD && PYTHONPATH=OLD python make_0_1_0.py WHERE/tests/compat/stored/0.1.0

Modules are imported by the names that they had in that release.
"""

import asyncio
import importlib
import json
import shutil
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

ENTRIES = 150
SEED = 19
SECRET = b"the secret of a stored cluster"
NONCES = (bytes(range(32)), bytes(range(32, 64)))
S = 20.0


def old(name: str) -> Any:
    """Return a module of the old release."""
    return importlib.import_module(name)


plain = old("values").plain
codec, snapshot = old("lockstate.codec"), old("lockstate.snapshot")
LockMachine = old("lockstate.machine").LockMachine


def history(directory: Path) -> None:
    """Store entries with every command, what each did, and a snapshot with a row in every table."""
    machine, steps, best = LockMachine(), [], b""
    entries = old("tests.property.test_totality").History(SEED, machine)
    kinds = set()
    for _ in range(ENTRIES):
        data = entries.entry()
        entry = codec.decode_entry(data)
        kinds |= {type(command) for batch in entry.batches for command in batch.commands}
        outcome = plain(machine.apply(entry))
        steps.append({"entry": data.hex(), "outcome": outcome, "digest": snapshot.digest(machine)})
        stored = snapshot.encode(machine)
        if all(msgspec.msgpack.decode(stored)[5]):
            best = stored
    assert len(kinds) == 19, "every command, and one that cannot be decoded"
    assert best
    lines = ",\n".join(json.dumps(step, ensure_ascii=True) for step in steps)
    (directory / "history.json").write_text(f"[\n{lines}\n]\n")
    (directory / "snapshot").write_bytes(best)


async def data_directory(directory: Path) -> None:
    """Store what a lone node leaves behind: identity, journal, snapshot, and what it would answer."""
    work = Path(tempfile.mkdtemp())
    commands, modes = old("lockstate.commands"), old("lockstate.modes")
    flags = ["--http", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--compact-entries", "100"]
    config = old("cluster.config").load(["--data-dir", str(work / "n"), *flags], {})
    for _ in range(2):
        node = old("cluster.node").Node(config)
        await node.start()
        first = (await node.read(lambda machine: machine.next_token, S)) - 1
        for number in range(first, first + 90):
            name, hold = f"locks/{number}", f"hold-{number}"
            await node.submit(
                commands.Acquire(name, modes.Mode.EXCLUSIVE, hold, "at", ttl_ms=86_400_000, request_id=hold),
                S,
            )
        await node.submit(commands.Release(f"hold-{first}"), S)
        await asyncio.sleep(2)
        machine, core = node.machine, node.core
        facts = {
            "revision": machine.revision,
            "next_token": machine.next_token,
            "digest": snapshot.digest(machine),
            "holds": sorted([hold.name, hold.token] for hold in machine.state.holds.values()),
            "term": core.replica.term,
            "last_index": core.replica.last_index,
            "disk_id": core._datadir.disk_id,
        }
        await node.stop()
    (work / "n" / "lock").unlink()
    assert (work / "n" / "snapshot").exists()
    # Prepared space is zeros: they compress well.
    shutil.make_archive(str(directory / "data_directory"), "xztar", work / "n")
    (directory / "data_directory.json").write_text(json.dumps(facts, indent=1) + "\n")


def _free_ports(count: int) -> list[int]:
    probes = [socket.socket() for _ in range(count)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


async def frames() -> dict[str, str]:
    """Return one frame of each kind, and of each Raft message, as three nodes sent them to each other."""
    seen: dict[str, str] = {}
    link = old("cluster.link")
    send = link.Link.send

    def note(self: Any, kind: Any, body: Any) -> None:
        name = kind.name
        if name == "RAFT":
            name += f" {body['type']}" + (" with entries" if body.get("entries") else "")
        if name not in seen or name.endswith("with entries"):
            seen[name] = msgspec.msgpack.encode((int(kind), body)).hex()
        send(self, kind, body)

    link.Link.send = note
    work = Path(tempfile.mkdtemp())
    (work / "secret").write_bytes(SECRET)
    peers = ",".join(f"n{n}=127.0.0.1:{port}" for n, port in enumerate(_free_ports(3), 1))
    nodes = {}
    commands, modes = old("lockstate.commands"), old("lockstate.modes")
    for node_id in ("n1", "n2", "n3"):
        flags = ["--node-id", node_id, "--data-dir", str(work / node_id), "--http", "127.0.0.1:0"]
        flags += ["--peers", peers, "--secret-file", str(work / "secret")]
        nodes[node_id] = old("cluster.node").Node(old("cluster.config").load(flags, {}))
        await nodes[node_id].start()
    for node in nodes.values():
        await node.read(lambda machine: machine.revision, S)
    for node_id, node in nodes.items():
        await node.submit(
            commands.Acquire(node_id, modes.Mode.EXCLUSIVE, node_id, "at", ttl_ms=86_400_000), S
        )
    for node in nodes.values():
        await node.transfer_leadership(None, S)
        await node.add_member("n4", "127.0.0.1:1", S)
        await node.remove_member("n4", S)
    for node in nodes.values():
        await node.stop()
    objection = old("cluster.peer_auth").Objection("it was removed", True)
    seen["REFUSED"] = msgspec.msgpack.encode((int(link.Kind.REFUSED), objection)).hex()
    return seen


def handshake() -> dict[str, str]:
    """Return both handshakes, one that is let in and one that is refused."""
    auth = old("cluster.peer_auth")
    exchange = auth.Exchange("n1", "n2", *NONCES)
    messages = {
        "hello": auth.Hello(auth.PROTOCOL, "n1", "n2", NONCES[0]),
        "challenge": auth.Challenge(NONCES[1]),
        "dialer": exchange.prove(SECRET, b"dialer", auth.Particulars("disk-1", "http://n1", 5)),
        "acceptor": exchange.prove(SECRET, b"acceptor", auth.Particulars("disk-2", "http://n2")),
        "refusal": exchange.refuse(SECRET, auth.Objection("it was removed", True)),
    }
    return {name: auth.encode(message).hex() for name, message in messages.items()}


def member_lists() -> dict[str, str]:
    """Return member lists as they stand in the log and in snapshots."""
    members = old("cluster.members")
    three = {f"n{n}": members.Member(f"127.0.0.1:700{n}", True, f"disk-{n}") for n in (1, 2, 3)}
    lists = {
        "first": members.Members(three),
        "joining": members.Members({**three, "n4": members.Member("127.0.0.1:7004", False)}, {}, 1),
        "replaced": members.Members(
            {"n2": three["n2"], "n3": three["n3"], "n4": members.Member("127.0.0.1:7004", True, "disk-4")},
            {"disk-1": "n1"},
            3,
        ),
    }
    return {name: members.encode(value).hex() for name, value in lists.items()}


def main() -> None:
    """Make everything."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    history(directory)
    asyncio.run(data_directory(directory))
    peers = {"handshake": handshake(), "frames": asyncio.run(frames()), "members": member_lists()}
    (directory / "peers.json").write_text(json.dumps(peers, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
