"""Names have one spelling: composed, and without white space around their parts. So it is on every way in."""

import json
import unicodedata
from typing import Any
from urllib.parse import quote

import pytest

import holdfast
from holdfast import wire
from holdfast.stream.streams import BUSY_COUNT
from lockapi import spelling
from tests.support.both_clients import is_streaming
from tests.support.stream_client import PUT_CELL, Stream, acquire
from tests.unit.http_api.server.test_fast_lane import connected
from tests.unit.http_api.serving import Served, check_problem, serving

DECOMPOSED = unicodedata.normalize("NFD", "menu/café")
WRONG = {
    " report": "report",
    "report ": "report",
    "daily / report": "daily/report",
    "daily/report /7": "daily/report/7",
    DECOMPOSED: "menu/café",
    "ﬁ \u212b": "ﬁ \u00c5",  # the sign of the unit is not the letter; a ligature is what it is
}
"""Names with another spelling, and how they are to be written."""
RIGHT = ("report", "daily report", "daily/report 7", "menu/café", "ﬁ", "報告", "a.b-c_d%20")


@pytest.mark.parametrize("name", RIGHT)
def test_other_names_pass(name: str) -> None:
    """Spaces within a part, and all letters that have one form, are right."""
    spelling.check_name("name", name)


@pytest.mark.parametrize(("name", "right"), WRONG.items())
def test_the_right_spelling_is_told(name: str, right: str) -> None:
    """The problem quotes the name so that its spelling can be seen, says what is wrong, and what to write."""
    with pytest.raises(spelling.Misspelled) as caught:
        spelling.check_name("name", name)
    assert caught.value.code == "invalid-request"
    assert caught.value.detail.startswith(f"name: {name!a} ")
    assert caught.value.detail.endswith(f"; write {right!r}")
    assert ("white space" in caught.value.detail) == (" " in name.replace("ﬁ ", ""))


def test_nothing_is_suggested_where_nothing_is_left() -> None:
    """A part of white space alone has no right spelling."""
    with pytest.raises(spelling.Misspelled, match=r"white space, or one of its parts does$"):
        spelling.check_name("name", "a/ /b")


def test_keys_that_are_not_text_have_no_spelling() -> None:
    """Binary keys of cells are what they are."""
    for key in (b"\xff\x20", b"\x00\x00\x01\x20", b" \x01"):
        spelling.check_key(key)
    with pytest.raises(spelling.Misspelled, match="key"):
        spelling.check_key(b"a\n")


LEASE: dict[str, Any] = {"ttl_ms": 60_000}
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "lock": (wire.LOCK_ACQUIRE, {"name": DECOMPOSED, **LEASE}),
    "locks": (wire.LOCK_ACQUIRE, {"locks": [{"name": "b"}, {"name": DECOMPOSED}], **LEASE}),
    "semaphore": (wire.SEMAPHORE_ACQUIRE, {"name": DECOMPOSED, "permits": 1, "limit": 2, **LEASE}),
    "several": (
        wire.ACQUIRE,
        {"locks": [{"name": "b"}], "permits": [{"name": DECOMPOSED, "permits": 1, "limit": 2}], **LEASE},
    ),
    "rates among several": (
        wire.ACQUIRE,
        {
            "locks": [{"name": "b"}],
            "rate_limits": [{"name": DECOMPOSED, "limit": 2, "window_ms": 1000}],
            **LEASE,
        },
    ),
    "election": (wire.ELECTION_CAMPAIGN, {"name": DECOMPOSED, "session_id": "s", "value": ""}),
    "rate": (wire.RATE_TAKE, {"name": DECOMPOSED, "limit": 2, "window_ms": 1000}),
    "peek": (wire.RATE_PEEK, {"name": DECOMPOSED, "limit": 2, "window_ms": 1000}),
    "fence": (wire.FENCE_ADVANCE, {"name": DECOMPOSED, "token": 1}),
    "fence check": (wire.FENCE_CHECK, {"name": DECOMPOSED, "token": 1}),
    "resize": (wire.SEMAPHORE_RESIZE, {"name": DECOMPOSED, "limit": 3, "reason": "r"}),
    "transaction": (wire.CELLS_TRANSACT, {"then": [{"put": DECOMPOSED, "value": "1"}]}),
}


