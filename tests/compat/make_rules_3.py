"""How tests/compat/stored/rules_3 was made: by the tree that brought rules 3. It is not run again.

Rules 3 brought member lists with a cluster id and a bound on the memory that the state takes.

    python -m tests.compat.make_rules_3 tests/compat/stored/rules_3
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
from lockstate import codec, limits, snapshot
from lockstate.commands import Acquire, Release
from lockstate.ids import AttemptId, HoldId
from lockstate.machine import LockMachine
from lockstate.modes import Mode
from tests.compat.values import plain

STORED = Path(__file__).with_name("stored")
BYTES_MAX = 1 << 32
S = 20.0


def history(directory: Path) -> None:
    """Store the entries of 0.1.0 again, behind those that move the rules and bound the memory.

    After two thirds of them the bound is so low that every command is compared with it.
    """
    machine, steps, best = LockMachine(), [], b""
    stored = json.loads((STORED / "0.1.0" / "history.json").read_text())
    entries = [codec.encode_entry(0, [], advance_to=2)]
    entries.append(codec.encode_entry(0, [], rules=2, advance_to=3, bytes_max=BYTES_MAX))
    for number, step in enumerate(stored):
        _, now_ms, batches = msgspec.msgpack.decode(bytes.fromhex(step["entry"]))
        raw = [
            (origin, seqs, [msgspec.msgpack.encode(each) for each in commands])
            for origin, seqs, commands in batches
        ]
        bytes_max = limits.STATE_BYTES_LEAST if number == len(stored) * 2 // 3 else 0
        entries.append(codec.encode_entry(now_ms, raw, rules=3, bytes_max=bytes_max))
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


def main() -> None:
    """Make everything."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    history(directory)
    asyncio.run(data_directory(directory))


if __name__ == "__main__":
    main()
