"""What people read of a run: its first line, and the summary at the end."""

import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lab.chaos.faults.fault import Fault
from lab.chaos.gaps import Gap
from lab.chaos.late_leases import LateLeases
from lab.chaos.run import HISTORY_FILE, TIMELINE_FILE, Report
from lab.chaos.targets.target import Target

GAP_TITLES: Final = {
    "any_s": "any node",
    "free_s": "may ask any",
    "bound_s": "bound, whole",
    "broken_s": "bound, hit",
}
"""The columns of the table of gaps: for whom there was no answer for so long."""
SHOWN: Final = 10
"""How many violations are printed; the report has all."""


def first_line(
    target: Target,
    seed: int,
    possible: Mapping[str, type[Fault[Any]]],
    faults: Mapping[str, type[Fault[Any]]],
) -> str:
    """Return target, seed, load of the machine, and what cannot be done here."""
    left_out = sorted(set(faults) - set(possible))
    line = (
        f"chaos: target {target.name}, {len(target.urls())} nodes, seed {seed}, load"
        f" {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores, {len(possible)} faults"
    )
    if left_out:
        line += f"; not here: {', '.join(left_out)}"
    reasons = [f"{ability}: {text}" for ability, text in target.lacking.items()]
    return "\n  ".join([line, *reasons])


def text(report: Report, directory: Path) -> str:
    """Return the summary of a run."""
    operations = ", ".join(f"{count} {outcome}" for outcome, count in sorted(report.operations.items()))
    lines = [
        f"{sum(report.operations.values())} operations in {report.seconds:.0f} s: {operations or 'none'}",
        f"{sum(report.faults.values())} faults, {report.terms} changes of the term",
        *_gap_table(report.gaps),
        *_late(report.late_leases),
    ]
    for violation in report.violations[:SHOWN]:
        ids = f" (operations {', '.join(map(str, violation.operations))})" if violation.operations else ""
        lines.append(f"{violation.verdict}: {violation.checker}: {violation.text}{ids}")
    if len(report.violations) > SHOWN:
        lines.append(f"and {len(report.violations) - SHOWN} more; see report.json")
    lines += [f"problem: {problem}" for problem in report.problems]
    lines.append(f"{_verdict(report)}; the history is {directory / HISTORY_FILE}")
    if report.exit_code != 0:
        lines.append(f"to look at it in a browser: {directory / TIMELINE_FILE}")
    return "\n".join(lines)


def _verdict(report: Report) -> str:
    if report.exit_code == 0:
        return "clean"
    if report.exit_code == 1:
        return "A PROMISE WAS BROKEN"
    reasons = {"above the budget": report.problems, "undecided": report.violations}
    return ", and ".join(reason for reason, found in reasons.items() if found)


def _gap_table(gaps: list[Gap]) -> list[str]:
    """Return the worst gaps of each fault."""
    if not gaps:
        return []
    by_fault: dict[str, list[Gap]] = defaultdict(list)
    for gap in gaps:
        by_fault[gap.fault].append(gap)
    head = "".join(f"{title:>13}" for title in GAP_TITLES.values())
    lines = [f"  {'fault':20} times{head}   unknown   (s, worst)"]
    for name, found in sorted(by_fault.items()):
        worst = [
            max((wait for gap in found if (wait := getattr(gap, field)) is not None), default=None)
            for field in GAP_TITLES
        ]
        errors = sum(gap.errors for gap in found)
        waits = "".join(f"{_seconds(wait):>13}" for wait in worst)
        lines.append(f"  {name:20} {len(found):5d}{waits}   {errors:7d}")
    return lines


def _late(late: LateLeases) -> list[str]:
    """Return how late the next holders were when leases ended."""
    if not late.count:
        return []
    times = f"{late.median_s:.3f} s (median), {late.worst_s:.3f} s (worst)"
    return [f"{late.count} leases were waited for to their end; the next holder was late by {times}"]


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
