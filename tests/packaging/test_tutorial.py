"""The tutorial as a reader follows it: its blocks run in order against three nodes and answer what it shows.

Answers in JSON are compared value by value. What differs from run to run is compared by its shape: secrets
are 32 hexadecimal digits, times and revisions are numbers. All else must be equal, tokens, too: they count
from 1.
"""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from scripts.lib import cluster_file, ports
from scripts.local_cluster import LocalCluster
from tests.packaging.test_readme import make_checkout

ROOT = Path(__file__).resolve().parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text("utf-8")

FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MARKER = "=== end of block ==="
RUN_S_MAX = 200
REST = "…"
"""In a text: any text. As the last key of an object: any other members."""

SECRET = re.compile("[0-9a-f]{32}")
SECRETS = frozenset({"hold_id", "session_id"})
TIMES = frozenset({"waited_ms", "since_ms", "lasted_ms", "at_ms", "reset_in_ms", "lag_ms"})
LEFT = frozenset({"expires_in_ms", "retry_after_ms"})
"""Times that run down from a whole second; 0 means something else."""
LEFT_MS_MAX = 20_000
"""So much less may be left than is shown: the machine may be slow."""


class Block(NamedTuple):
    """A block to run, and what is shown below it: `json` or `text`."""

    script: str
    kind: str
    shown: str


