"""The checker of waits objects to a node that keeps the end of a wait to itself, and to nothing else."""

from lockstate.words.ids import HoldId
from lockstate.words.refusals import Reason, Refused
from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.report import Report
from tests.simulation.checks.scripted_cluster import objects
from tests.simulation.checks.told import Told

US = 1_000_000
ENDED = Step(7, 0, wait_ends=[(HoldId("h1"), Refused(Reason.LOCK_HELD, ""))])


def told() -> Told:
    """Return a checker that knows of a wait that ended at revision 7, and of node a that was there at 1 s."""
    checker = Told(Report())
    checker.applied(ENDED)
    checker.reached("a", 6, 0)
    checker.reached("a", 8, US)
    return checker


def test_waits_that_end_unknown_pass() -> None:
    """A wait that goes on, that a node has just seen end, or that a new process knows nothing of may fail."""
    checker = told()
    checker.failed("a", "h2", 9 * US)
    checker.failed("a", "h1", 2 * US)
    checker.failed("b", "h1", 9 * US)
    checker.began_anew("a")
    checker.failed("a", "h1", 9 * US)


def test_a_wait_whose_end_is_not_told() -> None:
    """A wait that is given up long after its node has seen it end is found."""
    with objects("wait-told"):
        told().failed("a", "h1", 3 * US)
