"""How stored/rules_6, rules_7 and rules_8 were made: by the tree before rules 9. It is not run again.

Rules 6 brought what operators override, rules 7 streams, and with rules 8 queues can be followed and holders
are asked to give up. One history leads through all of them: each begins in the middle of what the one before
left.

    python -m tests.compat.make_rules_8 tests/compat/stored
"""

import asyncio
import json
import math
import sys
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from lockstate import codec, snapshot
from lockstate.codec import encode_command, encode_entry
from lockstate.commands import Algorithm, TakeRate
from lockstate.machine import LockMachine
from lockstate.results import Outcome
from tests.compat.make_rules_3 import data_directory
from tests.compat.values import plain
from tests.property.machine_with_model import MachineWithModel

SEED: Final = 39
STEPS: Final = 110
"""Steps under each of them."""
OLDEST, NEWEST = 6, 8
RATE_EVERY: Final = 8
"""After so many entries somebody asks a rate limit, which the model does not know."""
WINDOW_MS: Final = 600_000
BROUGHT: Final = {47, 48, 49, 50, 70, 71, 73, 74, 75}
"""The tags of the commands that came with these rules."""


Step = tuple[bytes, Outcome, str]
"""An entry, what came of it, and the digest of the state then."""


class Recorder(MachineWithModel):
    """Keeps the bytes of all entries that it applies."""

    def __init__(self) -> None:
        super().__init__(OLDEST)
        self.entries = [encode_entry(0, [], rules=rules, advance_to=rules + 1) for rules in range(1, OLDEST)]

    def _apply_bytes(self, data: bytes) -> None:
        super()._apply_bytes(data)
        self.entries.append(data)
        if len(self.entries) % RATE_EVERY == 0:
            self._take_a_rate(len(self.entries))

    def _take_a_rate(self, number: int) -> None:
        asked = TakeRate("mail", 2, WINDOW_MS, list(Algorithm)[number % 3], 1, 50, f"q{number % 4}")
        batch = ("n3", [number], [encode_command(asked)])
        self.entries.append(encode_entry(self.now_ms, [batch], rules=self.state.rules))


def entries() -> list[bytes]:
    """Return a history that begins with rules 6 and goes on with rules 7 and 8."""
    pair, rng = Recorder(), Random(SEED)
    pair.come_back(rng)
    for rules in range(OLDEST, NEWEST + 1):
        for _ in range(STEPS):
            pair.step(rng)
        if rules < NEWEST:
            pair.move_the_rules(rng)
    return pair.entries


def empty_tables(machine: LockMachine) -> int:
    """Return how many tables of a snapshot have no row."""
    return [bool(table) for table in msgspec.msgpack.decode(snapshot.encode(machine))[-1]].count(False)


def store(directory: Path, rules: int, steps: list[Step], fullest: bytes) -> None:
    """Write down what was applied, and the state with rows in most tables."""
    directory.mkdir(parents=True, exist_ok=True)
    told = [
        {"entry": data.hex(), "outcome": plain(outcome, rules), "digest": digest}
        for data, outcome, digest in steps
    ]
    lines = ",\n".join(json.dumps(step, ensure_ascii=True) for step in told)
    (directory / "history.json").write_text(f"[\n{lines}\n]\n")
    (directory / "snapshot").write_bytes(fullest)


def main() -> None:
    """Make everything."""
    directory, machine = Path(sys.argv[1]), LockMachine()
    steps: list[Step] = []
    fullest, fewest = b"", math.inf
    tags: set[object] = set()
    for data in entries():
        entry = codec.decode_entry(data, machine.rules)
        if entry.advance is not None and entry.advance.to == machine.rules + 1 > OLDEST:
            store(directory / f"rules_{machine.rules}", machine.rules, steps, fullest)
            fewest = math.inf
        tags |= {type(command).__struct_config__.tag for batch in entry.batches for command in batch.commands}
        steps.append((data, machine.apply(entry), snapshot.digest(machine)))
        if empty_tables(machine) <= fewest:
            fullest, fewest = snapshot.encode(machine), empty_tables(machine)
    assert tags >= BROUGHT, f"every command that they brought; missing: {BROUGHT - tags}"
    store(directory / f"rules_{machine.rules}", machine.rules, steps, fullest)
    asyncio.run(data_directory(directory / f"rules_{machine.rules}"))


if __name__ == "__main__":
    main()
