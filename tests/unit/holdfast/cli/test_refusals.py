"""What was refused because of who asked, by both clients and by `holdfast refusals`, which asks all nodes."""

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

import holdfast
from holdfast import wire
from holdfast.cli.main import _main, build_parser
from tests.unit.holdfast.conftest import NewClient
from tests.unit.holdfast.scripted import ScriptedNode, Step, problem, silence
from tests.unit.http_api.serving import Served, bearer, serving, token_line

WORKER, ADMIN = "hft_worker".ljust(47, "w"), "hft_admin".ljust(47, "a")
LINES = token_line("worker", WORKER, "read,acquire@mine") + token_line("boss", ADMIN, "admin")


async def refuse(served: Served) -> None:
    """Let a worker reach for what is not its own, and a stranger for anything."""
    for headers in (bearer(WORKER), bearer("nobody")):
        got = await served.call(
            "POST", wire.LOCK_ACQUIRE, {"name": "other", "ttl_ms": 60_000}, headers=headers
        )
        assert got.status in (401, 403)


async def test_an_administrator_is_told_what_was_refused(new_client: NewClient) -> None:
    """By either client, the newest first and so many; nobody else is."""
    async with serving(tokens=LINES) as served:
        await refuse(served)
        url = f"http://127.0.0.1:{served.port}"
        async with new_client(url, token=ADMIN) as client:
            shown = await client.admin.refusals()
            assert (shown.count, shown.node_id) == (2, "n1")
            stranger, worker = shown.refusals
            assert isinstance(worker, holdfast.RefusedAttempt)
            assert (worker.principal, worker.code, worker.route) == ("worker", "forbidden", wire.LOCK_ACQUIRE)
            assert (stranger.principal, stranger.code) == ("", "unauthenticated")
            assert [one.number for one in (await client.admin.refusals(limit=1)).refusals] == [2]
        async with new_client(url, token=WORKER) as client:
            with pytest.raises(holdfast.AccessDenied):
                await client.admin.refusals()


class Line:
    """The command, in this process."""

    def __init__(
        self,
        capsys: pytest.CaptureFixture[str],
        *urls: str,
        token_file: Path | None = None,
        timeout: str = "1s",
    ) -> None:
        self._capsys = capsys
        token = ["--token-file", str(token_file)] if token_file else []
        self._before = ["--nodes", ",".join(urls), "--timeout", timeout, *token, "refusals"]

    async def __call__(self, *argv: str) -> tuple[int, list[str], str]:
        """Run the command; return its exit code, the lines of its output, and what it said besides."""
        arguments = build_parser().parse_args([*self._before, *argv])
        arguments.argv = []
        code = await _main(arguments)
        captured = self._capsys.readouterr()
        return code, captured.out.splitlines(), captured.err


async def test_a_table_shows_who_tried_what(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The newest last; with --json a document in each line."""
    token_file = tmp_path / "token"
    token_file.write_text(ADMIN)
    async with serving(tokens=LINES) as served:
        await refuse(served)
        line = Line(capsys, f"http://127.0.0.1:{served.port}", token_file=token_file)
        code, (titles, worker, stranger), err = await line()
        assert (code, err) == (0, "")
        assert titles.split() == ["TIME", "NODE", "PRINCIPAL", "ADDRESS", "CODE", "CALL", "DETAIL"]
        call = ["POST", wire.LOCK_ACQUIRE]
        assert worker.split()[1:7] == ["n1", "worker", "127.0.0.1", "forbidden", *call]
        assert "the right acquire for 'other'" in worker
        assert stranger.split()[1:7] == ["n1", "-", "127.0.0.1", "unauthenticated", *call]
        assert worker.split()[0] <= stranger.split()[0]
        assert worker.split()[0].endswith("Z")
        code, (only,), _ = await line("-o", "jsonl", "--limit", "1")
        shown = json.loads(only)
        assert (code, shown["node_id"], shown["number"], shown["principal"]) == (0, "n1", 2, "")
        token_file.write_text(WORKER)
        code, out, err = await line()
        assert (code, out, "this needs the right admin" in err) == (119, [], True)


def node(node_id: str, *attempts: tuple[int, int], members: tuple[str, ...] = ("n1", "n2")) -> Step:
    """Answer as a node of a cluster that has refused attempts with these numbers, at these times."""
    told = [
        holdfast.RefusedAttempt(
            number, unix_ms, "forbidden", "ci\x1b[2J", "10.0.0.9", "GET", "/v1/locks", "no", "r"
        )
        for number, unix_ms in attempts
    ]

    async def step(request: web.Request) -> web.StreamResponse:
        if request.path == wire.CLUSTER:
            body: dict[str, Any] = {"node_id": node_id, "leader": "n1", "term": 1, "revision": 1}
            facts = {"http": "http://x", "peer": "x:1", "state": "follower", "revision": 1}
            body["nodes"] = [{"id": member, **facts} for member in members]
        else:
            body = {"refusals": told, "count": len(told), "node_id": node_id}
        return web.Response(body=msgspec.json.encode(body), content_type=wire.JSON)

    return step


async def test_all_nodes_are_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """What they tell is one list, in the order of their clocks; one that has two URLs tells it once."""
    async with (
        ScriptedNode(node("n1", (2, 3000), (1, 1000))) as one,
        ScriptedNode(node("n2", (1, 2000))) as two,
    ):
        again = one.url.replace("127.0.0.1", "localhost")
        line = Line(capsys, one.url, again, two.url)
        code, out, err = await line("-o", "jsonl")
        assert (code, err) == (0, "")
        told = [json.loads(row) for row in out]
        assert [(row["node_id"], row["number"]) for row in told] == [("n1", 1), ("n2", 1), ("n1", 2)]
        assert [json.loads(row)["unix_ms"] for row in (await line("-o", "jsonl", "--limit", "2"))[1]] == [
            2000,
            3000,
        ]
        _, (_, first, *_), _ = await line()
        assert first.startswith("1970-01-01T00:00:01.000Z  n1")
        assert "\x1b" not in first


def but(refusals: Step, members: Step) -> Step:
    """Tell the members, but answer the question for refusals so."""

    async def step(request: web.Request) -> web.StreamResponse:
        return await (members if request.path == wire.CLUSTER else refusals)(request)

    return step


async def test_a_node_that_tells_nothing_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """It is down, not asked, or broken: what the others told is shown, and the exit code says what lacks."""
    told = node("n1", (1, 1000))
    async with ScriptedNode(told) as one, ScriptedNode(but(problem("internal"), told)) as broken:
        for urls in ((one.url,), (one.url, "http://127.0.0.1:1"), (one.url, broken.url)):
            code, out, err = await Line(capsys, *urls)("-o", "jsonl")
            assert (code, [json.loads(row)["node_id"] for row in out]) == (121, ["n1"])
            assert "no answer from n2" in err


async def test_nobody_waits_for_a_node_that_is_not_needed(capsys: pytest.CaptureFixture[str]) -> None:
    """The default names three ports, and one node is enough if it is all the cluster."""
    alone = node("n1", (1, 1000), members=("n1",))
    async with ScriptedNode(alone) as one, ScriptedNode(but(silence, alone)) as hung, asyncio.timeout(60):
        code, out, err = await Line(capsys, one.url, hung.url, "http://127.0.0.1:1", timeout="10m")(
            "-o", "jsonl"
        )
        assert (code, len(out), err) == (0, 1, "")


async def test_no_answer_at_all_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    """As of any other command."""
    code, out, err = await Line(capsys, "http://127.0.0.1:1", "http://127.0.0.1:2")()
    assert (code, out, "are these nodes running" in err) == (121, [], True)
