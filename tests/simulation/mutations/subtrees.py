"""Defects of what holds cover beside their own names: subtrees, and namespaces around them."""

from collections.abc import Iterator
from typing import Final

from lockstate.reads import views
from lockstate.rules.holds import changes, ends, grants, reentry
from lockstate.tables import blockers
from lockstate.tables.delays import set_delay
from lockstate.tables.records import Hold
from lockstate.tables.state import State
from lockstate.words.modes import Scope
from tests.simulation.mutations.mutation import Mutation, Surroundings, replaced, together

_TREE: Final = Surroundings(
    minutes=2,
    client_settings={"vocabulary_share": 0.9, "think_s": 0.15, "names": ("n0", "n0/n1", "n0/n2", "n0/n1/n3")},
)


def _set_delay_of_the_name(state: State, name: str, _scope: Scope, delay_ms: int, principal: str) -> None:
    """Forget that a delay covers a subtree."""
    set_delay(state, name, Scope.NODE, delay_ms, principal)


def _holds_of_the_name(state: State, name: str) -> Iterator[tuple[str, Hold]]:
    """Show who has a name, and not who has a subtree around it."""
    return ((above, hold) for above, hold in _covering_holds(state, name) if above == name)


_covering_holds = blockers.covering_holds


def _delay_as_asked(_state: State, hold: Hold) -> int:
    """Let holds have the delays that they ask for."""
    return hold.details.lock_delay_ms


SUBTREES: Final = (
    Mutation(
        name="delay-of-a-subtree-covers-its-name",
        sentence="The delay that a subtree leaves keeps nobody from the names in it.",
        found_by=("reply", "model-state", "model-events", "delay-kept"),
        apply=replaced(ends, "set_delay", _set_delay_of_the_name),
        surroundings=_TREE,
    ),
    Mutation(
        name="subtree-not-shown",
        sentence="A read of a name does not show who holds a subtree that it lies in.",
        found_by=("read-view", "reply", "model-state"),
        apply=replaced(views, "covering_holds", _holds_of_the_name),
        surroundings=_TREE,
    ),
    Mutation(
        name="delay-of-a-namespace-not-kept",
        sentence="Holds in a namespace have a shorter lock-delay than it allows.",
        found_by=("reply", "model-state", "model-events", "delay-kept"),
        apply=together(
            *[replaced(module, "delay_of", _delay_as_asked) for module in (grants, changes, reentry)]
        ),
        surroundings=_TREE,
    ),
)
