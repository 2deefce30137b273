"""What `scripts/bench peers` prints: a table with ratios, and the same as JSON."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from scripts.peers import ours
from scripts.peers.measure import Row

_OURS: Final = {ours.HTTP: "HTTP is", ours.STREAM: "stream is"}
"""The ways that all others are compared with, and the titles of these columns."""
_WIDTH: Final = 11


def median(rows: Sequence[Row]) -> Row:
    """Return the figures of a way over several rounds: each is the median, of errors the sum."""
    assert len({(row.way, row.is_contended) for row in rows}) == 1, "these are of one way"
    figures = {
        name: statistics.median(getattr(row, name) for row in rows)
        for name in Row.__struct_fields__
        if isinstance(getattr(rows[0], name), float)
    }
    errors = [error for row in rows for error in row.errors]
    count = sum(row.errors_count for row in rows)
    return msgspec.structs.replace(rows[0], **figures, errors=errors, errors_count=count)


def medians(rows: Iterable[Row]) -> list[Row]:
    """Return one row for each way, in the order in which they came first."""
    by_way: dict[tuple[str, bool], list[Row]] = {}
    for row in rows:
        by_way.setdefault((row.way, row.is_contended), []).append(row)
    return [median(each) for each in by_way.values()]


def ratios(rows: Sequence[Row], row: Row) -> dict[str, float]:
    """Return how many times the cycles of `row` ours has in the same test, for each of our ways in `rows`."""
    return {
        each.way: each.cycles_per_s / row.cycles_per_s
        for each in rows
        if each.way in _OURS and each.is_contended == row.is_contended and row.cycles_per_s > 0
    }


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the tables: of own locks, and of a contended one."""
    own = [row for row in rows if not row.is_contended]
    contended = [row for row in rows if row.is_contended]
    return [
        *_table(f"Own locks, {own[0].workers} workers" if own else "", own, "cycles/s"),
        *([""] if own and contended else []),
        *_table(f"One lock, {contended[0].workers} waiters" if contended else "", contended, "grants/s"),
    ]


def _table(title: str, rows: Sequence[Row], counted: str) -> list[str]:
    if not rows:
        return []
    width = max(len(text) for text in (title, *(row.title for row in rows))) + 2
    titles = ["nodes", counted, "acquire p50", "p99 ms", "nodes us", "client us", "others %", *_OURS.values()]
    lines = [f"{title:<{width}}" + "".join(f"{text:>{_WIDTH + 1}}" for text in titles)]
    for row in rows:
        compared = ratios(rows, row)
        cells = [
            f"{row.nodes}",
            f"{row.cycles_per_s:.0f}",
            f"{row.acquire_p50_ms:.2f}",
            f"{row.acquire_p99_ms:.2f}",
            f"{row.nodes_us_per_cycle:.0f}",
            f"{row.client_us_per_cycle:.0f}",
            f"{row.others_percent:.0f}",
            *(f"{compared[way]:.2f}x" if way in compared else "-" for way in _OURS),
        ]
        lines.append(f"{row.title:<{width}}" + "".join(f"{cell:>{_WIDTH + 1}}" for cell in cells))
    return lines


def document(
    rows: Sequence[Row], rounds: Sequence[Row], machine: dict[str, Any], skipped: dict[str, list[str]]
) -> dict[str, Any]:
    """Return everything as JSON wants it."""
    return {
        "command": "peers",
        "machine": machine,
        "skipped": skipped,
        "rows": [{**msgspec.to_builtins(row), "ratios": ratios(rows, row)} for row in rows],
        "rounds": [msgspec.to_builtins(row) for row in rounds],
    }
