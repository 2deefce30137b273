"""Metrics in the text format of Prometheus, version 0.0.4."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from cluster.observing.samples import Sample, counter, histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SUFFIXES = ("_bucket", "_sum", "_count")
_BOUNDS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
_LABELS = (*map(str, _BOUNDS_S), "+Inf")


class RequestCounts:
    """How many calls were answered, by route and status."""

    def __init__(self, others: Callable[[], Iterable[Sample]] = tuple) -> None:
        """Count from now on; `others` are further samples of this face."""
        self._others = others
        self._counts: Counter[tuple[str, str, int]] = Counter()
        self._took: dict[tuple[str, str], list[float]] = {}
        """By method and route: how many calls ended within each bound, and the seconds of all."""

    def add(self, method: str, path: str, status: int, took_s: float) -> None:
        """Count one answer. Takes the method and path of the route: those of clients have no bound."""
        self._counts[method, path, status] += 1
        took = self._took.get((method, path))
        if took is None:
            took = self._took[method, path] = [0] * (len(_LABELS) + 1)
        took[bisect_left(_BOUNDS_S, took_s)] += 1
        took[-1] += took_s

    def samples(self) -> Iterable[Sample]:
        """Return the counts."""
        for (method, path, status), count in sorted(self._counts.items()):
            labels = {"method": method, "route": path, "status": str(status)}
            yield counter("http_requests_total", "HTTP requests answered.", count, **labels)
        for (method, path), (*buckets, sum_s) in sorted(self._took.items()):
            labels = {"method": method, "route": path}
            text = "Time to answer HTTP requests, waits in queues included."
            counts = zip(_LABELS, map(int, buckets), strict=True)
            yield from histogram("holdfast_http_request_seconds", text, labels, counts, sum_s)
        yield from self._others()


def render(samples: Iterable[Sample]) -> bytes:
    """Return `samples` as text; those of one metric must follow one another."""
    lines: list[str] = []
    described = ""
    for name, text, kind, labels, value in samples:
        family = _family(name, kind)
        if family != described:
            described = family
            lines.append(f"# HELP {family} {_escaped(text)}")
            lines.append(f"# TYPE {family} {kind}")
        lines.append(f"{name}{_braced(labels)} {_number(value)}")
    lines.append("")
    return "\n".join(lines).encode()


def _family(name: str, kind: str) -> str:
    """Return the name of the metric: the parts of a histogram share one."""
    if kind == "histogram":
        for suffix in _SUFFIXES:
            if name.endswith(suffix):
                return name.removesuffix(suffix)
    return name


def _braced(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_quoted(value)}"' for key, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', '\\"')


def _number(value: float) -> str:
    """Return a number as text, whole ones without a point."""
    return str(int(value)) if isinstance(value, int) or value.is_integer() else repr(float(value))
