"""The text format of Prometheus."""

import re

from cluster.observing.metrics import NodeMetrics
from cluster.observing.samples import gauge
from http_api.server.metrics import render
from lockstate.words.commands.entries import Entry
from lockstate.words.outcomes import Outcome
from tests.unit.lockstate.machine_driver import MachineDriver

SAMPLE = re.compile(r'(\w+)(\{\w+="(?:[^"\\\n]|\\["\\n])*"(?:,\w+="(?:[^"\\\n]|\\["\\n])*")*\})? [-0-9.e]+')


class Counted(MachineDriver):
    """A machine whose outcomes the metrics of a node count."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics = NodeMetrics(lambda: [gauge("tickets", "Waiting.", 2)])

    def apply(self, entry: Entry) -> Outcome:
        """Apply an entry and count what it did."""
        outcome = super().apply(entry)
        self.metrics.applied(outcome)
        return outcome


def counted(*names: str) -> NodeMetrics:
    """Return the metrics of a node on which these locks were granted, waited for, and expired."""
    driver = Counted()
    for name in names:
        driver.granted(name)
        driver.queued(name)
    driver.pass_to(2_000)
    return driver.metrics


def test_every_line_is_a_sample_of_the_metric_described_above() -> None:
    """Each metric is described once, and its samples follow: buckets, sum and count in one piece."""
    described, kind = "", ""
    seen = set()
    for line in render(counted("a/1", "b").samples()).decode().splitlines():
        if line.startswith("# HELP "):
            described = line.split()[2]
            assert described not in seen
            seen.add(described)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name == described
        else:
            found = SAMPLE.fullmatch(line)
            assert found, line
            endings = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            assert found[1] in {described + ending for ending in endings}
    assert {"holdfast_wait_seconds", "holdfast_hold_seconds", "holdfast_queue_length"} <= seen


def test_a_histogram_has_its_labels_on_every_line() -> None:
    """Waits are told by kind, path and outcome; each bucket includes those below it."""
    lines = render(counted("a/1", "a/2").samples()).decode().splitlines()
    waits = [line for line in lines if line.startswith("holdfast_wait_seconds") and 'path="a"' in line]
    granted = [line for line in waits if 'outcome="granted"' in line]
    assert granted[0] == 'holdfast_wait_seconds_bucket{kind="lock",path="a",outcome="granted",le="0.003"} 0'
    assert granted[-3:] == [
        'holdfast_wait_seconds_bucket{kind="lock",path="a",outcome="granted",le="+Inf"} 2',
        'holdfast_wait_seconds_sum{kind="lock",path="a",outcome="granted"} 4',
        'holdfast_wait_seconds_count{kind="lock",path="a",outcome="granted"} 2',
    ]
    counts = [int(line.rsplit(" ", 1)[1]) for line in granted[:-2]]
    assert counts == sorted(counts)


def test_names_of_clients_cannot_break_the_format() -> None:
    """A path with quotes, backslashes and braces is one label value."""
    lines = render(counted('say "x"\\n{y="z"} 1/1').samples()).decode().splitlines()
    assert 'holdfast_grants_total{kind="lock",path="say \\"x\\"\\\\n{y=\\"z\\"} 1"} 2' in lines
    assert all(line.startswith("#") or SAMPLE.fullmatch(line) for line in lines)
