"""Runs a node with one deliberate defect of the simulation's list: the lab must notice.

    python -m lab.chaos.defective_node MUTATION [WORDS ...] http_api [ARGUMENTS ...]

What stands before `http_api` is left out, so that the whole command of a node may follow. Nothing of it is in
the product, which has no switch for it. With `none` the node is sound.

A node finds out by itself that its state is not that of the others, and stops. With `+unguarded` behind the
name of the mutation it does not, so that it is left to others to notice.
"""

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Final

from cluster.consensus.divergence import Divergence
from http_api import __main__ as http_api
from tests.simulation.mutations.catalogue import MUTATIONS
from tests.simulation.mutations.mutation import Apply, replaced, together

NONE: Final = "none"
UNGUARDED: Final = "+unguarded"
UNKNOWN: Final = 2


def wrapper(name: str) -> list[str]:
    """Return the words before the command of a node that has this defect. Raises KeyError."""
    defect(name)
    return [sys.executable, "-m", "lab.chaos.defective_node", name]


def defect(name: str) -> Apply:
    """Return what puts a defect in place. Raises KeyError if there is none of this name."""
    if name.endswith(UNGUARDED):
        return together(
            defect(name.removesuffix(UNGUARDED)), replaced(Divergence, "_judge", lambda _divergence: None)
        )
    if name == NONE:
        return nullcontext
    return {mutation.name: mutation.apply for mutation in MUTATIONS}[name]


def node_arguments(words: Sequence[str]) -> list[str]:
    """Return the arguments of the node in the words of its command. Raises ValueError."""
    return list(words[words.index("http_api") + 1 :])


def main(words: Sequence[str]) -> int:
    """Run the node; return its exit code."""
    try:
        name, *command = words
        apply, arguments = defect(name), node_arguments(command)
    except (KeyError, ValueError):
        print(__doc__, file=sys.stderr)
        return UNKNOWN
    with apply():
        return http_api.main(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
