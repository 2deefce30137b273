"""The lab of alerts: rules in a hurry, every alert accounted for, and what it objects to."""

import re
import shutil
from contextlib import AbstractContextManager, nullcontext

import pytest
import yaml

from lab.alerts import command
from lab.alerts.faults import FAULTS, NOT_MADE, AlertFault
from lab.alerts.short_rules import shortened
from lab.alerts.watched import RULES, WatchedCluster

RULE = """\
      - alert: A
        expr: increase(a[15m]) > 60 and predict_linear(b[1h], 4 * 3600) > c[5m] and d[30d]
        for: 5m
        labels: {for: 5m}
"""


def test_half_a_minute_is_a_second() -> None:
    """In `for` and in windows, within bounds; nowhere else."""
    assert shortened(RULE).splitlines() == [
        "      - alert: A",
        "        expr: increase(a[30s]) > 60 and predict_linear(b[120s], 4 * 3600) > c[10s] and d[120s]",
        "        for: 10s",
        "        labels: {for: 5m}",
    ]


@pytest.mark.parametrize(("real", "short"), [("15s", "3s"), ("1m", "3s"), ("10m", "20s"), ("1d", "30s")])
def test_waits_are_bounded(real: str, short: str) -> None:
    """One evaluation alone fires nothing, and nobody waits for hours."""
    assert shortened(f"  for: {real}\n") == f"  for: {short}\n"


def test_nothing_else_of_the_real_rules_changes() -> None:
    """All durations get short, and without them the two files are the same."""
    durations = re.compile(r"(?<=for: )\w+$|(?<=\[)\w+(?=\])", re.MULTILINE)
    real = RULES.read_text()
    short = shortened(real)
    assert durations.sub("", short) == durations.sub("", real)
    assert {found[-1] for found in durations.findall(short)} == {"s"}
    assert yaml.safe_load(short)["groups"]


def test_every_alert_has_its_fault_or_a_reason() -> None:
    """None of the rules is forgotten, and none is expected that there is not."""
    alerts = {name.removeprefix(command.PREFIX) for name in re.findall(r"- alert: (\w+)", RULES.read_text())}
    fired = frozenset[str]().union(*(fault.fires for fault in FAULTS))
    assert fired | NOT_MADE.keys() == alerts
    assert not fired & NOT_MADE.keys()
    assert frozenset[str]().union(*(fault.beside for fault in FAULTS)) <= alerts
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)
    assert all(fault.text for fault in FAULTS)


@pytest.mark.parametrize(
    ("fired", "has_ended", "objection"),
    [
        ({"A", "B"}, True, ""),
        ({"A", "B", "C"}, True, ""),
        ({"A"}, True, "silent: B"),
        ({"A", "B", "D"}, True, "unexpected: D"),
        ({"A", "B"}, False, "still firing: some"),
        (set(), True, "silent: A, B"),
    ],
)
def test_what_is_objected_to(fired: set[str], *, has_ended: bool, objection: str) -> None:
    """An alert that did not come, one that should not have, and one that does not end."""

    def broken(_: WatchedCluster) -> AbstractContextManager[None]:
        return nullcontext()

    fault = AlertFault(text="", broken=broken, fires=frozenset("AB"), beside=frozenset("C"))
    assert command.objection(fault, fired, has_ended=has_ended) == objection


def test_without_prometheus_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And starts nothing."""
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert command.main([]) == command.NOT_RUN
    assert "apt-get install prometheus" in capsys.readouterr().err
