"""What `scripts/bench peers` prints: a table with ratios, and the same as JSON."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from lab.peers import ours
from lab.peers.measure import Row, Test

_OURS: Final = {ours.HTTP: "HTTP is", ours.STREAM: "stream is"}
"""The ways that all others are compared with, and the titles of these columns."""
_WIDTH: Final = 11


def median(rows: Sequence[Row]) -> Row:
    """Return the figures of a way over several rounds: each is the median, of errors the sum."""
    assert len({(row.way, row.test) for row in rows}) == 1, "these are of one way and one test"
    figures = {
        name: statistics.median(getattr(row, name) for row in rows)
        for name in Row.__struct_fields__
        if isinstance(getattr(rows[0], name), float)
    }
    errors = [error for row in rows for error in row.errors]
    count = sum(row.errors_count for row in rows)
    return msgspec.structs.replace(rows[0], **figures, errors=errors, errors_count=count)


def medians(rows: Iterable[Row]) -> list[Row]:
    """Return one row for each way and test, in the order in which they came first."""
    found: dict[tuple[str, Test], list[Row]] = {}
    for row in rows:
        found.setdefault((row.way, row.test), []).append(row)
    return [median(each) for each in found.values()]


def by_test(rows: Iterable[Row]) -> list[list[Row]]:
    """Return the rows of each test: own locks first, in the order in which they came first."""
    found: dict[Test, list[Row]] = {}
    for row in rows:
        found.setdefault(row.test, []).append(row)
    return sorted(found.values(), key=lambda each: each[0].is_contended)


def ratios(rows: Sequence[Row], row: Row) -> dict[str, float]:
    """Return how many times the cycles of `row` ours has in the same test, for each of our ways in `rows`."""
    return {
        each.way: each.cycles_per_s / row.cycles_per_s
        for each in rows
        if each.way in _OURS and each.test == row.test and row.cycles_per_s > 0
    }


def table(rows: Sequence[Row]) -> list[str]:
    """Return the lines of the tables, one for each test, with an empty line between them."""
    lines: list[str] = []
    for each in by_test(rows):
        lines += [*([""] if lines else []), *_table(each)]
    return lines


def _table(rows: Sequence[Row]) -> list[str]:
    """Return the table of one test."""
    title = rows[0].test.title
    counted = "grants/s" if rows[0].is_contended else "cycles/s"
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
