"""Cells over HTTP: write, read, list, delete, transactions, and what watchers are told."""

import asyncio
import base64
import json
from typing import Any

import pytest

from holdfast import wire
from lockstate.words import limits
from lockstate.words.commands.cells import PutCell
from lockstate.words.commands.entries import Batch, Entry
from lockstate.words.ids import SessionId
from tests.support import http_contract
from tests.unit.http_api.serving import Got, Served, check_problem, serving


def fields_of(call: str) -> tuple[str, ...]:
    """Return the fields that a call answers."""
    return http_contract.ANSWER_FIELDS[call]


async def put(served: Served, key: str, **fields: Any) -> Got:
    """Write a cell."""
    return await served.call("PUT", f"/v1/cells/{key}", fields)


async def keys(served: Served, query: str = "") -> list[str]:
    """Return the keys of a page of cells."""
    got = await served.call("GET", f"/v1/cells?{query}")
    assert tuple(got.body) == fields_of(f"GET {wire.CELLS}")
    return [cell["key"] for cell in got.body["cells"]]


async def test_a_cell_is_written_and_read() -> None:
    """A write answers with revisions and version; a read with all there is."""
    async with serving() as served:
        got = await put(served, "app/a", value="1")
        assert got.status == 200
        assert tuple(got.body) == fields_of(f"PUT {wire.CELL}")
        await put(served, "app/a", value="2")
        got = await served.call("GET", "/v1/cells/app%2Fa")
        assert tuple(got.body) == fields_of(f"GET {wire.CELL}")
        assert got.body == {
            "key": "app/a", "value": "2", "create_revision": 1, "mod_revision": 2, "version": 2,
        }  # fmt: skip
        stale = await served.call("GET", "/v1/cells/app/a?consistency=stale")
        assert stale.body == {**got.body, "revision": served.node.machine.revision, "lag_ms": 7}
        missing = await served.call("GET", "/v1/cells/b?consistency=stale")
        check_problem(missing, 404, "cell-not-found")
        assert missing.body["lag_ms"] == 7


async def test_any_text_is_a_key_and_any_bytes_are_a_value() -> None:
    """Keys are UTF-8, percent-encoded in the path; values that are not text are in Base64."""
    async with serving() as served:
        await put(served, "a%20b/%C3%A9%0A%C3%A9/txn", value="x")
        got = await served.call("GET", "/v1/cells/a%20b/%C3%A9%0A%C3%A9/txn")
        assert got.body["key"] == "a b/é\né/txn"
        raw = bytes(range(256))
        await put(served, "bytes", value_base64=base64.b64encode(raw).decode())
        got = await served.call("GET", "/v1/cells/bytes")
        assert base64.b64decode(got.body["value_base64"]) == raw
        assert "value" not in got.body


async def test_a_cell_that_is_not_text_is_shown() -> None:
    """Faces for other protocols may write keys that are not text."""
    async with serving() as served:
        served.node.machine.apply(Entry(0, (Batch("n", (1,), (PutCell(b"\xff", b"x"),)),)))
        got = await served.call("GET", "/v1/cells")
        assert got.body["cells"][0]["key_base64"] == base64.b64encode(b"\xff").decode()
        assert "key" not in got.body["cells"][0]


async def test_a_write_can_depend_on_what_is_there() -> None:
    """Version 0 creates; a version or revision that is not the present one is refused with those that are."""
    async with serving() as served:
        first = await put(served, "a", value="1", if_version=0)
        assert first.status == 200
        got = await put(served, "a", value="2", if_version=0)
        check_problem(got, 409, "cell-changed")
        assert (got.body["version"], got.body["mod_revision"]) == (1, 1)
        got = await put(served, "a", value="2", if_version=1, if_mod_revision=first.body["mod_revision"])
        assert got.body["version"] == 2
        got = await served.call("DELETE", "/v1/cells/a", {"if_mod_revision": 1})
        check_problem(got, 409, "cell-changed")
        got = await served.call("DELETE", "/v1/cells/a", {"if_version": 2})
        assert tuple(got.body) == fields_of(f"DELETE {wire.CELL}")
        assert got.body["deleted"] == 1
        got = await put(served, "a", value="2", if_version=2)
        check_problem(got, 409, "cell-changed")
        assert (got.body["version"], got.body["mod_revision"]) == (0, 0)


