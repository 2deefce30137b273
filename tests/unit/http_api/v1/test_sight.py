"""What somebody sees who may not read everything: the rest is left out, counted, and not given away."""

import asyncio
from typing import Any
from urllib.parse import quote

import pytest

from holdfast import wire
from holdfast.token_lines import Right
from lockapi import paging, rights_needed
from lockapi.problems import ProblemError
from lockapi.rights import Rights
from lockstate.words import limits
from lockstate.words.commands.cells import DeleteCells
from tests.unit.http_api.serving import Got, Served, bearer, check_problem, serving, token_line, until

ALL, ME = "a" * 40, "m" * 40
LINES = token_line("all", ALL, "read,acquire,force") + token_line("me", ME, "acquire read,acquire@b read@d/e")
NAMES = ["a/1", "a/2", "b", "b/1", "b!", "c/1", "d/1", "d/e/1", "e/1"]
SEEN = ["b", "b/1", "d/e/1"]


async def call(served: Served, token: str, method: str, path: str, body: Any = None) -> Got:
    """Call as somebody."""
    return await served.call(method, path, body, headers=bearer(token))


async def post(served: Served, path: str, who: str = ALL, **fields: Any) -> Got:
    """Change something."""
    return await call(served, who, "POST", path, fields)


async def fill(served: Served) -> None:
    """Have one of each kind under every name."""
    session = (await post(served, wire.SESSIONS, ttl_ms=60_000)).body["session_id"]
    for name in NAMES:
        await post(served, wire.LOCK_ACQUIRE, name=name, ttl_ms=60_000)
        await post(served, wire.SEMAPHORE_ACQUIRE, name=name, limit=2, ttl_ms=60_000)
        await post(served, wire.ELECTION_CAMPAIGN, name=name, session_id=session, value="v")
        await post(served, wire.RATE_TAKE, name=name, limit=5, window_ms=1_000_000)
        await post(served, wire.FENCE_ADVANCE, name=name, token=1)
        await call(served, ALL, "PUT", f"/v1/cells/{name}", {"value": "v"})


LISTS = {
    wire.LOCKS: ("locks", "name"),
    wire.SEMAPHORES: ("semaphores", "name"),
    wire.ELECTIONS: ("elections", "name"),
    wire.RATES: ("rate_limits", "name"),
    wire.FENCES: ("fences", "name"),
    wire.CELLS: ("cells", "key"),
    wire.HOLDS: ("holds", "name"),
}


async def pages(served: Served, token: str, path: str, limit: int) -> tuple[list[str], list[str], int]:
    """Read a listing page by page; return the names, the places to go on, and how many were hidden."""
    field, key = LISTS[path]
    names: list[str] = []
    places: list[str] = []
    hidden, after = 0, ""
    while True:
        got = await call(served, token, "GET", f"{path}?limit={limit}&after={after}")
        assert got.status == 200, got.body
        names += [row[key] for row in got.body[field]]
        hidden += got.body.get("hidden", 0)
        after = got.body["next"]
        if after is None:
            return names, places, hidden
        places.append(after)


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("limit", [1, 2, 100])
async def test_listings_show_what_may_be_read(path: str, limit: int) -> None:
    """Every such name once and in order, however small the pages; no page names another one."""
    async with serving(tokens=LINES) as served:
        await fill(served)
        whole, _, none_hidden = await pages(served, ALL, path, limit)
        assert (sorted(set(whole)), none_hidden) == (sorted(NAMES), 0)
        names, places, hidden = await pages(served, ME, path, limit)
        assert names == [name for name in whole if name in SEEN]
        assert hidden > 0
        if path != wire.CELLS:
            assert {place.rpartition(" ")[2] for place in places} <= set(SEEN)


async def test_one_page_counts_what_it_leaves_out() -> None:
    """So nobody takes a part for the whole."""
    async with serving(tokens=LINES) as served:
        await fill(served)
        for path in LISTS:
            got = await call(served, ME, "GET", path)
            expected = (len(NAMES) - len(SEEN)) * (3 if path == wire.HOLDS else 1)
            assert got.body["hidden"] == expected, path
            got = await call(served, ME, "GET", f"{path}?prefix=b/")
            assert "hidden" not in got.body, path
        got = await call(served, ME, "GET", f"{wire.LOCKS}?held_longer_than_ms=1")
        assert "hidden" not in got.body, "by other conditions it could be found out when one was taken"


