"""What an answer of a node means to a client of the lab, and what it records."""

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from lab.chaos.client import Client
from lab.chaos.history import HistoryWriter, Operation, read_history
from lab.chaos.http_client import Attempt, judge, open_session, send
from lab.chaos.lab import Lab


@pytest.mark.parametrize(
    ("status", "body", "fate"),
    [
        (200, {"token": 1}, "ok"),
        (201, {"session_id": "s"}, "ok"),
        (409, {"code": "lock-held", "outcome": "not-applied"}, "refused"),
        (410, {"code": "lease-expired", "outcome": "not-applied"}, "refused"),
        (503, {"code": "no-leader", "outcome": "not-applied"}, "try-again"),
        (429, {"code": "overloaded", "outcome": "not-applied"}, "try-again"),
        (504, {"code": "outcome-unknown", "outcome": "unknown"}, "lost"),
        (500, {"code": "internal", "outcome": "unknown"}, "lost"),
        (502, {"message": "of a proxy"}, "lost"),
    ],
)
def test_what_an_answer_means(status: int, body: dict[str, Any], fate: str) -> None:
    """Only `not-applied` says that nothing happened, and only some of those codes are outcomes."""
    assert judge(status, json.dumps(body).encode()).fate == fate


def test_an_answer_that_is_not_json() -> None:
    """Half an answer, or one of somebody else, says nothing about the outcome."""
    assert judge(200, b'{"tok').fate == "lost"
    assert judge(200, b"[1]").fate == "lost"


async def recorded(tmp_path: Path, answers: list[tuple[int, dict[str, Any]]]) -> tuple[Operation, list[str]]:
    """Ask a node that gives these answers in turn; return what was recorded, and the request ids it got."""
    ids: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        ids.append((await request.json())["request_id"])
        status, body = answers[min(len(ids), len(answers)) - 1]
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_post("/v1/locks/acquire", answer)
    async with TestServer(app) as server:
        with HistoryWriter(tmp_path / "history") as history:
            lab = Lab({"n1": str(server.make_url("")).rstrip("/")}, history, seed=1, patience_s=0.3)
            async with Client(lab, "w", 1) as client:
                await client.acquire("a", ttl_ms=1000)
    [operation] = read_history(tmp_path / "history").operations
    return operation, ids


NO_LEADER = (503, {"code": "no-leader", "outcome": "not-applied"})
UNKNOWN = (504, {"code": "outcome-unknown", "outcome": "unknown"})
HELD = (409, {"code": "lock-held", "outcome": "not-applied"})
GRANTED = (200, {"hold_id": "secret", "token": 3, "expires_in_ms": 1000})


async def test_a_lost_answer_is_asked_for_again(tmp_path: Path) -> None:
    """The same request id again brings the outcome; the hold is recorded without its secret."""
    operation, ids = await recorded(tmp_path, [NO_LEADER, UNKNOWN, GRANTED])
    assert (operation.outcome, operation.attempts, operation.lost) == ("ok", 3, 1)
    assert len(set(ids)) == 1
    assert operation.result["token"] == 3
    assert operation.call_ns <= operation.result["sent_ns"] <= operation.return_ns
    assert "secret" not in (tmp_path / "history").read_text()


async def test_an_outcome_that_never_comes(tmp_path: Path) -> None:
    """One lost attempt makes it unknown, whatever the others were; without one nothing has happened."""
    operation, _ = await recorded(tmp_path, [UNKNOWN, NO_LEADER])
    assert (operation.outcome, operation.code) == ("unknown", "no-leader")
    (tmp_path / "history").unlink()
    operation, _ = await recorded(tmp_path, [NO_LEADER])
    assert (operation.outcome, operation.lost) == ("refused", 0)


async def test_a_refusal_is_an_outcome(tmp_path: Path) -> None:
    """It ends the request, also after a lost attempt: the id would have brought another one."""
    operation, ids = await recorded(tmp_path, [UNKNOWN, HELD, GRANTED])
    assert (operation.outcome, operation.code, len(ids)) == ("refused", "lock-held", 2)