async def test_a_cell_lives_with_a_session_or_for_a_time() -> None:
    """A read shows the owner and what is left; the end of the session ends the cell."""
    async with serving() as served:
        session = await served.session(labels={"owner": "ann"})
        await put(served, "a", value="", session_id=session)
        await put(served, "b", value="", ttl_ms=60_000)
        got = await served.call("GET", "/v1/cells/a")
        assert got.body["owner"] == "ann"
        assert 59_000 < got.body["expires_in_ms"] <= 60_000
        got = await served.call("GET", "/v1/cells/b")
        assert "owner" not in got.body
        assert set(got.body) <= {*fields_of(f"GET {wire.CELL}"), *http_contract.CELL_EXTRA_FIELDS}
        await served.call("DELETE", f"/v1/sessions/{session}")
        assert await keys(served) == ["b"]
        check_problem(await put(served, "a", value="", session_id=session), 410, "session-expired")


async def test_cells_are_listed_in_pages_and_deleted_by_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    """`next` of a page is the `after` of the next; a deletion says if more are left."""
    monkeypatch.setattr(limits, "CELLS_DELETED_MAX", 2)
    async with serving() as served:
        for key in ("q/2", "q/1", "q/3", "r"):
            await put(served, key, value="")
        page = await served.call("GET", "/v1/cells?prefix=q/&limit=2")
        assert [cell["key"] for cell in page.body["cells"]] == ["q/1", "q/2"]
        assert await keys(served, f"prefix=q/&after={page.body['next']}") == ["q/3"]
        got = await served.call("DELETE", "/v1/cells?prefix=q/")
        assert (got.body["deleted"], got.body["more"]) == (2, True)
        got = await served.call("DELETE", "/v1/cells?prefix=q/", {"request_id": "0123456789abcdef"})
        assert (got.body["deleted"], got.body["more"]) == (1, False)
        assert await keys(served) == ["r"]
        got = await served.call("DELETE", "/v1/cells/r")
        assert (got.body["deleted"], got.body["more"]) == (1, False)
        await put(served, "all", value="")
        got = await served.call("DELETE", "/v1/cells?all=true")
        assert (got.body["deleted"], got.body["more"]) == (1, False)


async def test_a_transaction_compares_and_does() -> None:
    """All of `then` or all of `else`; each operation has its result, in order."""
    async with serving() as served:
        hold = (await served.acquire("a")).body
        body: dict[str, Any] = {
            "compare": [
                {"hold_id": hold["hold_id"], "token": hold["token"]},
                {"key": "n", "version": 0},
                {"key": "m", "value": "x", "relation": "!="},
            ],
            "then": [
                {"put": "n", "value": "1"},
                {"put": "e", "value_base64": "", "ttl_ms": 60_000},
                {"get": "n"},
                {"delete": "gone"},
            ],
            "else": [{"get": "gone"}, {"get": "n"}],
        }
        got = await served.post(wire.CELLS_TRANSACT, **body)
        assert tuple(got.body) == fields_of(f"POST {wire.CELLS_TRANSACT}")
        written = {"create_revision": 1, "mod_revision": 1, "version": 1}
        cell = {"key": "n", "value": "1", **written}
        assert (got.body["succeeded"], got.body["results"]) == (
            True,
            [
                {"put": "n", **written},
                {"put": "e", **written},
                {"get": "n", "cell": cell},
                {"delete": "gone", "deleted": 0},
            ],
        )
        got = await served.post(wire.CELLS_TRANSACT, **body)
        assert (got.body["succeeded"], got.body["results"]) == (
            False,
            [{"get": "gone", "cell": None}, {"get": "n", "cell": cell}],
        )


