"""`holdfast audit`: records are shipped without gaps, and `--verify` says what is wrong with them."""

import asyncio
import hashlib
import json
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

import holdfast
from holdfast import wire
from holdfast.cli import audit
from lockstate.words.events import EventKind
from tests.unit.holdfast.cli.test_commands import DEADLINE_S, Line, start
from tests.unit.holdfast.conftest import a_node
from tests.unit.holdfast.scripted import ScriptedNode, answer, problem

Rows = list[dict[str, Any]]


@asynccontextmanager
async def _shipping(url: str, *argv: str) -> AsyncGenerator[asyncio.StreamReader]:
    """Run `audit --follow -o jsonl` until the end of the block; it ends as an interrupt ends it."""
    process = await start(url, "audit", "--follow", "-o", "jsonl", *argv)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            yield process.stdout
            process.send_signal(signal.SIGINT)
            _, err = await process.communicate()
        assert (process.returncode, err) == (130, b"")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _shipped(lines: asyncio.StreamReader, count: int) -> Rows:
    return [json.loads(await lines.readline()) for _ in range(count)]


async def _take(client: holdfast.Client, count: int) -> None:
    """Let 2 records come to the audit, so many times."""
    for _ in range(count):
        async with client.lock("a"):
            """Held."""


async def test_records_are_shipped_without_a_gap_and_verified(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is there, what comes, and what follows behind a number after an interrupt is one whole chain."""
    file = tmp_path / "audit"
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        async with _shipping(url) as lines:  # it begins while there is nothing
            await _take(client, 3)
            rows = await _shipped(lines, 6)
            await _take(client, 1)
            rows += await _shipped(lines, 2)
        await _take(client, 2)
        async with _shipping(url, "--behind", "8") as lines:
            rows += await _shipped(lines, 4)
        assert [row["number"] for row in rows] == list(range(1, 13))
        line = Line(url, capsys)
        assert (await line("audit", "-o", "jsonl", "--behind", "10"))[1] == "".join(map(_line, rows[10:]))
        file.write_text("".join(map(_line, rows)))
        code, out, _ = await line("audit", "--verify", str(file))
        assert (code, out) == (
            0,
            f"12 records, 1 to 12, none missing or changed\nthe hash of record 12 is {rows[-1]['hash']}\n",
        )
        file.write_text("".join(map(_line, [*rows[:2], *rows[3:]])))
        code, out, _ = await line("audit", "--verify", str(file), "-o", "json")
        told = json.loads(out)
        assert (code, told["whole"], told["count"], told["hash"]) == (119, False, 11, rows[-1]["hash"])
        assert told["wrong"] == [{"line": 3, "wrong": "record 3 is missing"}]


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n"


def _bare(row: dict[str, Any]) -> dict[str, Any]:
    """Return a record as it is told before the cluster has linked it."""
    return {field: value for field, value in row.items() if field not in ("chain", "previous", "hash")}


def _sealed(row: dict[str, Any], **changed: object) -> dict[str, Any]:
    """Return a record with other fields, and the hash of what it is then."""
    content = row | changed
    del content["hash"]
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return content | {"hash": hashlib.sha256(text.encode()).hexdigest()}


def _changed(rows: Rows) -> Rows:
    return [*rows[:2], rows[2] | {"owner": "bob"}, *rows[3:]]


def _added(rows: Rows) -> Rows:
    return [*rows[:2], rows[2] | {"remark": ""}, *rows[3:]]


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda rows: rows[:2] + rows[3:], ["line 3: record 3 is missing"]),
        (lambda rows: rows[:1] + rows[4:], ["line 2: records 2 to 4 are missing"]),
        (_changed, ["line 3: record 3 was changed: its hash is that of another content"]),
        (_added, ["line 3: record 3 was changed: its hash is that of another content"]),
        (lambda rows: [rows[1], rows[0], *rows[2:]], [
            "line 2: record 1 comes after record 2", "line 3: record 2 is missing",
        ]),
        (lambda rows: [*rows[:3], {"event": "granted"}, *rows[3:]], [
            "line 4: after record 3: a record without number, chain, previous and hash",
        ]),
        (lambda rows: [*rows[:3], _bare(rows[3]) | {"chain": 1}, *rows[4:]], [
            "line 4: after record 3: a record without number, chain, previous and hash",
            "line 5: record 4 is missing",
        ]),
        (lambda rows: [*rows[:3], _bare(rows[3]) | {"owner": "bob"}, *rows[4:]], [
            "line 5: record 5 does not follow record 4: one of them was replaced",
        ]),
        (lambda rows: [*rows[:2], _bare(rows[2]) | {"owner": "bob"}, _bare(rows[3]), *rows[4:]], [
            "line 5: record 5 does not follow records 3 to 4: one was changed",
        ]),
        (lambda rows: [_bare(rows[0]) | {"owner": "bob"}, *rows[1:]], [
            "line 2: record 2 does not follow record 1: one of them was replaced",
        ]),
        (lambda rows: [_bare(rows[0]), _bare(rows[2]), *rows[3:]], ["line 2: record 2 is missing"]),
        (lambda rows: [*rows[:2], _sealed(rows[2], chain=4)], [
            "line 3: record 3 is of no chain: only the first one of its chain has none before it",
            "line 3: record 3 is of a chain that begins anew with record 4",
        ]),
        (lambda rows: [_sealed(rows[2], chain=3)], [
            "line 1: record 3 is of no chain: only the first one of its chain has none before it",
        ]),
        (lambda rows: [_sealed(rows[2], previous="")], [
            "line 1: record 3 is of no chain: only the first one of its chain has none before it",
        ]),
        (lambda rows: [*rows[:2], _sealed(rows[2], chain=3, previous="")], [
            "line 3: record 3 is of a chain that begins anew with record 3",
        ]),
        (lambda rows: [rows[0], _sealed(rows[1], number=-2)], [
            "line 2: after record 1: a record without number, chain, previous and hash",
        ]),
        (lambda rows: [rows[0], _sealed(rows[1], chain=-1)], [
            "line 2: after record 1: a record without number, chain, previous and hash",
        ]),
    ],
)  # fmt: skip
async def test_what_is_missing_or_changed_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Rows], Rows], said: list[str]
) -> None:
    """With the line and the number of the record, and an exit code that a script sees."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        await _take(client, 3)
        line = Line(url, capsys)
        _, out, _ = await line("audit", "-o", "jsonl")
        file = tmp_path / "audit"
        rows = [json.loads(text) for text in out.splitlines()]
        file.write_text("".join(map(_line, spoil(rows))))
        code, out, _ = await line("audit", "--verify", str(file))
        assert (code, [text for text in out.splitlines() if text.startswith("line")]) == (119, said)


@pytest.mark.parametrize(
    ("bare", "judged"),
    [
        ({1}, "6 records, 1 to 6, none missing or changed"),
        ({3, 4, 5}, "6 records, 1 to 6, none missing or changed"),
        ({5, 6}, "6 records, 1 to 6, none missing; 2 are in no hash, and none of the others was changed"),
        (
            {1, 2, 3, 4, 5, 6},
            "6 records, 1 to 6, none missing; 6 are in no hash, and none of the others was changed",
        ),
    ],
)
async def test_records_that_were_not_linked_when_they_were_shipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bare: set[int], judged: str
) -> None:
    """Later ones cover them; those behind which there is none are counted, and nothing is wrong with them."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        await _take(client, 3)
        line = Line(url, capsys)
        rows = [json.loads(text) for text in (await line("audit", "-o", "jsonl"))[1].splitlines()]
        file = tmp_path / "audit"
        file.write_text("".join(_line(_bare(row) if row["number"] in bare else row) for row in rows))
        code, out, _ = await line("audit", "--verify", str(file))
        linked = [row for row in rows if row["number"] not in bare][-1:]
        said = [f"the hash of record {row['number']} is {row['hash']}" for row in linked]
        assert (code, out.splitlines()) == (0, [judged, *said])


async def test_a_chain_that_begins_anew_under_load_is_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What was forgotten before it was linked is in no hash, and the last hash says what it stands for."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        await _take(client, 3)
        line = Line(url, capsys)
        rows = [json.loads(text) for text in (await line("audit", "-o", "jsonl"))[1].splitlines()]
    anew = _sealed(_bare(rows[3]) | {"chain": 4, "previous": "", "hash": ""})
    last = _sealed(
        rows[5] | {"chain": 4, "previous": _sealed(rows[4], chain=4, previous=anew["hash"])["hash"]}
    )
    shipped = [rows[0], *map(_bare, rows[1:5]), last]
    file = tmp_path / "audit"
    file.write_text("".join(map(_line, shipped)))
    code, out, _ = await line("audit", "--verify", str(file))
    assert (code, out.splitlines()) == (0, [
        "6 records, 1 to 6, none missing; 2 are in no hash, and none of the others was changed",
        f"the hash of record 6 is {last['hash']}, and stands for those from 4 on",
    ])  # fmt: skip


async def test_a_field_that_stands_twice_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Some readers take the first of them, some the last: such a record says two things."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        await _take(client, 1)
        line = Line(url, capsys)
        first, second = (await line("audit", "-o", "jsonl"))[1].splitlines()
        file = tmp_path / "audit"
        twice = second.replace('"owner":"ann"', '"owner":"mallory","owner":"ann"')
        assert json.loads(twice) == json.loads(second)
        file.write_text(f"{first}\n{twice}\n")
        code, out, _ = await line("audit", "--verify", str(file))
        assert (code, out.splitlines()[0]) == (119, "line 2: it has owner twice")


async def test_who_ships_opens_no_watch() -> None:
    """Where no watch is to be had, records are shipped all the same."""
    record = {"number": 1, "event": "granted", "revision": 1, "name": "a", "owner": "ann"}
    there, none = answer(events=[record]), problem("overloaded", retry_after_ms=10)

    async def each(request: web.Request) -> web.StreamResponse:
        return await (none if request.path == wire.WATCH else there)(request)

    async with ScriptedNode(each) as node, _shipping(node.url) as lines:
        assert await _shipped(lines, 2) == [record, record]
        assert {seen.path.partition("?")[0] for seen in node.seen} == {wire.AUDIT}


@pytest.mark.parametrize("argv", [(), ("--follow", "-o", "jsonl")])
async def test_a_record_that_is_not_there_yet_is_told(
    capsys: pytest.CaptureFixture[str], argv: tuple[str, ...]
) -> None:
    """A cluster that was founded anew counts from 1 again: who goes on behind a number hears of it."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        await _take(client, 2)
        line = Line(url, capsys)
        assert (await line("audit", "--behind", "4", "-o", "jsonl")) == (0, "", "")
        code, out, err = await line("audit", "--behind", "5", *argv)
        assert (code, out) == (119, "")
        assert "there is no record 5: the newest is 4" in err


