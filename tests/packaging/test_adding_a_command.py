"""To add a command takes the five places that CONTRIBUTING names: its example is added to a copy of us."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from scripts.local_cluster import PROJECT
from tests.process.releases import patched_release

SECTION: Final = re.compile(r"^## To add a command\n(.*?)^## ", re.MULTILINE | re.DOTALL)
CHANGE: Final = re.compile(r"^```diff\n--- (\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
IMPORT: Final = re.compile("^(?=from )", re.MULTILINE)
PLACE: Final = re.compile(r"^\d\. \*\*", re.MULTILINE)
USES_IT: Final = """
import json, sys, urllib.request
from holdfast.testing import LoopbackCluster

with LoopbackCluster(sys.argv[1], nodes=1) as cluster, cluster.sync_client() as client:
    fence = client.fence("disk")
    fence.advance([client.acquire(f"a{number}", ttl=60, renew=False).token for number in range(9)][-1])
    assert client.admin.lower_fence("disk", 7, reason="restored from a backup") == 7
    asked = {"name": "disk", "token": 5, "reason": "once more", "request_id": "r" * 16}
    for is_again in (False, True):
        call = urllib.request.Request(
            cluster.nodes[0] + "/v1/fences/lower",
            json.dumps(asked).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(call) as answer:
            got = json.load(answer)
            assert (got["highest_token"], got.get("repeated", False)) == (5, is_again), got
    assert [row.highest_token for row in client.list_fences()] == [5]
    with urllib.request.urlopen(cluster.nodes[0] + "/openapi.json") as answer:
        described = json.load(answer)["paths"]["/v1/fences/lower"]["post"]
        assert described["x-right"] == "force", described
print("it works")
"""


def changed(text: str, change: str) -> str:
    """Return a text with a change made: what stands before and behind a new part must be there once.

    An import goes to the others.
    """
    for part in re.split(r"^@@\n", change, flags=re.MULTILINE):
        lines = part.splitlines(keepends=True)
        before, after = (
            "".join([line[1:] or "\n" for line in lines if line[0] in signs]) for signs in (" -\n", " +\n")
        )
        if not before:
            text = IMPORT.sub(lambda _, new=after: new, text, count=1)  # type: ignore[misc]
            continue
        count = text.count(before)
        assert count == 1, f"CONTRIBUTING is stale: {before!r} is there {count} times"
        text = text.replace(before, after)
    return text


@pytest.mark.process
def test_the_example_of_a_command_works_over_http_and_in_the_client(tmp_path: Path) -> None:
    """Five places are touched, and a client uses the command; a repetition is recognised."""
    section = SECTION.search((PROJECT / "CONTRIBUTING.md").read_text())
    assert section is not None
    assert len(PLACE.findall(section[1])) == 5
    tree = patched_release(tmp_path / "tree", [])
    for file, change in CHANGE.findall(section[1]):
        path = tree / file
        path.write_text(changed(path.read_text(), change))
    ran = subprocess.run(
        [sys.executable, "-c", USES_IT, str(tmp_path / "data")],
        env=os.environ | {"PYTHONPATH": str(tree)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert ran.stdout == "it works\n", ran.stderr
