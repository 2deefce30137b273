"""A history of several kinds, and what the audit tells of it."""

from typing import Any

from tests.unit.lab.chaos.histories import MS, Script

Parts = list[list[Any]]
"""Parts of a hold, as a history has them."""


def add_audit(script: Script) -> None:
    """Add what the audit tells: a subtree, two kinds at once, a conversion, and a force."""
    tree: Parts = [["lock", "t", "exclusive", "subtree", None]]
    several: Parts = [["lock", "t/a", "shared", "node", None], ["semaphore", "q", None, None, 2]]
    single: Parts = [["lock", "u", "shared", "node", None]]
    for owner, token, parts, call, until in (
        ("o1", 1, tree, 0, 5),
        ("o2", 2, several, 10, 40),
        ("o3", 3, single, 50, 55),
    ):
        result = {"token": token, "expires_in_ms": 5_000, "sent_ns": call * MS}
        script.add("get", parts[0][1], call, until, owner=owner, parts=parts, limit=3, result=result)
    script.add("give-back", "t", 20, 25, owner="o1", names=[], result={"released": True})
    script.add("show", "t", 42, 44, of="lock", result={"holders": []})
    script.add("convert", "u", 60, 65, owner="o3", mode="exclusive", result={"token": 4})
    ended = {"owner": "o3", "token": 4, "name": "u"}
    script.add("force", "u", 70, 75, of="lock", reason="why", result={"forced": [ended]})
    script.add("give-back", "t/a", 80, 85, owner="o2", names=[], result={"released": True})
    exclusive: Parts = [["lock", "u", "exclusive", "node", None]]
    told: list[tuple[str, Parts, str, int, str]] = [
        ("granted", tree, "o1", 1, ""),
        ("released", tree, "o1", 1, ""),
        ("granted", several, "o2", 2, ""),
        ("granted", single, "o3", 3, ""),
        ("converted", exclusive, "o3", 4, ""),
        ("forced", exclusive, "o3", 4, "why"),
        ("released", several, "o2", 2, ""),
    ]
    rows = [
        [revision, event, *part, owner, token, reason]
        for revision, (event, parts, owner, token, reason) in enumerate(told, 1)
        for part in parts
    ]
    records = [[number, *row] for number, row in enumerate(rows, 1)]
    read = {"numbers": [record[0] for record in records], "records": records}
    script.add("audit", "", 90, 95, behind=0, limit=1000, result=read)
