"""A page that shows a history: a lane for each client and each node, faults shaded, objections marked.

The page is one file without anything from elsewhere: the data stands in it as JSON, and a small script draws
it on a canvas. The wheel zooms, dragging moves, a click on an operation shows all of it.
"""

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Final

from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation

PAGE: Final = Path(__file__).with_name("timeline.html")
OPERATIONS_MAX: Final = 100_000
"""More are left out, the farthest from the first violation first: a browser must be able to draw them."""


def write_timeline(history: History, violations: Sequence[Violation], path: Path) -> None:
    """Write the page of a history. Raises OSError."""
    path.write_text(page(history, violations), "utf-8")


def page(history: History, violations: Sequence[Violation]) -> str:
    """Return the page of a history."""
    header = history.header
    title = f"chaos: {header.target}, seed {header.seed}"
    data = json.dumps(document(history, violations), separators=(",", ":"))
    return Template(PAGE.read_text("utf-8")).substitute(
        title=escape(title),
        # No name that a client chose can end the element that the data stands in.
        data=data.replace("<", "\\u003c"),
    )


def document(history: History, violations: Sequence[Violation]) -> dict[str, Any]:
    """Return what the page draws; times are milliseconds from the first moment of the history."""
    begin_ns = history.begin_ns

    def ms(at_ns: int) -> float:
        return round((at_ns - begin_ns) / 1e6, 3)

    chosen = _chosen(history, violations)
    nodes = sorted(history.header.nodes)
    clients = sorted({operation.client for operation in chosen}, key=_natural)
    lanes = {name: number for number, name in enumerate([*nodes, *clients])}
    blamed = {operation_id for violation in violations for operation_id in violation.operations}
    return {
        "lanes": [*nodes, *clients],
        "nodes": len(nodes),
        "end": ms(history.end_ns),
        "left_out": len(history.operations) - len(chosen),
        "faults": [
            {
                "what": fault.what,
                "where": fault.where,
                "lanes": [lanes[place] for place in fault.where if place in lanes],
                "begin": ms(fault.begin_ns),
                "end": ms(fault.end_ns),
            }
            for fault in history.faults
        ],
        "operations": [
            {
                "id": operation.id,
                "lane": lanes[operation.client],
                "node": lanes.get(operation.node, -1),
                "kind": operation.kind,
                "name": operation.name,
                "begin": ms(operation.call_ns),
                "end": ms(operation.return_ns),
                "outcome": operation.outcome,
                "blamed": operation.id in blamed,
                "text": _text(operation),
            }
            for operation in chosen
        ],
        "violations": [
            {
                "at": ms(violation.at_ns) if violation.at_ns else 0,
                "checker": violation.checker,
                "verdict": violation.verdict,
                "text": violation.text,
                "operations": violation.operations,
            }
            for violation in violations
        ],
    }


def _chosen(history: History, violations: Sequence[Violation]) -> list[Operation]:
    """Return the operations to draw, in order."""
    if len(history.operations) <= OPERATIONS_MAX:
        return history.operations
    centre_ns = min((violation.at_ns for violation in violations), default=history.end_ns)
    nearest = sorted(history.operations, key=lambda item: abs(item.call_ns - centre_ns))[:OPERATIONS_MAX]
    return sorted(nearest, key=lambda item: item.call_ns)


def _text(operation: Operation) -> str:
    """Return what is shown of an operation that somebody asks about."""
    parts = [f"attempts {operation.attempts}, lost {operation.lost}"]
    parts += [operation.code] if operation.code else []
    parts.append(f"asked {json.dumps(operation.arguments)}")
    parts.append(f"told {json.dumps(operation.result)}")
    return "; ".join(parts)


def _natural(name: str) -> tuple[str, int]:
    """Return a key that sorts client-2 before client-10."""
    head, _, tail = name.rpartition("-")
    return (head, int(tail)) if tail.isdigit() else (name, 0)
