"""`holdfast debug` and `holdfast log-level`: one archive of all nodes, whole or not there; what it lacks."""

import json
import logging
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from holdfast import wire
from holdfast.cli import debug
from holdfast.cli.main import _main, build_parser
from scripts.lib.ports import reserve
from tests.unit.holdfast.scripted import ScriptedNode, Step, problem, silence
from tests.unit.http_api.serving import serving, token_line

WORKER, ADMIN = "hft_worker".ljust(47, "w"), "hft_admin".ljust(47, "a")
LINES = token_line("worker", WORKER, "read,acquire@mine") + token_line("boss", ADMIN, "admin,metrics")
ALL = {"status.json", "metrics.txt", "debug.json", "log.txt"}
LONG_MS = "60s"


async def run(*words: str, token: Path | None = None) -> int:
    """Carry out a command in this process."""
    before = ["--token-file", str(token)] if token is not None else []
    arguments = build_parser().parse_args([*before, *words])
    arguments.argv = []
    return await _main(arguments)


def files_in(path: Path) -> dict[str, bytes]:
    """Return what is in an archive, by name."""
    with tarfile.open(path) as archive:
        return {
            member.name.removeprefix("holdfast-debug/"): file.read()
            for member in archive.getmembers()
            if (file := archive.extractfile(member)) is not None
        }


def token_in(tmp_path: Path, token: str) -> Path:
    """Return a file with a token."""
    path = tmp_path / "token"
    path.write_text(token)
    return path


async def test_an_archive_has_what_the_node_gives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is readable for its owner alone, and has no token."""
    path, token = tmp_path / "a.tar.gz", token_in(tmp_path, ADMIN)
    async with serving(tokens=LINES) as served:
        words = ("--nodes", f"http://127.0.0.1:{served.port}", "debug", str(path))
        path.write_text("an older one")
        assert await run(*words, token=token) == 2
        assert "is there already: name another file, or replace it with --force" in capsys.readouterr().err
        assert path.read_text() == "an older one"
        assert await run(*words, "--force", token=token) == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    found = files_in(path)
    assert set(found) == {"summary.json", *(f"n1/{name}" for name in ALL)}
    assert json.loads(found["n1/status.json"])["node_id"] == "n1"
    assert b"holdfast_" in found["n1/metrics.txt"]
    assert json.loads(found["n1/debug.json"])["tasks"]
    (node,) = json.loads(found["summary.json"])["nodes"]
    assert (node["node_id"], set(node["has"]), node["missing"]) == ("n1", ALL, {})
    assert not any(token.encode() in content for token in (ADMIN, WORKER) for content in found.values())
    assert capsys.readouterr().out == f"wrote {path}: n1\n"


async def test_what_could_not_be_had_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the archive and at the terminal: a right that is missing, a node that is down."""
    path, down = tmp_path / "a.tar.gz", f"http://127.0.0.1:{reserve(1)[0]}"
    async with serving(tokens=LINES) as served:
        nodes = f"http://127.0.0.1:{served.port},{down}"
        code = await run("--nodes", nodes, "debug", str(path), token=token_in(tmp_path, WORKER))
    assert code == 3
    said = capsys.readouterr()
    assert "n1: no debug: " in said.err
    assert "right admin" in said.err
    assert f"wrote {path}: n1; 2 parts are missing" in said.out
    found = files_in(path)
    assert set(found) == {"summary.json", "n1/status.json"}
    (node,) = json.loads(found["summary.json"])["nodes"]
    assert set(node["missing"]) == {"debug", "metrics"}


def answers(status: dict[str, Any] | None, others: Step) -> Step:
    """Tell the status, and answer everything else so."""

    async def step(request: web.Request) -> web.StreamResponse:
        if request.path == wire.CLUSTER and status is not None:
            return web.json_response(status)
        return await others(request)

    return step


async def test_a_member_that_was_not_named_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the URL that the others know; one that is silent keeps nobody waiting for long."""
    monkeypatch.setattr(debug, "ASK_S", 0.5)
    path, silent = tmp_path / "a.tar.gz", ScriptedNode(silence)
    async with serving() as served, silent:
        url = f"http://127.0.0.1:{served.port}"
        node = {"state": "follower", "revision": 1, "peer": "a:1"}
        nodes = [{"id": "n1", "http": url, **node}, {"id": "n2", "http": silent.url, **node}]
        status = {
            "node_id": "n3", "leader": "n1", "term": 1, "revision": 1, "lag_ms": 0, "ready": True,
            "nodes": nodes,
        }  # fmt: skip
        first = ScriptedNode(answers(status, problem("not-ready")))
        async with first:
            assert await run("--nodes", first.url, "debug", str(path)) == 3
    found = files_in(path)
    assert {"n3/status.json", "n1/log.txt", "n1/debug.json"} <= set(found)
    told = {node["node_id"]: node["missing"] for node in json.loads(found["summary.json"])["nodes"]}
    assert set(told["n2"]) == {"status", "metrics", "debug"}
    assert set(told["n3"]) == {"metrics", "debug"}
    assert "n2: no status: " in capsys.readouterr().err


async def test_nothing_is_written_if_no_node_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file that was there stays."""
    path = tmp_path / "a.tar.gz"
    path.write_text("an older one")
    assert await run("--nodes", f"http://127.0.0.1:{reserve(1)[0]}", "debug", str(path), "--force") == 121
    assert path.read_text() == "an older one"
    assert "nothing was changed" in capsys.readouterr().err


async def test_a_file_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left of it; a directory is told at once."""
    async with serving() as served:
        url = f"http://127.0.0.1:{served.port}"
        assert await run("--nodes", url, "debug", str(tmp_path)) == 2
        path = tmp_path / "a.tar.gz"

        def full(*_: object, **__: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(tarfile.TarFile, "addfile", full)
        assert await run("--nodes", url, "debug", str(path)) == 119
    assert not [*tmp_path.iterdir()]  # noqa: ASYNC240


async def test_a_node_logs_more_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    """It is told for how long; an id of no member is refused with those that there are."""
    root = logging.getLogger()
    before = root.level
    try:
        async with serving() as served:
            url = f"http://127.0.0.1:{served.port}"
            assert await run("--nodes", url, "log-level", "n1", "debug", "--for", LONG_MS) == 0
            told = capsys.readouterr().out
            assert told.startswith("n1 logs debug and above for ")
            assert "then as its settings say" in told
            assert root.level == logging.DEBUG
            assert await run("--nodes", url, "log-level", "n9", "debug") == 119
            assert "'n9' is not a node; there are n1" in capsys.readouterr().err
            word = logging.getLevelName(before).lower()
            assert await run("--nodes", url, "log-level", "n1", word) == 0
            assert root.level == before
    finally:
        root.setLevel(before)
