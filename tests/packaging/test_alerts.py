"""The alerts for Prometheus: each says what to do, has a test, and rests on metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any, Final

import yaml

ROOT = Path(__file__).resolve().parents[2]
MANUAL: Final = (ROOT / "docs/operating.md").read_text()
RULES: Final[list[dict[str, Any]]] = [
    rule
    for group in yaml.safe_load((ROOT / "deploy/prometheus/rules.yaml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS: Final = {rule["alert"] for rule in RULES}
TESTS: Final[list[dict[str, Any]]] = yaml.safe_load((ROOT / "deploy/prometheus/tests.yaml").read_text())[
    "tests"
]
SUFFIXES: Final = re.compile(r"_bucket$")
PATTERN: Final = re.compile(r"holdfast_\w*\(\w+(?:\|\w+)*\)\w*|holdfast_\w+")
"""A metric in an expression, or several in one with alternatives."""


def metrics_of(expression: str) -> set[str]:
    """Return the metrics that an expression names."""
    found: set[str] = set()
    for word in PATTERN.findall(expression):
        before, bracket, rest = word.partition("(")
        choices, _, after = rest.partition(")")
        found |= {before + choice + after for choice in choices.split("|")} if bracket else {word}
    return {SUFFIXES.sub("", name) for name in found}


def section(title: str) -> str:
    """Return a section of the manual."""
    return MANUAL.split(f"\n### {title}\n")[1].split("\n### ")[0]


def test_expressions_are_taken_apart() -> None:
    """Also those that name several metrics at once."""
    assert metrics_of("rate(holdfast_a_bucket[5m]) > holdfast_b") == {"holdfast_a", "holdfast_b"}
    assert metrics_of('{__name__=~"holdfast_(x|y)_end"}') == {"holdfast_x_end", "holdfast_y_end"}


def test_alerts_rest_on_metrics_of_the_manual() -> None:
    """The table of the manual has what nodes serve, which another test compares."""
    known = set(re.findall(r"`(holdfast_\w+)`", section("Metrics")))
    named = set().union(*[metrics_of(rule["expr"]) for rule in RULES])
    assert len(named) > 20, "the expressions are read"
    assert named <= known, named - known


def test_the_manual_says_what_to_do_about_each() -> None:
    """In one table; nothing else is in it."""
    rows = [line.split("|")[1] for line in section("Alerts").splitlines() if line.startswith("| `Holdfast")]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(told) == sorted(ALERTS)


def test_each_alert_is_fired_by_a_test() -> None:
    """And a cluster that is well fires none, with every metric that alerts look at."""
    fired = {
        name
        for test in TESTS
        for sample in test["promql_expr_test"][0]["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    assert fired == ALERTS
    well = TESTS[0]
    assert not well["promql_expr_test"][0]["exp_samples"]


def test_alerts_are_tested_with_the_labels_that_nodes_give() -> None:
    """Those of the manual's rows: an expression that joins two metrics fires only if both have them."""
    rows = [line for line in MANUAL.splitlines() if line.startswith("| `holdfast_")]
    of_paths = {"kind", "path"}  # said once, above the table of waits and holds
    of_prometheus = {"job", "instance", "le"}
    for series in [one["series"] for test in TESTS for one in test["input_series"]]:
        name, _, labels = series.partition("{")
        if name == "up":
            continue
        (row,) = [row for row in rows if f"`{SUFFIXES.sub('', name)}`" in row.split("|")[1]][:1]
        unsaid = set(re.findall(r"(\w+)=", labels)) - of_prometheus - of_paths
        told = row.partition("|")[2].partition("|")[2]
        assert all(f"`{label}`" in told or f"by `{label}`" in told for label in unsaid), (series, row)


def test_each_alert_says_how_urgent_it_is() -> None:
    """And whom it is about."""
    for rule in RULES:
        assert rule["labels"]["severity"] in {"page", "ticket"}, rule["alert"]
        assert rule["annotations"]["summary"], rule["alert"]


def test_the_dashboard_rests_on_metrics_of_the_manual() -> None:
    """And shows them of one cluster: each expression asks for its job."""
    panels = json.loads((ROOT / "deploy/grafana/holdfast.json").read_text())["panels"]
    expressions = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    known = set(re.findall(r"`(holdfast_\w+)`", MANUAL))
    named = set().union(*map(metrics_of, expressions))
    assert len(named) > 20, "the expressions are read"
    assert named <= known, named - known
    for expression in expressions:
        asked = len(re.findall(r"\b(?:holdfast_\w+|up)\{", expression))
        assert asked == expression.count('job="$job"') > 0, expression
