"""How stored/rules_4 and stored/rules_5 were made: by the tree that brought rules 5. It is not run again.

Rules 4 brought cells, and a table for what records have beside their fields; with rules 5 calls say what they
mean. One history leads through both: in the middle of what the older rules left behind, the newer ones begin.

    python -m tests.compat.make_rules_5 tests/compat/stored
"""

import asyncio
import json
import sys
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from lockstate import codec, snapshot
from lockstate.codec import encode_command, encode_entry
from lockstate.commands import Algorithm, TakeRate
from lockstate.machine import LockMachine
from tests.compat.make_rules_3 import data_directory
from tests.compat.values import plain
from tests.property.machine_with_model import MachineWithModel

SEED: Final = 41
STEPS: Final = 120
"""Steps under each of the two."""
OLDER, NEWER = 4, 5
RATE_EVERY: Final = 8
"""After so many entries somebody asks a rate limit, which the model does not know."""
_TABLES: Final = 6
"""The place of the tables in a snapshot of format 5."""


class Recorder(MachineWithModel):
    """Keeps the bytes of all entries that it applies."""

    def __init__(self) -> None:
        super().__init__(OLDER)
        self.entries = [encode_entry(0, [], rules=rules, advance_to=rules + 1) for rules in range(1, OLDER)]

    def _apply_bytes(self, data: bytes) -> None:
        super()._apply_bytes(data)
        self.entries.append(data)
        if len(self.entries) % RATE_EVERY == 0:
            self._take_a_rate(len(self.entries))

    def _take_a_rate(self, number: int) -> None:
        asked = TakeRate("mail", 2, 1_000, list(Algorithm)[number % 3], 1, 50, f"q{number % 4}")
        batch = ("n3", [number], [encode_command(asked)])
        self.entries.append(encode_entry(self.now_ms, [batch], rules=self.state.rules))


def entries() -> list[bytes]:
    """Return a history that begins with rules 4 and goes on with rules 5."""
    pair, rng = Recorder(), Random(SEED)
    pair.come_back(rng)
    for _ in range(STEPS):
        pair.step(rng)
    pair.move_the_rules(rng)
    for _ in range(STEPS):
        pair.step(rng)
    return pair.entries


def store(directory: Path, steps: list[dict[str, object]], best: bytes) -> None:
    """Write down what was applied, and a state with a row in every table that may have one."""
    assert best
    directory.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(step, ensure_ascii=True) for step in steps)
    (directory / "history.json").write_text(f"[\n{lines}\n]\n")
    (directory / "snapshot").write_bytes(best)


def main() -> None:
    """Make everything."""
    directory, machine = Path(sys.argv[1]), LockMachine()
    steps: list[dict[str, object]] = []
    best = {OLDER: b"", NEWER: b""}
    tags: set[object] = set()
    for data in entries():
        entry = codec.decode_entry(data, machine.rules)
        if entry.advance is not None and entry.advance.to == NEWER:
            store(directory / "rules_4", steps, best[OLDER])
        tags |= {type(command).__struct_config__.tag for batch in entry.batches for command in batch.commands}
        outcome = plain(machine.apply(entry), NEWER)
        steps.append({"entry": data.hex(), "outcome": outcome, "digest": snapshot.digest(machine)})
        encoded = snapshot.encode(machine)
        tables = [bool(table) for table in msgspec.msgpack.decode(encoded)[_TABLES]]
        # Under rules 4 nothing could have anything beside its fields yet.
        if machine.rules >= OLDER and tables.count(False) <= NEWER - machine.rules:
            best[machine.rules] = encoded
    assert tags >= set(range(40, 47)), "every command that the two brought"
    store(directory / "rules_5", steps, best[NEWER])
    asyncio.run(data_directory(directory / "rules_5"))


if __name__ == "__main__":
    main()
