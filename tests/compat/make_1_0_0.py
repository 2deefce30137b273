"""How tests/compat/stored/1.0.0 was made: by the release itself. Until that is out, it is made anew.

    python -m tests.compat.make_1_0_0 tests/compat/stored/1.0.0

One random history with every command, what each of its entries did, the last of its states that have rows in
the most tables, and the data directory of a node. Most of the examples of commands are refused, because what
they name is not there.
"""

import asyncio
import json
import shutil
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from cluster.config import load
from cluster.node import Node
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec, limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    DeleteOperation,
    EndOperation,
    GetOperation,
    LockCompare,
    PutOperation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.codec import encode_command, encode_entry
from lockstate.words.commands.admin import HoldRules, PreferLeader, SetNamespace
from lockstate.words.commands.cells import PutCell, TransactCells
from lockstate.words.commands.entries import Command, OnBehalf
from lockstate.words.commands.holds import Acquire, AcquirePermits, Release
from lockstate.words.commands.overrides import Freeze, Revoke
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import OpenSession
from lockstate.words.ids import NO_SESSION, AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm
from lockstate.words.modes import Mode
from lockstate.words.outcomes import Outcome
from lockstate.words.settings import NamespaceSettings
from lockstate.words.wanted import Asking, Uncommon
from tests.compat.values import plain
from tests.property.machine_with_model import MachineWithModel
from tests.support.vocabulary import VOCABULARY

SEED: Final = 2
STEPS: Final = 300
RATE_EVERY: Final = 8
"""After so many entries somebody asks a rate limit, which the model does not know."""
WINDOW_MS: Final = 600_000
S: Final = 20.0

_END: Final[dict[str, Any]] = {"session_id": SessionId("end"), "attempt_id": AttemptId("at")}
DAY_MS: Final = 86_400_000
FIRST: Final[list[Command]] = [
    OpenSession(SessionId("end"), DAY_MS),
    SetNamespace("end", NamespaceSettings(holds=9, ask_after_ms_min=0)),
    Freeze("ended", "it is over", DAY_MS),
    OnBehalf("end", PutCell(b"end", b"v")),
    Acquire("end/a", Mode.EXCLUSIVE, hold_id=HoldId("end-1"), **_END),
    Revoke("end/a", "for the next one", 3_600_000),
    Acquire(
        "end/a",
        Mode.EXCLUSIVE,
        hold_id=HoldId("end-4"),
        wait_ms=DAY_MS,
        uncommon=Uncommon(asks=Asking(DAY_MS - 1, 0)),
        **_END | {"session_id": NO_SESSION, "ttl_ms": DAY_MS},
    ),
    AcquirePermits("end/q", 2, 1, hold_id=HoldId("end-2"), **_END),
    AdvanceFence("end/f", 1),
    OnBehalf("end", AdvanceFence("end/g", 1)),
    TakeRate("end/r", 1, DAY_MS, Algorithm.GCRA),
    TakeRate("end/r", 1, DAY_MS, Algorithm.GCRA, wait_ms=DAY_MS, attempt_id=AttemptId("end-3")),
    HoldRules(is_held=True, reason="until all nodes are new"),
    PreferLeader("n4", "the others are far away"),
    Acquire("end/t", Mode.EXCLUSIVE, hold_id=HoldId("end-5"), attempt_id=AttemptId("at"), ttl_ms=DAY_MS),
    TransactCells(
        (LockCompare("end/t", HoldId("end-5")), CellCompare(b"end", CellField.VERSION, number=1)),
        (
            EndOperation(HoldId("end-5"), "for the next one"),
            TakeOperation("end/u", HoldId("end-6"), "v", OwnerName("ann"), DAY_MS),
            DeleteOperation(b"end/t"),
            PutOperation(b"end", b"w", keeps_lease=True),
        ),
    ),
    TransactCells(
        (LockCompare("end/u"),), (), (RenewOperation(HoldId("end-6"), DAY_MS), GetOperation(b"end"))
    ),
]
"""Something for the tables and fields that seldom have anything, and all that a transaction can do."""

Step = tuple[bytes, Outcome, str]
"""An entry, what came of it, and the digest of the state then."""


class Recorder(MachineWithModel):
    """Keeps the bytes of all entries that it applies."""

    def __init__(self) -> None:
        super().__init__()
        self.entries = [encode_entry(0, [], bytes_max=limits.STATE_BYTES_MAX // 2)]

    def _apply_bytes(self, data: bytes) -> None:
        super()._apply_bytes(data)
        self.entries.append(data)
        if len(self.entries) % RATE_EVERY == 0:
            number = len(self.entries)
            asked = TakeRate("mail", 2, WINDOW_MS, list(Algorithm)[number % 3], 1, 50, f"q{number % 4}")
            self.entries.append(encode_entry(self.now_ms, [("n3", [number], [encode_command(asked)])]))


def entries() -> list[bytes]:
    """Return a history of random commands, behind `FIRST` and one example of each."""
    pair, rng = Recorder(), Random(SEED)
    pair.come_back(rng)
    for _ in range(STEPS):
        pair.step(rng)
    first = [encode_command(command) for command in (*FIRST, *[word.example for word in VOCABULARY.values()])]
    return [encode_entry(0, [("n4", list(range(1, len(first) + 1)), first)]), *pair.entries]


def _rows_count(data: bytes) -> int:
    """Return how many tables of a snapshot have a row."""
    return sum([bool(table) for table in msgspec.msgpack.decode(data)[-1]])


def history(directory: Path) -> None:
    """Store what was applied, and the state in which the most tables had a row."""
    machine, steps, fullest = LockMachine(), list[Step](), b""
    for data in entries():
        steps.append((data, machine.apply(codec.decode_entry(data)), snapshot.digest(machine.state)))
        stored = snapshot.encode(machine.state)
        if not fullest or _rows_count(stored) >= _rows_count(fullest):
            fullest = stored
    told = [
        {"entry": data.hex(), "outcome": plain(outcome), "digest": digest} for data, outcome, digest in steps
    ]
    lines = ",\n".join(json.dumps(step, ensure_ascii=True) for step in told)
    (directory / "history.json").write_text(f"[\n{lines}\n]\n")
    (directory / "snapshot").write_bytes(fullest)


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
            "revision": machine.revision,
            "next_token": machine.next_token,
            "digest": snapshot.digest(machine.state),
            "holds": sorted([hold.name, hold.token] for hold in machine.state.holds.values()),
            "disk_id": json.loads((work / "n" / "identity.json").read_text())["content"]["disk_id"],
        }
        await node.stop()
    assert (work / "n" / "snapshot").exists()
    # Prepared space is zeros: they compress well.
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
