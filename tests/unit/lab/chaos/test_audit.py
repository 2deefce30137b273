"""The audit as a witness: what clients were told fits it, and what may be right is not objected to."""

from typing import Any

from lab.chaos.checkers.audit import audited
from lab.chaos.checkers.audit_replay import Part, is_up
from lab.chaos.history import Operation
from tests.unit.lab.chaos.audit_histories import add_audit
from tests.unit.lab.chaos.histories import MS, Script


def told() -> Script:
    """Return a history of which everybody tells the same."""
    script = Script()
    add_audit(script)
    return script


def of(script: Script, kind: str, owner: str = "") -> Operation:
    """Return the operation of a kind, on the hold of an owner if there are several."""
    return next(
        item
        for item in script.history.operations
        if item.kind == kind and (not owner or item.arguments.get("owner") == owner)
    )


def texts(script: Script) -> str:
    """Return everything that is objected to."""
    return "\n".join(found.text for found in audited(script.history))


def test_one_story() -> None:
    """A subtree, two kinds at once, a conversion and a force."""
    assert audited(told().history) == []


def test_a_lost_request_may_have_been_carried_out() -> None:
    """Its record needs no answer; a request that was surely refused has no record."""
    script = told()
    get = of(script, "get", "o3")
    get.outcome, get.lost, get.result = "unknown", 1, {}
    assert audited(script.history) == []
    get.outcome, get.lost = "refused", 0
    assert "o3 was granted, for which nobody asked" in texts(script)


def test_a_grant_may_be_taken_back_if_its_client_went_away() -> None:
    """Only if an attempt was lost: else somebody has to give it back."""
    script = told()
    script.lines.remove(of(script, "give-back", "o2"))
    assert "o2 was released, for which nobody asked" in texts(script)
    of(script, "get", "o2").lost = 1
    assert audited(script.history) == []


def test_a_lost_attempt_may_have_been_granted_and_taken_back_before_the_one_that_was_answered() -> None:
    """With another token: nobody heard of the first. If nobody gave it back, it is one too many."""
    script = told()
    of(script, "get", "o3").lost = 1
    audit = of(script, "audit")
    records = audit.result["records"]
    (granted,) = [row for row in records if row[2] == "granted" and row[8] == "o3"]
    first = [[0, 3, event, *granted[3:9], 2.5, ""] for event in ("granted", "released")]
    at = records.index(granted)
    for rows in (first, first[:1]):
        told_of = [*records[:at], *rows, *records[at:]]
        audit.result["records"] = [[number, *row[1:]] for number, row in enumerate(told_of, 1)]
        audit.result["numbers"] = list(range(1, len(told_of) + 1))
        found = texts(script)
        assert ("for which nobody asked" in found) == (len(rows) == 1), found


def test_answers_respect_real_time() -> None:
    """What is told to have happened before something that was over when it was asked for."""
    script = told()
    convert = of(script, "convert")
    convert.call_ns, convert.return_ns = 76 * MS, 79 * MS
    assert "convert u: is at 6 of the audit, behind what was known before" in texts(script)


def test_an_audit_that_is_read_too_late() -> None:
    """Behind a full page with a hole nothing is judged; a page that is not full has none."""
    script = told()
    read = of(script, "audit")
    read.result["numbers"][0] = 0
    assert "leaves records out" in texts(script)
    read.arguments["limit"] = len(read.result["numbers"])
    assert audited(script.history) == []


def test_a_stale_audit() -> None:
    """A read of the audit has everything that was answered before."""
    script = told()
    read = of(script, "audit")
    read.result["numbers"].pop()
    read.result["records"].pop()
    assert "give-back t/a: was done, and the audit does not tell" in texts(script)


def test_a_lease_that_ends_early() -> None:
    """An expiry that is told while the holder still counts on its lease."""
    script = told()
    script.lines.remove(of(script, "give-back", "o2"))
    rows = of(script, "audit").result["records"]
    for row in rows[-2:]:
        row[2] = "expired"
    assert "expired before its lease was over" in texts(script)
    of(script, "get", "o2").result["expires_in_ms"] = 40
    assert audited(script.history) == []


def test_a_force_that_ends_too_little_or_too_much() -> None:
    """All that have the name, or the one whose token was named."""
    script = told()
    rows = of(script, "audit").result["records"]
    rows.insert(4, [0, 4, "granted", "lock", "u", "concurrent-read", "node", None, "o4", 9, ""])
    rows[5][5] = rows[6][5] = "concurrent-write"
    for number, row in enumerate(rows, 1):
        row[0] = number
    assert "force u: was done, and the audit does not tell" in texts(script)
    script = told()
    of(script, "force").arguments["token"] = 3
    assert "o3 was forced, for which nobody asked" in texts(script)


def test_more_permits_than_there_are() -> None:
    """The permits of all holds count."""
    script = told()
    of(script, "get", "o2").arguments["limit"] = 1
    assert "o2 was granted with 2 permits out" in texts(script)


def test_one_entry_may_grant_a_hold_and_end_it() -> None:
    """What was asked for between the two was refused for a hold that no later entry shows."""
    exclusive: list[object] = ["lock", "u", "exclusive", "node", None]
    ended = {"owner": "o1", "token": 1, "name": "u"}
    script = Script()
    asked: dict[str, Any] = {"parts": [exclusive], "limit": 3}
    granted = {"token": 1, "expires_in_ms": 5_000, "sent_ns": 0}
    script.add("get", "u", 0, 30, owner="o1", **asked, result=granted)
    script.add("get", "u", 0, 30, "refused", owner="o2", **asked, result={"holders": [ended]})
    script.add("force", "u", 0, 30, of="lock", reason="why", result={"forced": [ended]})
    rows = [
        [number, 7, event, *exclusive, "o1", 1, reason]
        for number, (event, reason) in enumerate([("granted", ""), ("forced", "why")], 1)
    ]
    read = {"numbers": [1, 2], "records": rows}
    script.add("audit", "", 90, 95, behind=0, limit=1000, result=read)
    assert texts(script) == ""
    of(script, "get", "o2").result["holders"][0]["token"] = 2
    assert "get u: tells of what never was" in texts(script)


def test_what_excludes() -> None:
    """A subtree covers what lies below, a node only itself; an election has one leader."""
    below, tree = Part("lock", "a/b", "shared", "node"), Part("lock", "a", "exclusive", "subtree")
    assert below.excludes(tree)
    assert tree.excludes(below)
    assert not below.excludes(tree._replace(scope="node"))
    assert not below.excludes(tree._replace(mode="shared"))
    assert not below.excludes(tree._replace(name="a/bc"))
    leader = Part("election", "a/b")
    assert leader.excludes(leader)
    assert not leader.excludes(tree)


def test_changes_that_draw_a_token() -> None:
    """Up, but not from shared to update: what docs/semantics.md says of conversions."""
    assert is_up("shared", "exclusive")
    assert is_up("update", "exclusive")
    assert is_up("shared", "concurrent-write")
    assert is_up("concurrent-write", "shared")
    assert is_up("concurrent-read", "update")
    assert not is_up("shared", "update")
    assert not is_up("update", "shared")
    assert not is_up("exclusive", "concurrent-write")
    assert not is_up("concurrent-write", "concurrent-read")