@pytest.mark.parametrize("path", [wire.LOCKS, wire.HOLDS])
@pytest.mark.parametrize("count", [0, 99, 100, 150, 250])
async def test_nothing_tells_how_many_hidden_names_there_are(
    path: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From any place, for one row: what may be read is found, however far, and behind it no other page."""
    monkeypatch.setattr(limits, "LIST_LIMIT_MAX", 3)
    monkeypatch.setattr(paging, "STEP_ROWS", 3)
    async with serving(tokens=LINES) as served:
        hidden = [f"{part}/{number:03}" for part in "ce" for number in range(count)]
        for name in [*hidden, "d/e/1", "d/e/2"]:
            await post(served, wire.LOCK_ACQUIRE, name=name, ttl_ms=60_000)
        kind = "lock " if path == wire.HOLDS else ""

        async def page(after: str) -> tuple[list[str], str | None]:
            got = await call(served, ME, "GET", f"{path}?limit=1&after={quote(kind + after)}")
            return [row["name"] for row in got.body[LISTS[path][0]]], got.body["next"]

        assert await page("c") == (["d/e/1"], f"{kind}d/e/1")
        assert await page("d/e/1") == (["d/e/2"], None)


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("prefix", ["a/1", "nowhere"])
async def test_a_prefix_below_which_nothing_may_be_read_is_refused(path: str, prefix: str) -> None:
    """Whether or not there is anything."""
    async with serving(tokens=LINES) as served:
        await fill(served)
        check_problem(await call(served, ME, "GET", f"{path}?prefix={prefix}"), 403, "forbidden")


@pytest.mark.parametrize("path", LISTS)
async def test_nothing_tells_whether_a_hidden_name_is_there(path: str) -> None:
    """Neither a prefix nor a place to begin at: names would be spelled out letter by letter."""
    async with serving(tokens=LINES) as served:
        await fill(served)

        async def asked(query: str) -> tuple[int, Any, Any, str]:
            got = await call(served, ME, "GET", f"{path}?{query}")
            row = got.body.get(LISTS[path][0])
            return got.status, row, got.body.get("hidden"), str(got.body.get("detail"))

        for there, nowhere in (("a/1", "a/9"), ("d/1", "d/9")):
            answers = [await asked(f"prefix={prefix}") for prefix in (there, nowhere)]
            assert answers[0][:3] == answers[1][:3]
            assert answers[0][3].replace(there, nowhere) == answers[1][3]
        for query in ("prefix=d", "after=a/2", "prefix=d&after=a", "prefix=d/e/"):
            assert (await asked(query))[2] is None, query
        for query in ("owner=boss", "held_longer_than_ms=0", "label=a:b") if path == wire.HOLDS else ():
            assert (await asked(query))[2] is None, query


async def test_a_prefix_that_ends_within_a_character_is_no_way_around_a_right() -> None:
    """Neither to read nor to delete what an exception is about: keys are compared as bytes."""
    key = "b/\u00e9t\u00e9/x"
    lines = token_line("all", ALL, "read,acquire") + token_line(
        "me", ME, "read,acquire@b none@b/%C3%A9t%C3%A9"
    )
    async with serving(tokens=lines) as served:
        await call(served, ALL, "PUT", f"/v1/cells/{quote(key)}", {"value": "v"})
        for start in ("b/", "b/%C3", "b/%C3%A9", "b/%C3%A9t"):
            got = await call(served, ME, "GET", f"{wire.CELLS}?prefix={start}")
            assert not got.body.get("cells"), start
            got = await call(served, ME, "DELETE", f"{wire.CELLS}?prefix={start}")
            assert got.status == (400 if start == "b/%C3" else 403), start
        for whole in (b"b/", b"b/\xc3", b"b/\xc3\xa9", b"b/\xc3\xa9t\xc3"):
            rights = Rights({"": frozenset(), "b": frozenset(Right), "b/\u00e9t\u00e9": frozenset()})
            with pytest.raises(ProblemError, match="acquire"):
                rights_needed.check_command(rights, DeleteCells(whole, is_prefix=True))
        assert (await call(served, ALL, "GET", f"/v1/cells/{quote(key)}")).status == 200


async def test_hashes_are_for_who_may_read_everything() -> None:
    """That of a hidden record stands in the next one, and would tell whether a guess at its name is right."""
    async with serving(tokens=LINES) as served:
        await post(served, wire.LOCK_ACQUIRE, name="a/1", ttl_ms=60_000)
        granted = await post(served, wire.LOCK_ACQUIRE, ME, name="b/1", ttl_ms=60_000)
        await post(served, wire.LOCK_RELEASE, ME, hold_id=granted.body["hold_id"])
        paths = (wire.AUDIT, f"{wire.AUDIT}?name=b/1")
        for path in paths:
            mine = (await call(served, ME, "GET", path)).body["events"]
            assert [row.get("name") for row in mine] == ["b/1", "b/1"]
            assert all(row["number"] and not row.keys() & {"hash", "previous", "chain"} for row in mine)
            all_of_it = (await call(served, ALL, "GET", path)).body["events"]
            assert all("hash" in row for row in all_of_it[-1:])


async def test_a_page_of_nothing_but_hidden_names_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no place to go on that would give none of them away: the caller has to name a prefix."""
    monkeypatch.setattr(limits, "LIST_ROWS_MAX", 100)
    async with serving(tokens=LINES) as served:
        served.draw(1)
        for number in range(120):
            await post(served, wire.FENCE_ADVANCE, name=f"a/{number}", token=1)
            await post(served, wire.LOCK_ACQUIRE, name=f"a/{number}", ttl_ms=60_000)
        await post(served, wire.FENCE_ADVANCE, name="b/1", token=1)
        got = await call(served, ME, "GET", wire.FENCES)
        assert (got.status, got.body["code"]) == (403, "forbidden")
        assert got.body["detail"].startswith("prefix: the caller may read none of the 100 names")
        got = await call(served, ME, "GET", f"{wire.FENCES}?prefix=b")
        assert [row["name"] for row in got.body["fences"]] == ["b/1"]


async def test_a_refusal_names_only_holders_that_may_be_read() -> None:
    """Neither in its fields, nor in its words; a lock may be covered by a subtree above it."""
    lines = token_line("all", ALL, "read,acquire") + token_line("me", ME, "acquire,read@b/c")
    async with serving(tokens=lines) as served:
        await post(served, wire.LOCK_ACQUIRE, name="b", scope="subtree", ttl_ms=60_000, owner="boss")
        got = await post(served, wire.LOCK_ACQUIRE, ME, name="b/c/1", ttl_ms=60_000)
        assert got.body["code"] == "lock-held"
        assert (got.body["holders"], got.body["hidden"]) == ([], 1)
        assert got.body["detail"] == "held by a holder that the caller may not see"
        assert "boss" not in str(got.body)
        got = await post(served, wire.LOCK_ACQUIRE, ALL, name="b/c/1", ttl_ms=60_000)
        assert got.body["detail"] == "held by boss"
        assert "hidden" not in got.body
        got = await call(served, ME, "GET", "/v1/locks/b/c/1")
        assert (got.body["state"], got.body["holders"], got.body["hidden"]) == ("held", [], 1)


async def test_a_cycle_names_only_what_may_be_read() -> None:
    """The rest of it is counted."""
    lines = token_line("all", ALL, "read,acquire") + token_line("me", ME, "acquire,read@b acquire@x")
    async with serving(tokens=lines) as served:
        mine, other = [
            (await post(served, wire.SESSIONS, token, ttl_ms=60_000)).body["session_id"]
            for token in (ME, ALL)
        ]
        await post(served, wire.LOCK_ACQUIRE, ME, name="b", session_id=mine, owner="me")
        await post(served, wire.LOCK_ACQUIRE, name="x", session_id=other, owner="boss")
        waiting = asyncio.ensure_future(
            post(served, wire.LOCK_ACQUIRE, name="b", session_id=other, owner="boss", wait_ms=60_000)
        )
        await until(lambda: served.node.machine.lock("b").queue)
        got = await post(served, wire.LOCK_ACQUIRE, ME, name="x", session_id=mine, owner="me", wait_ms=60_000)
        assert got.body["code"] == "deadlock"
        assert [step["name"] for step in got.body["cycle"]] == ["b"]
        assert got.body["hidden"] == 1
        assert got.body["detail"] == "would wait for ever"
        waiting.cancel()


async def test_who_may_not_read_all_goes_on_behind_a_record_as_well() -> None:
    """Numbers of what may not be read are left out, and counted."""
    async with serving(tokens=LINES) as served:
        for name in ("b", "a/1", "b/1"):
            await post(served, wire.LOCK_ACQUIRE, name=name, ttl_ms=60_000)
        for behind, numbers in ((0, [1, 3]), (1, [3])):
            got = await call(served, ME, "GET", f"{wire.AUDIT}?behind={behind}")
            assert [event["number"] for event in got.body["events"]] == numbers
            assert got.body["hidden"] == 1


async def test_the_audit_shows_what_may_be_read() -> None:
    """As many events as asked for, though others came after them; the end of a session has no name."""
    async with serving(tokens=LINES) as served:
        session = (await post(served, wire.SESSIONS, ttl_ms=60_000)).body["session_id"]
        await post(served, wire.LOCK_ACQUIRE, name="b/1", session_id=session)
        for number in range(5):
            await post(served, wire.LOCK_ACQUIRE, name=f"a/{number}", ttl_ms=60_000)
        await post(served, wire.SESSION_FORCE_CLOSE, session_name="s-1", reason="test")
        got = await call(served, ME, "GET", f"{wire.AUDIT}?limit=10")
        assert {event["name"] for event in got.body["events"]} == {"b/1"}
        assert got.body["hidden"] >= 6
        got = await call(served, ME, "GET", f"{wire.AUDIT}?limit=1")
        assert len(got.body["events"]) == 1
        got = await call(served, ALL, "GET", wire.AUDIT)
        assert "hidden" not in got.body
        assert "" in {event["name"] for event in got.body["events"]}


async def test_a_ticket_that_may_not_be_read_is_as_if_there_were_none() -> None:
    """Its number is public, and easy to guess."""
    async with serving(tokens=LINES) as served:
        await post(served, wire.LOCK_ACQUIRE, name="a", ttl_ms=60_000)
        waiting = asyncio.ensure_future(
            post(served, wire.LOCK_ACQUIRE, name="a", ttl_ms=60_000, wait_ms=60_000)
        )
        await until(lambda: served.node.machine.lock("a").queue)
        number = served.node.machine.lock("a").queue[0].ticket
        assert (await call(served, ALL, "GET", f"/v1/tickets/{number}")).status == 200
        got = await call(served, ME, "GET", f"/v1/tickets/{number}")
        none = await call(served, ME, "GET", "/v1/tickets/99")
        assert (got.status, got.body["detail"]) == (none.status, none.body["detail"])
        assert got.status == 410
        waiting.cancel()


async def test_what_a_session_has_is_shown_as_far_as_it_may_be_read() -> None:
    """To those that know its public name. Whose it is sees all."""
    async with serving(tokens=LINES) as served:
        session = (await post(served, wire.SESSIONS, ttl_ms=60_000)).body["session_id"]
        for name in ("a/1", "b/1"):
            await post(served, wire.LOCK_ACQUIRE, name=name, session_id=session)
        public = (await call(served, ALL, "GET", f"/v1/sessions/{session}")).body["session_name"]
        got = await call(served, ME, "GET", f"{wire.HOLDS}?session_name={public}")
        assert [hold["name"] for hold in got.body["holds"]] == ["b/1"]
        assert got.body["hidden"] == 1
        got = await call(served, ALL, "GET", f"/v1/sessions/{session}")
        assert len(got.body["holds"]) == 2