async def test_what_has_no_id_may_find_its_own_work(tmp_path: Path) -> None:
    """The end of a session that is asked for again is told that there is none: by whom, nobody knows."""
    answers = [(504, {"code": "outcome-unknown", "outcome": "unknown"})]
    answers += [(410, {"code": "session-expired", "outcome": "not-applied"})] * 2

    async def answer(request: web.Request) -> web.Response:
        del request
        status, body = answers.pop(0)
        return web.json_response(body, status=status)

    app = web.Application()
    app.router.add_delete("/v1/sessions/s", answer)
    async with TestServer(app) as server:
        with HistoryWriter(tmp_path / "history") as history:
            lab = Lab({"n1": str(server.make_url("")).rstrip("/")}, history, seed=1, patience_s=5)
            async with Client(lab, "w", 1) as client:
                for _ in range(2):
                    await client.ask("session-close", "w-1", "/v1/sessions/s", method="DELETE")
    repeated, single = read_history(tmp_path / "history").operations
    assert (repeated.outcome, repeated.code, repeated.lost) == ("unknown", "session-expired", 1)
    assert (single.outcome, single.lost) == ("refused", 0)


async def after_a_break(*, is_back: bool) -> tuple[list[str], Attempt]:
    """Send a DELETE on a connection in use to a node that does it, and breaks the connection.

    If it `is_back` then, it knows of nothing that could end; else it is gone. Return what reached it, and
    what the client makes of it.
    """
    seen: list[str] = []

    async def alive(request: web.Request) -> web.Response:
        del request
        return web.json_response({})

    async def done_and_gone(request: web.Request) -> web.Response:
        seen.append(request.method)
        if len(seen) > 1:
            return web.json_response({"code": "session-expired", "outcome": "not-applied"}, status=410)
        if not is_back:
            assert server.runner is not None
            for site in list(server.runner.sites):  # listens no more
                await site.stop()
        assert request.transport is not None
        request.transport.abort()
        return web.json_response({})

    app = web.Application()
    app.router.add_get("/livez", alive)
    app.router.add_delete("/v1/sessions/s", done_and_gone)
    async with TestServer(app) as server, open_session(aiohttp.TCPConnector()) as session:
        url = str(server.make_url("")).rstrip("/")
        assert (await send(session, "GET", f"{url}/livez", None, 5)).fate == "ok"
        return seen, await send(session, "DELETE", f"{url}/v1/sessions/s", None, 5)


async def test_what_the_library_sends_again_may_have_been_done() -> None:
    """A node that dies while it ends a session has perhaps ended it, though nobody listens any more."""
    seen, attempt = await after_a_break(is_back=False)
    assert (seen, attempt.fate) == (["DELETE"], "lost")
    assert attempt.code.startswith("not-connected")


async def test_what_was_sent_twice_has_no_sure_refusal() -> None:
    """The second request is told that there is no such session: perhaps because of the first."""
    seen, attempt = await after_a_break(is_back=True)
    assert seen == ["DELETE", "DELETE"]
    assert (attempt.fate, attempt.code) == ("lost", "session-expired")


async def test_a_client_stays_with_a_node_that_answers_until_it_goes_home(tmp_path: Path) -> None:
    """Clients that never went back would all meet at one node after a few faults."""

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(GRANTED[1])

    async def refuse(_request: web.Request) -> web.Response:
        return web.json_response(NO_LEADER[1], status=503)

    good, bad = web.Application(), web.Application()
    good.router.add_post("/v1/locks/acquire", answer)
    bad.router.add_post("/v1/locks/acquire", refuse)
    async with TestServer(good) as serving, TestServer(bad) as silent:
        nodes = {"n1": str(silent.make_url("")).rstrip("/"), "n2": str(serving.make_url("")).rstrip("/")}
        with HistoryWriter(tmp_path / "history") as history:
            async with Client(Lab(nodes, history, seed=1, patience_s=5), "w", 0) as client:
                for _ in range(2):
                    await client.acquire("a", ttl_ms=1000)
                client.go_home()
                await client.acquire("a", ttl_ms=1000)
    told = [(item.node, item.attempts) for item in read_history(tmp_path / "history").operations]
    assert told == [("n2", 2), ("n2", 1), ("n2", 2)]