def blocks(document: str) -> list[Block]:
    """Return what is to be run, in order. Behind each block stands its output."""
    found = FENCE.findall(document)
    assert [kind for kind, _ in found[::2]] == ["sh"] * (len(found) // 2), "an output for each block"
    return [
        Block(script, kind, shown) for (_, script), (kind, shown) in zip(found[::2], found[1::2], strict=True)
    ]


BLOCKS = blocks(TUTORIAL)


def values(text: str) -> list[Any]:
    """Return the JSON values that stand in `text` one after the other."""
    decoder, found = json.JSONDecoder(), []
    text = text.strip()
    while text:
        value, end = decoder.raw_decode(text)
        found.append(value)
        text = text[end:].lstrip()
    return found


def differences(shown: Any, printed: Any, at: str = "", key: str = "") -> Iterator[str]:
    """Yield where `printed` is not what is shown."""
    if isinstance(shown, dict) and isinstance(printed, dict):
        wanted = {name: value for name, value in shown.items() if name != REST}
        missing, more = wanted.keys() - printed.keys(), printed.keys() - wanted.keys()
        if missing or (more and REST not in shown):
            yield f"{at or 'the answer'}: members {sorted(missing)} are missing, {sorted(more)} are more"
        for name in wanted.keys() & printed.keys():
            yield from differences(wanted[name], printed[name], f"{at}.{name}", name)
    elif isinstance(shown, list) and isinstance(printed, list) and len(shown) == len(printed):
        for index, (one, other) in enumerate(zip(shown, printed, strict=True)):
            yield from differences(one, other, f"{at}[{index}]", key)
    elif not is_alike(shown, printed, key):
        yield f"{at or 'the answer'}: {printed!r} instead of {shown!r}"


def is_alike(shown: Any, printed: Any, key: str) -> bool:
    """Whether a value is what is shown for `key`, or what stands for it in another run."""
    if type(shown) is not type(printed):
        return False
    if key in SECRETS:
        return SECRET.fullmatch(printed) is not None
    if key in ("revision", "ticket"):
        return bool(printed > 0)
    if key in TIMES:
        return bool(printed >= 0)
    if key in LEFT:
        whole_ms = -(-shown // 1000) * 1000
        return bool(printed == shown == 0 or max(shown - LEFT_MS_MAX, 0) < printed <= whole_ms)
    if isinstance(shown, str) and REST in shown:
        return re.fullmatch(".+".join(map(re.escape, shown.split(REST))), printed) is not None
    return bool(shown == printed)


def line_differences(shown: str, printed: str) -> Iterator[str]:
    """Yield where lines are not what is shown; an ellipsis is any text, alone on a line any lines.

    Of events, `data:` is JSON and tells of the revision that `id:` names.
    """
    ours, theirs = shown.splitlines(), printed.splitlines()
    if ours[0] == REST:
        ours, theirs = ours[1:], theirs[len(theirs) - len(ours) + 1 :]
    if len(ours) != len(theirs):
        yield f"{len(theirs)} lines instead of {len(ours)}"
    event_id = ""
    for one, other in zip(ours, theirs, strict=False):
        if one.startswith("data: ") and other.startswith("data: "):
            told = json.loads(other[6:])
            yield from differences(json.loads(one[6:]), told)
            if str(told["revision"]) != event_id:
                yield f"{other!r} has the id {event_id}"
        elif one.startswith("id: ") and re.fullmatch(r"id: \d+", other):
            event_id = other[4:]
        elif not re.fullmatch(".+".join(map(re.escape, one.split(REST))), other):
            yield f"{other!r} instead of {one!r}"


def script_of(found: list[Block]) -> str:
    """Return one script of all blocks, with a marker behind the output of each."""
    lines = ["exec 2>&1"]
    for block in found:
        lines += [block.script, f"printf '\\n%s\\n' '{MARKER}'"]
    return "\n".join(lines)


def follow(folder: Path, found: list[Block]) -> list[str]:
    """Run the blocks and return what each printed, with its own ports and directory put back."""
    directory = folder / "cluster"
    base = ports.find_base(3)
    replaced = {str(7700 + i): str(base + i) for i in range(3)} | {"/tmp/holdfast": str(directory)}  # noqa: S108
    replaced["7900"] = str(ports.for_redis(base, 3)[0])
    script = script_of(found)
    for old, new in replaced.items():
        script = script.replace(old, new)
    script = script.replace("--nodes 3", f"--nodes 3 --base-port {base}")
    try:
        done = subprocess.run(
            ["bash", "-e", "-o", "pipefail", "-c", script],
            cwd=make_checkout(folder / "checkout"),
            env=os.environ,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
            check=False,  # the block that failed is told by its output
        )
    finally:
        if (directory / cluster_file.FILE).exists():
            LocalCluster(directory).down()
    output = done.stdout
    for old, new in replaced.items():
        output = output.replace(new, old)
    return output.split(f"\n{MARKER}\n")


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Follow the tutorial from its first block to its last."""
    if not (shutil.which("curl") and shutil.which("jq")):
        pytest.skip("needs curl and jq")
    return follow(tmp_path_factory.mktemp("tutorial"), BLOCKS)


@pytest.mark.process
@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_answers_what_is_shown(outputs: list[str], number: int) -> None:
    """Each block of the tutorial answers what the tutorial shows below it."""
    assert number < len(outputs) - 1, f"an earlier block failed: {outputs[-1]}"
    block, printed = BLOCKS[number], outputs[number]
    if block.kind == "json":
        found = list(differences(values(block.shown), values(printed)))
    else:
        found = list(line_differences(block.shown.strip(), printed.strip()))
    assert not found, f"{block.script}\n{printed}\n{found}"


@pytest.mark.process
def test_revisions_rise(outputs: list[str]) -> None:
    """The answers to writes have revisions that rise along the tutorial."""
    revisions = [
        value["revision"]
        for block, printed in zip(BLOCKS, outputs, strict=False)
        if block.kind == "json"
        for value in values(printed)
        if isinstance(value, dict) and "revision" in value
    ]
    assert revisions == sorted(revisions)
    assert len(revisions) > len(BLOCKS) // 2


def test_every_call_is_shown() -> None:
    """The tutorial uses every path that a client of locks needs."""
    paths = set(re.findall(r"/v1/([a-z-]+(?:/[a-z-]+)?)", "".join(block.script for block in BLOCKS)))
    needed = {
        "locks/acquire", "locks/renew", "locks/release", "locks/convert", "locks/force-release", "sessions",
        "semaphores/acquire", "semaphores/resize", "semaphores/release", "rate-limits/take", "fences/check",
        "fences/advance", "elections/campaign", "elections/proclaim", "elections/resign", "watch", "audit",
        "cells/txn", "cluster",
    }  # fmt: skip
    assert needed <= paths


GRANT = '{"hold_id": "…", "token": 3, "expires_in_ms": 60000, "name": "a", "revision": 9}'
ALIKE = {"hold_id": "0" * 32, "token": 3, "expires_in_ms": 59_990, "name": "a", "revision": 7}


def test_same_answer_of_another_run() -> None:
    """An answer with another secret, other times and another revision is what is shown."""
    assert not list(differences(json.loads(GRANT), ALIKE))


@pytest.mark.parametrize(
    "wrong",
    [
        {"hold_id": "0" * 31}, {"token": 4}, {"token": "3"}, {"expires_in_ms": 60_001}, {"expires_in_ms": 0},
        {"name": "b"}, {"revision": 0}, {"revision": None}, {"more": 1},
    ],
)  # fmt: skip
def test_another_answer_is_seen(wrong: dict[str, Any]) -> None:
    """An answer with another token or name, a longer lease, or one more member is not what is shown."""
    assert list(differences(json.loads(GRANT), ALIKE | wrong))


def test_missing_member_is_seen() -> None:
    """An answer that lacks a member is not what is shown, even where others are left out."""
    assert list(differences({"code": "lock-held", REST: REST}, {"status": 409}))
    assert not list(differences({"code": "lock-held", REST: REST}, {"code": "lock-held", "status": 409}))


EVENT = 'id: 7\nevent: granted\ndata: {"revision": 7, "name": "a"}\n'


def test_same_event_of_another_run() -> None:
    """An event at another revision, with that as its id, is what is shown."""
    assert not list(line_differences(EVENT, EVENT.replace("7", "12")))


@pytest.mark.parametrize(
    "wrong",
    [
        EVENT.replace("granted", "forced"), EVENT.replace("id: 7", "id: 8"), EVENT.replace('"a"', '"b"'),
        EVENT + "more",
    ],
)  # fmt: skip
def test_another_event_is_seen(wrong: str) -> None:
    """Another event, one whose id is not its revision, and one line more are not what is shown."""
    assert list(line_differences(EVENT, wrong))
