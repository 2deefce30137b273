"""The overview as HTML: what the node says of itself and its cluster. It can be read without JavaScript."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import jinja2

from cluster.build import this_build
from cluster.observing.status import ClusterStatus
from http_api.ui.activity import KEPT_S
from lockapi.gateway import Gateway

_UNITS: Final = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_TIMES: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_WIDTH, _HEIGHT = 600, 64
"""Size of a chart, in its own units: one for each second of the last ten minutes."""
_WHOLE_FROM: Final = 10
"""The rate from which on its fraction does not matter."""
_GAP_S: Final = 15.0
"""Seconds between two points that a line still joins."""


def public(gateway: Gateway) -> str:
    """Return the page for somebody who has not said who they are: no more than the probes tell anybody."""
    status = gateway.node.status()
    is_ready = status.ready and not gateway.node.is_shutting_down
    return _render(status=None, is_ready=is_ready, troubles=gateway.node.troubles())


def whole(gateway: Gateway, status: ClusterStatus, rates: Sequence[tuple[float, float, float]] | None) -> str:
    """Return the page for a known caller; without `rates` if it may not read the metrics."""
    counts = gateway.node.machine
    return _render(
        status=status,
        is_ready=status.ready and not gateway.node.is_shutting_down,
        troubles=gateway.node.troubles(),
        build=this_build(),
        charts=None if rates is None else _charts(rates),
        next_token=counts.next_token,
    )


def _render(**values: Any) -> str:
    return template().render(**values)


@cache
def template() -> jinja2.Template:
    """Return what renders: every text is escaped, and a name that is missing is a mistake.

    Compiling it takes a while, in which the node does nothing else: so that is done before it serves.
    """
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("http_api.ui"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bytes": byte_text, "time": time_text}
    return environment.get_template("page.html")


def byte_text(count: int) -> str:
    """Return a number of bytes for people."""
    for unit, size in _UNITS:
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} B"


def time_text(time_ms: int) -> str:
    """Return a length of time for people: its largest unit, and the next one."""
    for place, (unit, size_ms) in enumerate(_TIMES):
        if time_ms >= size_ms:
            text = f"{time_ms // size_ms} {unit}"
            if place + 1 < len(_TIMES):
                smaller, smaller_ms = _TIMES[place + 1]
                text += f" {time_ms % size_ms // smaller_ms} {smaller}"
            return text
    return f"{time_ms} ms"


def _charts(rates: Sequence[tuple[float, float, float]]) -> list[Mapping[str, Any]]:
    """Return what is drawn of grants and waits: a title, the newest and the highest value, and lines."""
    return [
        {"title": title, "now": _rate_text(values[-1] if values else 0.0), **_drawn(ages, values)}
        for title, ages, values in (
            ("Grants", [age for age, _, _ in rates], [grants for _, grants, _ in rates]),
            ("Waits", [age for age, _, _ in rates], [waits for _, _, waits in rates]),
        )
    ]


def _drawn(ages: Sequence[float], values: Sequence[float]) -> Mapping[str, Any]:
    """Return the path of a line, that of the area below it, and the value at the top of the chart."""
    top = max([1.0, *values])
    points = [
        (_WIDTH * (1 - age / KEPT_S), _HEIGHT - (_HEIGHT - 4) * value / top)
        for age, value in zip(ages, values, strict=True)
    ]
    runs: list[list[tuple[float, float]]] = []
    for point in points:
        if not runs or point[0] - runs[-1][-1][0] > _GAP_S * _WIDTH / KEPT_S:
            runs.append([])
        runs[-1].append(point)
    line = " ".join("M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in run) for run in runs)
    area = " ".join(
        f"M{run[0][0]:.1f} {_HEIGHT} L"
        + " L".join(f"{x:.1f} {y:.1f}" for x, y in run)
        + f" L{run[-1][0]:.1f} {_HEIGHT} Z"
        for run in runs
    )
    return {
        "line": line,
        "area": area,
        "top": _rate_text(max(values, default=0.0)),
        "width": _WIDTH,
        "height": _HEIGHT,
    }


def _rate_text(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= _WHOLE_FROM or rate == 0 else f"{rate:.1f}"
