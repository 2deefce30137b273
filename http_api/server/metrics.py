"""Metrics in the text format of Prometheus, version 0.0.4."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from cluster.observing.metrics import Sample

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SUFFIXES = ("_bucket", "_sum", "_count")


class RequestCounts:
    """How many calls were answered, by route and status."""

    def __init__(self, others: Callable[[], Iterable[Sample]] = tuple) -> None:
        """Count from now on; `others` are further samples of this face."""
        self._others = others
        self._counts: Counter[tuple[str, str, int]] = Counter()

    def add(self, method: str, path: str, status: int) -> None:
        """Count one answer. Takes the method and path of the route: those of clients have no bound."""
        self._counts[method, path, status] += 1

    def samples(self) -> Iterable[Sample]:
        """Return the counts."""
        for (method, path, status), count in sorted(self._counts.items()):
            labels = {"method": method, "route": path, "status": str(status)}
            yield "holdfast_http_requests_total", "HTTP requests answered.", "counter", labels, count
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
