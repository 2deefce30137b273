"""What a client knows of the commands that it has numbered on its stream: asked, told, acknowledged."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Final

from lockstate.words.commands.holds import Convert
from lockstate.words.commands.streams import NumberedCommand
from lockstate.words.wanted import Wanted

RANGES_MAX: Final = 8
"""How many ranges of numbers a frame acknowledges."""
HASTY_CHANCE: Final = 0.1
"""That what still waits is among them, which a node does not forget for that."""
FRAME_MAX: Final = 30
"""Commands in one frame, when all that is not answered is sent again."""


@dataclass(slots=True)
class Wish:
    """A command with a number. `since_us` is a true time before which it was not asked for."""

    command: NumberedCommand
    since_us: int
    before: tuple[Wanted, ...] = ()
    """Of a conversion: what the hold was of."""
    is_filled: bool = False
    """Whether the node fills in its ids, each time that it is sent."""
    is_waiting: bool = False
    is_final: bool = False
    is_hasty: bool = False
    """Whether it was acknowledged while it waited: once it has ended, it may be forgotten."""

    @property
    def is_acquiring(self) -> bool:
        """Whether it waits for a hold that is not there yet."""
        return self.is_waiting and not isinstance(self.command, Convert)


@dataclass(slots=True)
class StreamNumbers:
    """The numbers of one session that the client has not acknowledged yet."""

    wishes: dict[int, Wish] = field(default_factory=dict)
    next: int = 1
    acked: set[int] = field(default_factory=set)
    """Those it has acknowledged, as long as it does not know that this was heard. It asks for none again."""

    def add(self, wish: Wish) -> int:
        """Give a command the next number."""
        number = self.next
        self.wishes[number] = wish
        self.next += 1
        return number

    def resumed(self, last: int, *, gives_up: bool) -> None:
        """Go on behind `last`: what was not applied is asked for again, or given up, its numbers with it."""
        for wish in self.wishes.values():
            wish.is_waiting = False
        if gives_up:
            for number in range(last + 1, self.next):
                self.wishes.pop(number, None)
            self.next = last + 1

    def again(
        self, random: Random, attempt: Callable[[NumberedCommand], NumberedCommand]
    ) -> Iterator[tuple[int, tuple[NumberedCommand, ...]]]:
        """Return what to send again, as first numbers and commands: all that has no final answer, and others.

        `attempt` makes another attempt of a command whose ids the node fills in.
        """
        unsure = [number for number, wish in self.wishes.items() if not wish.is_final]
        if not unsure:
            return
        begin = min(unsure)
        if random.random() < 0.5:
            begin = random.randint(min(self.wishes), begin)
        run: list[int] = []
        asked = [number for number, wish in self.wishes.items() if not (wish.is_final and wish.is_hasty)]
        for number in sorted(number for number in asked if number >= begin):
            if run and (number != run[-1] + 1 or len(run) >= random.randint(1, FRAME_MAX)):
                yield run[0], self._commands(run, attempt)
                run = []
            run.append(number)
        yield run[0], self._commands(run, attempt)

    def _commands(
        self, run: list[int], attempt: Callable[[NumberedCommand], NumberedCommand]
    ) -> tuple[NumberedCommand, ...]:
        wishes = [self.wishes[number] for number in run]
        return tuple([attempt(wish.command) if wish.is_filled else wish.command for wish in wishes])

    def acknowledge(self, random: Random, *, is_again: bool = False) -> tuple[tuple[int, int], ...]:
        """Return ranges of numbers whose final answers were seen: not of all of them, and some once more.

        While frames are sent again no others are: they may be in one of these.
        """
        if not is_again and random.random() < 0.7:
            seen = [number for number, wish in self.wishes.items() if wish.is_final]
            for number in random.sample(seen, random.randint(0, len(seen))):
                del self.wishes[number]
                self.acked.add(number)
        acked = set(self.acked)
        if not is_again and random.random() < HASTY_CHANCE:
            for number, wish in self.wishes.items():
                if wish.is_acquiring:
                    wish.is_hasty = True
                    acked.add(number)
        return tuple(_ranges(sorted(acked)))[:RANGES_MAX]

    def heard(self, acked: Iterable[tuple[int, int]]) -> None:
        """Note that a frame with these ranges came into effect."""
        for first, last in acked:
            self.acked.difference_update(range(first, last + 1))


def _ranges(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Return the numbers as ranges, the first and the last of each."""
    first = last = 0
    for number in numbers:
        if first and number == last + 1:
            last = number
            continue
        if first:
            yield first, last
        first = last = number
    if first:
        yield first, last
