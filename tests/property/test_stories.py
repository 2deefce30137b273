"""Stories: what clients do, in the words of scenarios; the model says what must come of it.

A story has no trace: the model, which was written apart from the machine, judges each result, event and view.
Each line is an entry of its own, and after each the machine restarts from its snapshot. A story ends with an
empty line; its title, `# ...`, is also the title of those without one that follow it.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final

import pytest

from lockstate.machine import LockMachine
from lockstate.words.commands.entries import Entry
from lockstate.words.outcomes import Outcome
from tests.property.machine_with_model import MachineWithModel
from tests.scenarios.runner import Runner
from tests.scenarios.script import Block, parse
from tests.support.vocabulary import plain_command

FOLDER: Final = Path(__file__).parent / "stories"


class ComparedMachine(LockMachine):
    """A machine that is compared with the model and restarts after each entry."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = MachineWithModel()

    def apply(self, entry: Entry) -> Outcome:
        """Apply an entry to all that are compared."""
        commands = [plain_command(command) for batch in entry.batches for command in batch.commands]
        for command in commands:
            self.pair.ids += [
                name for name in (getattr(command, "hold_id", ""), getattr(command, "ticket_id", "")) if name
            ]
        outcome = self.pair.apply_entry(entry)
        self.pair.restore(Random(0))
        self.state = self.pair.machine.state
        return outcome


def stories() -> Iterator[tuple[str, Block]]:
    """Yield all stories, each with where it stands: the file, and the line."""
    for path in sorted(FOLDER.glob("*.txt")):
        for part in parse(path.read_text()):
            if isinstance(part, Block):
                yield f"{path.name}:{part.line_number}", part


STORIES: Final = dict(stories())


@pytest.mark.parametrize("place", STORIES)
def test_story(place: str) -> None:
    """What happens in a story is what the model says."""
    runner = Runner()
    runner.machines = {1: ComparedMachine()}
    for line in STORIES[place].lines:
        runner.run(Block([line], [], STORIES[place].line_number))
