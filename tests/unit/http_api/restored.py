"""What the directory of a restored node has."""

from pathlib import Path

from cluster.consensus.member_list import Members
from cluster.refounding import Place, survivor
from lockstate.machine import LockMachine


def state_in(path: Path) -> tuple[LockMachine, Members, Place]:
    """Return state and members in a data directory, and the last entry of its log."""
    with survivor(path) as left:
        machine, members = left.state()
        return machine, members, left.last