async def test_a_repeated_request_is_done_once() -> None:
    """The same request_id gets the first outcome."""
    async with serving() as served:
        first = await put(served, "a", value="1", if_version=0, request_id="0123456789abcdef")
        again = await put(served, "a", value="1", if_version=0, request_id="0123456789abcdef")
        assert first.body["version"] == again.body["version"] == 1
        assert again.status == 200


COMPARE, THEN = "compare", "then"
LONG = "x" * 513


@pytest.mark.parametrize(
    ("method", "path", "body", "detail"),
    [
        ("PUT", "/v1/cells/a", {}, "value, value_base64: give exactly one of the two"),
        ("PUT", "/v1/cells/a", {"value": "", "value_base64": ""}, "value, value_base64: give exactly"),
        ("PUT", "/v1/cells/a", {"value_base64": "?"}, "value_base64: is not Base64"),
        ("PUT", "/v1/cells/a", {"value_base64": "é"}, "value_base64: is not Base64"),
        ("PUT", "/v1/cells/a", {"value": "x" * 4097}, "value: 4097 bytes; at most 4096 are allowed"),
        ("PUT", "/v1/cells/a", {"value": "x" * 4097, "if_version": 0}, "value: 4097 bytes"),
        ("PUT", "/v1/cells/", {"value": ""}, "key: 0 bytes; must be 1 to 512"),
        ("PUT", f"/v1/cells/{LONG}", {"value": ""}, "key: 513 bytes; must be 1 to 512"),
        ("PUT", "/v1/cells/a", {"value": "", "session_id": "s", "ttl_ms": 50}, "session_id, ttl_ms: give"),
        ("PUT", "/v1/cells/a", {"value": "", "session_id": ""}, "session_id: must be 1 to 64"),
        ("PUT", "/v1/cells/a", {"value": "", "if_version": -1}, "if_version: -1; must be 0 to"),
        ("PUT", "/v1/cells/a", {"value": "", "if_mod_revision": 1 << 53}, "if_mod_revision: "),
        ("GET", f"/v1/cells/{LONG}", None, "key: 513 bytes; must be 1 to 512"),
        ("GET", f"/v1/cells?prefix={LONG}", None, "prefix: 513 bytes; at most 512 are allowed"),
        ("GET", "/v1/cells?after=!", None, "after: is not the `next` of a page of cells"),
        ("GET", "/v1/cells?limit=0", None, "limit: '0'; must be 1 to 1000"),
        ("DELETE", f"/v1/cells/{LONG}", None, "key: 513 bytes; must be 1 to 512"),
        (
            "DELETE",
            "/v1/cells",
            None,
            "prefix: give one that is not empty, or, for all cells, none and all=true",
        ),
        (
            "DELETE",
            "/v1/cells?prefix=",
            None,
            "prefix: give one that is not empty, or, for all cells, none and all=true",
        ),
        (
            "DELETE",
            "/v1/cells?prefix=a&all=true",
            None,
            "prefix: give one that is not empty, or, for all cells, none and all=true",
        ),
        ("DELETE", "/v1/cells?all=yes", None, "all: 'yes'; must be true or false"),
        ("DELETE", f"/v1/cells?prefix={LONG}", None, "prefix: 513 bytes; at most 512 are allowed"),
        ("POST", wire.CELLS_TRANSACT, {COMPARE: [{}]}, "compare: needs a key, or a hold_id"),
        ("POST", wire.CELLS_TRANSACT, {COMPARE: [{"key": "a"}]}, "compare: give exactly one of version,"),
        (
            "POST",
            wire.CELLS_TRANSACT,
            {COMPARE: [{"key": "a", "version": 1, "value": ""}]},
            "compare: give exactly one of version,",
        ),
        ("POST", wire.CELLS_TRANSACT, {COMPARE: [{"key": "a", "token": 1}]}, "compare: needs a key, or"),
        (
            "POST",
            wire.CELLS_TRANSACT,
            {COMPARE: [{"hold_id": "h", "relation": "<"}]},
            "compare: hold_id can be combined only with token",
        ),
        (
            "POST",
            wire.CELLS_TRANSACT,
            {COMPARE: [{"key": "a", "version": 1, "relation": "~"}]},
            "compare[0].relation: Invalid enum value '~'; must be one of =, !=, <, >",
        ),
        ("POST", wire.CELLS_TRANSACT, {COMPARE: [{"hold_id": "h", "token": -1}]}, "token: -1; must be"),
        ("POST", wire.CELLS_TRANSACT, {COMPARE: [{"key": "a", "version": -1}]}, "version: -1; must be"),
        ("POST", wire.CELLS_TRANSACT, {THEN: [{}]}, "operation: give exactly one of put, delete, get"),
        ("POST", wire.CELLS_TRANSACT, {THEN: [{"put": "a", "get": "b"}]}, "operation: give exactly one"),
        ("POST", wire.CELLS_TRANSACT, {THEN: [{"get": "a", "value": ""}]}, "operation: only put takes"),
        ("POST", wire.CELLS_TRANSACT, {THEN: [{"get": "a"}] * 65}, "then: 65; at most 64 are allowed"),
        ("POST", wire.CELLS_TRANSACT, {THEN: [{"get": LONG}]}, "key: 513 bytes; must be 1 to 512"),
        ("POST", wire.CELLS_TRANSACT, {"else": [{"delete": "a"}] * 2}, "else: a key is written or deleted"),
        ("POST", wire.CELLS_TRANSACT, {"otherwise": []}, "otherwise: unknown field"),
    ],
)
async def test_what_is_wrong_is_named(method: str, path: str, body: Any, detail: str) -> None:
    """A mistake is 400, with the field in front."""
    async with serving() as served:
        got = await served.call(method, path, body)
        check_problem(got, 400, "invalid-request")
        assert got.body["detail"].startswith(detail), got.body["detail"]
        assert served.node.machine.counts()["cells"] == 0


