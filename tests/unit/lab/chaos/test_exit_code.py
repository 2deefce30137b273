"""What the exit code and the last line of a run say."""

from pathlib import Path

import pytest

from lab.chaos.checkers.violation import Violation
from lab.chaos.late_leases import LateLeases
from lab.chaos.report import text
from lab.chaos.run import Report

BROKEN = Violation(checker="overlap", text="two holders")
UNDECIDED = Violation(checker="linearizability", text="given up", verdict="undecided")


@pytest.mark.parametrize(
    ("violations", "problems", "code", "says"),
    [
        ([], [], 0, "clean;"),
        ([BROKEN, UNDECIDED], ["a gap"], 1, "A PROMISE WAS BROKEN;"),
        ([UNDECIDED], [], 3, "undecided;"),
        ([], ["a gap"], 3, "above the budget;"),
        ([UNDECIDED], ["a gap"], 3, "above the budget, and undecided;"),
    ],
)
def test_exit_code(violations: list[Violation], problems: list[str], code: int, says: str) -> None:
    """A broken promise is worst; what could not be decided counts as neither clean nor broken."""
    report = Report(
        operations={"ok": 1},
        faults={},
        terms=0,
        gaps=[],
        late_leases=LateLeases(count=0, median_s=0.0, worst_s=0.0),
        violations=violations,
        problems=problems,
        seconds=1.0,
    )
    assert report.exit_code == code
    assert f"\n{says}" in text(report, Path("run"))
