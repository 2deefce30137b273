"""The checker of the rules, told right and wrong stories."""

import pytest

from tests.simulation.checks.report import Report, Violation
from tests.simulation.checks.rules import Rules


def test_rules_that_every_voter_knows_may_be_followed() -> None:
    """A voter may know more; nodes that follow later tell nothing new."""
    report = Report()
    rules = Rules(report)
    rules.follow("n1", 2, {"n1": 2, "n2": 3, "n3": 2})
    assert (rules.newest, report.violation) == (2, None)


def test_a_voter_that_does_not_know_the_rules_is_objected_to() -> None:
    """The sentence names who follows what, and who knows less."""
    report = Report()
    with pytest.raises(Violation, match="n1 follows rules 2, and n3 knows 1 at most"):
        Rules(report).follow("n1", 2, {"n1": 2, "n2": 2, "n3": 1})
    assert report.violation is not None
    assert report.violation.checker == "rules-known"