@pytest.mark.parametrize("text", ["\ud800", "a\udfff"])
async def test_half_a_character_is_refused(text: str) -> None:
    """JSON can say what no UTF-8 can."""
    async with serving() as served:
        got = await served.call("PUT", "/v1/cells/a", data=json.dumps({"value": text}))
        check_problem(got, 400, "invalid-request")
        got = await served.call("POST", wire.CELLS_TRANSACT, data=json.dumps({"then": [{"get": text}]}))
        check_problem(got, 400, "invalid-request")


async def test_a_ttl_out_of_range_has_a_code_of_its_own() -> None:
    """As everywhere."""
    async with serving() as served:
        check_problem(await put(served, "a", value="", ttl_ms=49), 400, "ttl-out-of-range")


async def test_watchers_are_told_of_changes() -> None:
    """Each change of a cell is an event with its key as the name; the value is not told."""
    async with serving() as served:
        session = SessionId(await served.session())
        outcomes = [
            served.node.machine.apply(Entry(0, (Batch("n", (seq,), (command,)),)))
            for seq, command in enumerate((PutCell(b"a/1", b"v", session), PutCell(b"b", b"v")), 1)
        ]
        for outcome in outcomes:
            served.node.events.append(outcome.all_events)
        raw = b"GET /v1/watch?prefix=a/&since=0 HTTP/1.1\r\nHost: x\r\n\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(raw)
        text = await asyncio.wait_for(reader.readuntil(b"}\n\n"), 10)
        writer.close()
        data = json.loads(text.partition(b"event: cell-put\ndata: ")[2])
        assert tuple(data) == http_contract.CELL_EVENT_FIELDS
        assert (data["name"], data["kind"], data["mod_revision"], data["version"]) == ("a/1", "cell", 1, 1)
