"""The checkers of turns and of snapshot files object to what they are for, and to nothing else."""

from lockstate.words.commands.entries import Tick
from tests.simulation.checks.logs import Committed
from tests.simulation.checks.report import Report
from tests.simulation.checks.scripted_cluster import ScriptedCluster, objects
from tests.simulation.checks.snapshot_files import SnapshotFiles
from tests.simulation.checks.turns import Turns

LATER_US = 2_000_000


def test_calls_that_end_in_turn_pass() -> None:
    """A call that fails before later ones are answered, in another process or after a wait is in order."""
    turns = Turns(Report())
    turns.answered("n1.1", 1, "command", 0)
    turns.failed("n1.1", 2, "command", LATER_US)
    turns.answered("n1.1", 3, "command", LATER_US)
    turns.failed("n1.1", 4, "read", 2 * LATER_US)
    turns.failed("n2.1", 2, "command", 2 * LATER_US)
    turns.failed("n1.1", 1, "wait", 2 * LATER_US)
    turns.answered("n1.1", 9, "read", 2 * LATER_US)
    turns.failed("n1.1", 8, "command", 3 * LATER_US)
    turns.ended("n1.1")
    turns.failed("n1.1", 2, "command", 4 * LATER_US)


def test_a_call_that_was_overtaken() -> None:
    """A command or a read that is given up long after a later call was answered is found."""
    for answered, failed in (("command", "command"), ("command", "read"), ("wait", "command")):
        turns = Turns(Report())
        turns.answered("n1.1", 7, answered, 0)  # type: ignore[arg-type] # one of the kinds
        turns.failed("n1.1", 6, failed, 500)  # type: ignore[arg-type] # one of the kinds
        with objects("in-turn"):
            turns.failed("n1.1", 6, failed, LATER_US)  # type: ignore[arg-type] # one of the kinds


def test_calls_that_wait_without_a_number_may_be_passed() -> None:
    """In a world in which much has to wait for its turn no order of calls is promised."""
    turns = Turns(Report())
    turns.are_kept = False
    turns.answered("n1.1", 7, "command", 0)
    turns.failed("n1.1", 6, "command", LATER_US)


def test_a_snapshot_that_goes_back() -> None:
    """An older snapshot in the place of a newer one is found; a newer, an equal and a first one pass."""
    report = Report()
    files = SnapshotFiles(report, Committed(report))
    files.placed("n1", None, (5, 1))
    files.placed("n1", (5, 1), (5, 1))
    files.placed("n1", (5, 1), (9, 2))
    with objects("snapshot-newer"):
        files.placed("n1", (9, 2), (8, 2))


def test_a_snapshot_of_what_is_not_committed() -> None:
    """A snapshot whose last entry is of another term than the committed one at its index is found."""
    cluster = ScriptedCluster()
    cluster.commit(Tick())
    files = cluster.checkers.snapshot_files
    files.placed("a", None, (2, 1))
    with objects("snapshot-committed"):
        files.placed("b", None, (2, 3))
