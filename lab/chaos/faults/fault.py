"""One thing that breaks, and is whole again."""

import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, TypeVar

from lab.chaos.targets.target import Ability, Target

LASTS_S: Final = (1.0, 4.0)
"""For how long a fault lasts, from the shortest to the longest, in seconds, unless it says otherwise."""

AnyTarget = TypeVar("AnyTarget", bound=Target)


class PromiseBroken(Exception):
    """A fault has seen itself what no cluster may do. The message says what."""


class Fault(ABC, Generic[AnyTarget]):
    """A fault at one moment of a run. `begin` and `end` block, in a thread of the lab.

    `AnyTarget` is what it needs of the target, beside `needs`.
    """

    name: ClassVar[str]
    text: ClassVar[str]
    """What it does, as a line of `scripts/chaos list`."""
    needs: ClassVar[frozenset[Ability]]
    lasts_s: ClassVar[tuple[float, float]] = LASTS_S
    """Between what a generated schedule chooses; (0, 0) for what is over when `begin` returns."""
    weight: ClassVar[float] = 1.0
    """How often a generated schedule has it, beside others; 0: only when it is asked for by name."""
    gap_s_max: ClassVar[float] = 4.0
    """The longest time for which clients that may ask any node may be without an answer, in seconds."""

    def __init__(
        self,
        target: AnyTarget,
        chance: random.Random,
        options: dict[str, Any],
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`chance` is this fault's own, from the seed; `options` come from the schedule."""
        self.target = target
        self.chance = chance
        self.options = options
        self.say = say

    @abstractmethod
    def begin(self) -> list[str]:
        """Break it; return where (nodes, links, clients).

        Raises LabFailure when it cannot be broken, and PromiseBroken.
        """

    @abstractmethod
    def end(self) -> None:
        """Make it whole again; does not wait until all is well. Also called after a `begin` that failed."""

    def some_node(self) -> str:
        """Return the node of the option `node` (an id, `leader` or `follower`), or any."""
        wanted = self.options.get("node", "")
        if wanted == "leader":
            return self.target.leader()
        if wanted == "follower":
            return self.chance.choice(self.target.followers())
        return str(wanted) or self.chance.choice(sorted(self.target.urls()))