async def test_who_may_not_read_all_is_not_told_so(capsys: pytest.CaptureFixture[str]) -> None:
    """What is hidden may be newer than all that is shown."""
    async with ScriptedNode(answer(events=[], hidden=3)) as node:
        assert await Line(node.url, capsys)("audit", "--behind", "5", "-o", "jsonl") == (0, "", "")


async def test_a_record_that_was_replaced_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Records of another history fit into no chain, though each of them is whole in itself."""
    files = []
    for owner in ("ann", "bob"):
        async with a_node() as (_, url), holdfast.Client(url, owner=owner) as client:
            await _take(client, 2)
            line = Line(url, capsys)
            files.append((await line("audit", "-o", "jsonl"))[1].splitlines(keepends=True))
    file = tmp_path / "audit"
    file.write_text("".join([*files[0][:2], *files[1][2:]]))
    code, out, _ = await line("audit", "--verify", str(file))
    assert (code, out.splitlines()[0]) == (
        119,
        "line 3: record 3 does not follow record 2: one of them was replaced",
    )


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [("", 119, "no records"), ("\n", 119, "no records"), ("what?\n", 119, "line 1: not a JSON object")],
)
async def test_what_is_no_audit_is_not_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str, code: int, said: str
) -> None:
    """An empty file proves nothing, and a line of something else is told."""
    file = tmp_path / "audit"
    file.write_text(content)
    got = await Line("http://127.0.0.1:1", capsys)("audit", "--verify", str(file))
    assert (got[0], got[1].splitlines()[0]) == (code, said)


async def test_a_file_that_cannot_be_read_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is told by name, and no node is asked."""
    code, _, err = await Line("http://127.0.0.1:1", capsys)("audit", "--verify", str(tmp_path / "none"))
    assert (code, "none" in err) == (2, True)


@pytest.mark.parametrize("kind", list(EventKind))
def test_the_columns_hold_for_every_event(kind: EventKind) -> None:
    """What comes behind its name stands where the titles say."""
    line = audit._line(audit._Record({"event": str(kind), "kind": "semaphore", "name": "a"}, None))
    assert audit._HEAD.index("KIND") == line.index("semaphore")
    assert audit._HEAD.index("NAME") == len(line) - 1
