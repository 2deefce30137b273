"""Every way to spoil a clean history is objected to by the checker that it is for."""

from typing import Any

import pytest

from lab.chaos.checkers.catalogue import check_all
from lab.chaos.history import History
from lab.chaos.teeth.spoiler import Spoiler
from lab.chaos.teeth.spoilers import SPOILERS
from tests.unit.lab.chaos.audit_histories import add_audit
from tests.unit.lab.chaos.histories import MS, Script


def clean() -> Script:
    """Return a history with a place for every spoiler."""
    script = Script()
    script.grant("h1", 1, 0, 5).result["revision"] = 1
    script.release("h1", 10, 15).result["revision"] = 2
    script.add("look", "a", 20, 25, result={"holders": []})
    script.grant("h2", 2, 30, 35, ttl=200).result["revision"] = 3
    script.refused("x", 40, 45)
    script.renew("h2", 50, 55, ttl=200)
    script.grant("h3", 3, 60, 300, wait_ms=500).result["revision"] = 4
    script.add("session-open", "s", 0, 5, result={"session": "s", "expires_in_ms": 100, "sent_ns": 0})
    script.add(
        "session-keepalive", "s", 50, 55, session="s", result={"expires_in_ms": 100, "sent_ns": 50 * MS}
    )
    for call, allowed in ((0, True), (10, False)):
        fields: dict[str, Any] = {"limit": 1, "window_ms": 100, "cost": 1}
        script.add("take", "r", call, call + 5, algorithm="gcra", result={"allowed": allowed}, **fields)
    script.add("cell-write", "c", 0, 5, value="v1")
    script.add("cell-write", "c", 10, 15, value="v2", expected="v1")
    script.add("cell-read", "c", 20, 25, result={"value": "v2"})
    for call in (100, 120):
        result = {"holders": [{"owner": "h2", "token": 2}], "queue": [{"owner": "h3"}]}
        script.add("queue", "a", call, call + 5, result=result)
    script.add("watch-connect", "w", 0, 5, segment=0)
    for index, (revision, event, token) in enumerate(
        [(1, "granted", 1), (2, "released", 1), (3, "granted", 2), (4, "expired", 2), (4, "granted", 3)]
    ):
        result = {"index": index, "revision": revision, "event": event, "name": "a", "token": token}
        script.add("watch-event", "", 400 + index, 400 + index, result=result, segment=0)
    add_audit(script)
    script.listing(9_000, 9_100)
    script.node("n1", 7, "d")
    script.node("n2", 7, "d")
    return script


def test_the_history_is_clean() -> None:
    """Nobody objects before it is spoiled."""
    assert check_all(clean().history) == []


@pytest.mark.parametrize("spoiler", SPOILERS, ids=lambda spoiler: spoiler.name)
def test_a_spoiled_history_is_objected_to(spoiler: Spoiler) -> None:
    """By the checker of the row."""
    lines = clean().history.lines
    spoiler.spoil(lines)
    assert spoiler.checker in {found.checker for found in check_all(History(lines))}
