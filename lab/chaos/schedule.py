"""What breaks when: drawn from a seed, or read from a file that a person wrote.

A file has a fault a line, in order, with words between spaces; `#` begins a comment:

    # after   fault             for
    2.0       kill-leader       3.5
    1.0       pause-leader      6      node=n2
    0.5       kill-follower     2      overlap

Each waits so many seconds after the one before has healed and all nodes are ready; with `overlap`, after the
one before has begun, healed or not. `for` is how long it lasts. `name=value` are options of the fault. A last
line `1.0 -` is a pause.
"""

import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from lab.chaos.faults.fault import Fault

BETWEEN_S: Final = (0.5, 3.0)
"""How long a generated schedule waits between two faults, from the shortest to the longest, in seconds."""
PAUSE: Final = "-"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: `after_s` behind the one before, for `lasts_s`."""

    fault: str
    after_s: float
    lasts_s: float
    overlaps: bool = False
    options: dict[str, str] = {}

    def __str__(self) -> str:
        words = [f"{self.after_s:.2f}", self.fault, f"{self.lasts_s:.2f}"]
        words += [f"{name}={value}" for name, value in self.options.items()]
        return " ".join([*words, *(["overlap"] if self.overlaps else [])])


class ScheduleFailure(Exception):
    """A schedule cannot be understood. The message says where and what would do."""


def draw(seed: int, faults: Mapping[str, type[Fault[Any]]], seconds: float) -> list[Step]:
    """Return a schedule of at least `seconds`: the same for the same seed and faults, on every machine.

    Every fault comes once before any comes twice as often as its weight says, so a short run has many kinds.
    """
    chance = random.Random(f"schedule/{seed}")
    names = sorted(name for name, fault in faults.items() if fault.weight > 0)
    steps: list[Step] = []
    planned_s = 0.0
    round_: list[str] = []
    while planned_s < seconds and names:
        if not round_:
            round_ = [name for name in names for _ in range(max(1, round(faults[name].weight)))]
            chance.shuffle(round_)
        name = round_.pop()
        step = Step(
            fault=name,
            after_s=round(chance.uniform(*BETWEEN_S), 2),
            lasts_s=round(chance.uniform(*faults[name].lasts_s), 2),
        )
        planned_s += step.after_s + step.lasts_s
        steps.append(step)
    return steps


def parse(text: str, faults: Mapping[str, type[Fault[Any]]]) -> list[Step]:
    """Return the steps of a file. Raises ScheduleFailure."""
    steps = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if words:
            try:
                steps.append(_step(words, faults))
            except ScheduleFailure as error:
                raise ScheduleFailure(f"line {number}: {error}") from None
    return steps


def written(steps: Sequence[Step]) -> str:
    """Return steps as the text of a file."""
    return "".join(f"{step}\n" for step in steps)


def _step(words: Sequence[str], faults: Mapping[str, type[Fault[Any]]]) -> Step:
    """Return the step of one line."""
    if len(words) < 2:  # noqa: PLR2004 - the two that every line has
        raise ScheduleFailure("a line is: SECONDS FAULT [SECONDS] [name=value ...] [overlap]")
    after_s, name, *rest = words
    if name != PAUSE and name not in faults:
        raise ScheduleFailure(f"there is no fault {name!r}; `scripts/chaos list` names all")
    options = dict(word.split("=", 1) for word in rest if "=" in word)
    others = [word for word in rest if "=" not in word and word != "overlap"]
    if len(others) > 1:
        raise ScheduleFailure(f"what is {others[1]!r}? A line is: SECONDS FAULT [SECONDS] [name=value ...]")
    lasts = others[0] if others else ("0" if name == PAUSE else str(faults[name].lasts_s[0]))
    return Step(
        fault=name,
        after_s=_seconds(after_s),
        lasts_s=_seconds(lasts),
        overlaps="overlap" in rest,
        options=options,
    )


def _seconds(word: str) -> float:
    """Return a time of a line."""
    try:
        value = float(word)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise ScheduleFailure(f"{word!r} is no number of seconds")
    return value
