"""How tests/compat/stored/rules_2 was made: by the release that brought rules 2. It is not run again.

Rules 2 came with entry format 3, snapshot format 5 and protocol 2.

    python -m tests.compat.make_rules_2 tests/compat/stored/rules_2
"""

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from cluster.config import load
from cluster.node import Node
from cluster.peers import handshake
from cluster.peers.handshake import Challenge, HandshakeState, Hello, Objection, Particulars
from lockstate import codec, snapshot
from lockstate.commands import Acquire, Release
from lockstate.ids import AttemptId, HoldId
from lockstate.machine import LockMachine
from lockstate.modes import Mode
from tests.compat.values import plain

STORED = Path(__file__).with_name("stored")
SECRET = b"the secret of a stored cluster"
NONCES = tuple(bytes(range(n, n + 24)) + b"holdfst\x02" for n in (0, 32))
S = 20.0


def history(directory: Path) -> None:
    """Store the entries of 0.1.0 again in format 3, behind one that moves the rules."""
    machine, steps, best = LockMachine(), [], b""
    stored = json.loads((STORED / "0.1.0" / "history.json").read_text())
    entries = [codec.encode_entry(0, [], advance_to=2)]
    for step in stored:
        _, now_ms, batches = msgspec.msgpack.decode(bytes.fromhex(step["entry"]))
        raw = [
            (origin, seqs, [msgspec.msgpack.encode(each) for each in commands])
            for origin, seqs, commands in batches
        ]
        entries.append(codec.encode_entry(now_ms, raw, rules=2))
    for data in entries:
        outcome = plain(machine.apply(codec.decode_entry(data, machine.rules)))
        steps.append({"entry": data.hex(), "outcome": outcome, "digest": snapshot.digest(machine)})
        encoded = snapshot.encode(machine)
        if all(msgspec.msgpack.decode(encoded)[6]):
            best = encoded
    lines = ",\n".join(json.dumps(step, ensure_ascii=True) for step in steps)
    (directory / "history.json").write_text(f"[\n{lines}\n]\n")
    (directory / "snapshot").write_bytes(best)


async def data_directory(directory: Path) -> None:
    """Store what a lone node leaves behind: identity, journal, snapshot, and what it would answer."""
    work = Path(tempfile.mkdtemp())
    flags = ["--http", "127.0.0.1:0", "--peer", "127.0.0.1:0", "--compact-entries", "100"]
    config = load(["--data-dir", str(work / "n"), *flags], {})
    facts: dict[str, Any] = {}
    for _ in range(2):
        node = Node(config)
        await node.start()
        first = (await node.read(lambda machine: machine.next_token, S)) - 1
        for number in range(first, first + 90):
            hold = HoldId(f"hold-{number}")
            asked = Acquire(f"locks/{number}", Mode.EXCLUSIVE, hold, AttemptId("at"), ttl_ms=86_400_000)
            await node.submit(asked, S)
        await node.submit(Release(HoldId(f"hold-{first}")), S)
        await asyncio.sleep(2)
        machine = node.machine
        facts = {
            "rules": machine.rules,
            "revision": machine.revision,
            "next_token": machine.next_token,
            "digest": snapshot.digest(machine),
            "holds": sorted([hold.name, hold.token] for hold in machine.state.holds.values()),
            "disk_id": json.loads((work / "n" / "identity.json").read_text())["content"]["disk_id"],
        }
        await node.stop()
    (work / "n" / "lock").unlink()
    assert (work / "n" / "snapshot").exists()
    shutil.make_archive(str(directory / "data_directory"), "xztar", work / "n")
    (directory / "data_directory.json").write_text(json.dumps(facts, indent=1) + "\n")


def messages() -> dict[str, str]:
    """Return both handshakes, one that is let in and one that is refused."""
    exchange = HandshakeState("n1", "n2", *NONCES)
    stored: dict[str, handshake.Handshake] = {
        "hello": Hello(1, "n1", "n2", NONCES[0]),
        "challenge": Challenge(NONCES[1]),
        "dialer": exchange.prove(SECRET, b"dialer", Particulars("disk-1", "http://n1", 5, rules=2)),
        "acceptor": exchange.prove(SECRET, b"acceptor", Particulars("disk-2", "http://n2", rules=2)),
        "refusal": exchange.refuse(SECRET, Objection("it was removed", is_final=True)),
    }
    return {name: handshake.encode(message).hex() for name, message in stored.items()}


def frames() -> dict[str, str]:
    """Return the frames of 0.1.0 as protocol 2 has them."""
    stored = json.loads((STORED / "0.1.0" / "peers.json").read_text())["frames"]
    decoder = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])
    return {
        name: msgspec.msgpack.encode((kind, 0, body)).hex()
        for name, (kind, body) in (
            (name, decoder.decode(bytes.fromhex(data))) for name, data in stored.items()
        )
    }


def main() -> None:
    """Make everything."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    history(directory)
    asyncio.run(data_directory(directory))
    peers = {"handshake": messages(), "frames": frames()}
    (directory / "peers.json").write_text(json.dumps(peers, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
