"""The plot of `scripts/bench peers`: bars as SVG, written by hand so that it needs no library.

Of one worker it shows how long an acquire takes, of several how much they do together.
"""

from collections.abc import Sequence
from typing import Final
from xml.sax.saxutils import escape

from lab.peers import ours, report
from lab.peers.measure import Row

_WIDTH: Final = 840
_LEFT: Final = 310
"""Where bars begin; their titles are to the left."""
_RIGHT: Final = 200
"""For the figures behind the longest bar."""
_BAR, _STEP, _TOP = 20, 28, 34
_GAP: Final = 40
_FOOT: Final = 24
_STYLE: Final = (
    "text{font:13px sans-serif;fill:#333}.title{font-weight:bold}.note{font-size:11px;fill:#666}"
    ".ours{fill:#2f6fb3}.peer{fill:#a9b4c0}.p99{opacity:.4}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.note{fill:#999}.peer{fill:#6b7785}}"
)


def svg(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Return the plot: bars for each test, and lines of notes below."""
    parts: list[str] = []
    top = 0
    for each in report.by_test(rows):
        parts += _group(each, top)
        top += _TOP + _STEP * len(each) + _GAP - _STEP + _BAR
    for number, note in enumerate(notes):
        parts.append(f'<text class="note" x="8" y="{top + number * 16}">{escape(note)}</text>')
    height = top + len(notes) * 16 + _FOOT - 16
    size = f'viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">',
            "<title>Time of an acquire, and cycles of acquire and release a second, by system</title>",
            f"<style>{_STYLE}</style>",
            *parts,
            "</svg>",
            "",
        ]
    )


def _group(rows: Sequence[Row], top: int) -> list[str]:
    """Return the bars of one test, the longest as long as there is room."""
    test = rows[0].test
    if test.is_contended:
        what, bars = "hand-overs a second", _throughput
    elif test.workers == 1:
        what, bars = "how long an acquire takes (pale: 99th percentile)", _latency
    else:
        what, bars = "cycles of acquire and release a second", _throughput
    longest = max(bars(row)[0][-1] for row in rows) or 1
    parts = [f'<text class="title" x="8" y="{top + 20}">{escape(test.title)}: {what}</text>']
    for number, row in enumerate(rows):
        y = top + _TOP + number * _STEP
        values, figures = bars(row)
        lengths = [value / longest * (_WIDTH - _LEFT - _RIGHT) for value in values]
        kind = "ours" if row.way.startswith(ours.NAME) else "peer"
        nodes = "1 node" if row.nodes == 1 else f"{row.nodes} nodes"
        parts.append(
            f'<text x="{_LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(row.title)} ({nodes})</text>'
        )
        for length, tail in zip(lengths, ("", " p99"), strict=False):
            size = f'x="{_LEFT}" y="{y}" width="{length:.1f}" height="{_BAR}" rx="2"'
            parts.append(f'<rect class="{kind}{tail}" {size}/>')
        parts.append(f'<text x="{_LEFT + lengths[-1] + 6:.1f}" y="{y + 15}">{figures}</text>')
    return parts


def _throughput(row: Row) -> tuple[list[float], str]:
    """Return the value of one bar, and the figures behind it."""
    return [row.cycles_per_s], f"{row.cycles_per_s:,.0f} a second, p50 {row.acquire_p50_ms:.1f} ms"


def _latency(row: Row) -> tuple[list[float], str]:
    """Return the values of two bars, one over the other, and the figures behind them."""
    p50_ms, p99_ms = row.acquire_p50_ms, row.acquire_p99_ms
    return [p50_ms, p99_ms], f"{p50_ms:.2f} ms, p99 {p99_ms:.2f} ms"