@pytest.mark.parametrize("call", CALLS)
async def test_calls_refuse_other_spellings(call: str) -> None:
    """Whatever makes or uses a name of any kind is refused, and nothing is made."""
    path, body = CALLS[call]
    async with serving() as served:
        got = await served.post(path, **body)
        check_problem(got, 400, "invalid-request")
        assert "write 'menu/café'" in got.body["detail"]
        assert_nothing(served)


@pytest.mark.parametrize("path", [wire.LOCK, wire.SEMAPHORE, wire.ELECTION, wire.FENCE, wire.CELL])
async def test_reads_refuse_other_spellings(path: str) -> None:
    """A read of one name says that nobody can have it; a listing takes any prefix."""
    async with serving() as served:
        got = await served.call("GET", path.format(name=quote("a "), key=quote("a ")))
        check_problem(got, 400, "invalid-request")
        listing = path.partition("/{")[0]
        if path != wire.FENCE:
            assert (await served.call("GET", f"{listing}?prefix=a%20")).status == 200


async def test_cells_and_namespaces_refuse_other_spellings() -> None:
    """Also those whose name is in the path."""
    async with serving() as served:
        check_problem(await served.call("PUT", "/v1/cells/a%20", {"value": ""}), 400, "invalid-request")
        check_problem(
            await served.call("PUT", "/v1/namespaces/a%20", {"reason": "by hand"}), 400, "invalid-request"
        )
        assert_nothing(served)


async def test_what_was_spelled_otherwise_before_can_be_ended() -> None:
    """Force, deletion and removal take every spelling."""
    async with serving() as served:
        forced = await served.post(wire.LOCK_FORCE_RELEASE, name="a ", reason="was spelled otherwise")
        assert forced.status == 200
        assert (await served.call("DELETE", "/v1/cells/a%20", {})).body["deleted"] == 0
        assert (await served.call("DELETE", "/v1/namespaces/a%20", {"reason": "by hand"})).status in (
            200,
            404,
        )


@pytest.mark.parametrize("has_lane", [True, False])
async def test_the_fast_lane_has_the_same_rule(*, has_lane: bool) -> None:
    """A plain request gets the same answer from the lane and from the way beside it."""
    body = json.dumps({"name": DECOMPOSED, "ttl_ms": 60_000}, ensure_ascii=False).encode()
    head = f"POST /v1/locks/acquire HTTP/1.1\r\nHost: n1\r\nContent-Length: {len(body)}\r\n\r\n"
    async with serving(fast_lane=has_lane) as served, connected(served) as plain:
        plain.send(head.encode() + body)
        status, answer = await plain.answer()
        assert status == 400
        assert "write 'menu/café'" in answer.decode()
        assert_nothing(served)


@pytest.mark.parametrize("form", ["msgpack", "json"])
async def test_a_stream_has_the_same_rule(form: str) -> None:
    """A message with such a name is refused as a whole and not done; the stream goes on."""
    async with serving() as served, Stream(served.port, form) as stream:
        wrong = [[acquire("b"), acquire(DECOMPOSED)]]
        if form == "msgpack":
            wrong.append([[PUT_CELL, b"a ", b""]])
        for commands in wrong:
            first = stream.ask(*commands)
            _, number, code, detail, *_ = await stream.answer(first)
            assert (number, code) == (first, "invalid-request")
            assert "; write " in detail
            stream.next = first
        assert_nothing(served)
        assert (await stream.acquire("b"))[0] == 4


async def test_a_client_s_stream_goes_on() -> None:
    """A busy client is told what is wrong with its call, and keeps its stream for the others."""
    async with serving() as served, holdfast.Client(f"http://127.0.0.1:{served.port}") as client:
        for number in range(10 * BUSY_COUNT):
            await (await client.acquire(f"a/{number}")).release()
        assert is_streaming(client)
        with pytest.raises(holdfast.InvalidRequest, match="write 'menu/café'"):
            await client.acquire(DECOMPOSED)
        assert is_streaming(client)


def assert_nothing(served: Served) -> None:
    """Check that a node has nothing that has a name."""
    state = served.node.machine.state
    assert not any((state.holds, state.locks, state.semaphores, state.spaces, state.fences))
    assert len(state.cells) == len(state.rates) == 0
