"""What a metric is made of: samples to be rendered elsewhere, and the histogram."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final

Sample = tuple[str, str, str, dict[str, str], float]
"""Name, help, type (counter, gauge or histogram), labels, value."""

_SYNC_BOUNDS_S: Final = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


def gauge(name: str, text: str, value: float, **labels: str) -> Sample:
    """Return a present value; its name gets the product's prefix."""
    return f"holdfast_{name}", text, "gauge", labels, float(value)


def counter(name: str, text: str, count: float, **labels: str) -> Sample:
    """Return how often something has happened; its name gets the product's prefix."""
    return f"holdfast_{name}", text, "counter", labels, count


def histogram(
    name: str, text: str, labels: dict[str, str], buckets: Iterable[tuple[str, int]], sum_s: float
) -> Iterator[Sample]:
    """Return the cumulative buckets, sum and count. `buckets` are bounds and how many lie between them."""
    total = 0
    for bound, count in buckets:
        total += count
        yield f"{name}_bucket", text, "histogram", {**labels, "le": bound}, total
    yield f"{name}_sum", text, "histogram", labels, sum_s
    yield f"{name}_count", text, "histogram", labels, total


class Histogram:
    """Counts of observations up to each bound, for one quantity in seconds."""

    def __init__(self, name: str, text: str, bounds_s: tuple[float, ...] = _SYNC_BOUNDS_S) -> None:
        self._name = name
        self._text = text
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._sum_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one observation."""
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self._sum_s += seconds

    def samples(self) -> Iterable[Sample]:
        """Return the cumulative buckets, sum and count."""
        buckets = zip((*map(str, self._bounds_s), "+Inf"), self._counts, strict=True)
        return histogram(self._name, self._text, {}, buckets, self._sum_s)
