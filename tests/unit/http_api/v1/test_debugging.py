"""What a node gives to those that look for a mistake: its log without secrets, its settings, where it is."""

import asyncio
import logging
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.config import load
from holdfast import wire
from http_api.server import logs
from http_api.server.log_level import LogLevel
from tests.unit.http_api.serving import Served, bearer, check_problem, serving, token_line, until

OPS = "hft_" + "o" * 43
LINES = token_line("ops", OPS, "admin")


@pytest.fixture(autouse=True)
def _level() -> Iterator[None]:
    """Leave the level of this process as it was."""
    root = logging.getLogger()
    before = root.level
    root.setLevel(logging.INFO)
    yield
    root.setLevel(before)


async def test_threads_and_tasks_are_shown_where_they_are() -> None:
    """Each place once, with names and lines and nothing of what they work on."""
    secret = secrets.token_hex(8)
    release, started = threading.Event(), threading.Event()

    def wait_in_thread(what: str) -> None:
        assert what == secret
        started.set()
        release.wait()

    async def wait_in_task(what: str) -> None:
        assert what == secret
        await asyncio.Event().wait()

    thread = threading.Thread(target=wait_in_thread, args=(secret,), name="a-thread")
    thread.start()
    tasks = [asyncio.create_task(wait_in_task(secret), name=f"a-task-{number}") for number in range(3)]
    try:
        await asyncio.to_thread(started.wait)
        async with serving() as served:
            got = await served.call("GET", wire.CLUSTER_DEBUG)
        assert got.status == 200
        (alike,) = [stack for stack in got.body["tasks"] if "a-task-0" in stack["names"]]
        assert alike["count"] == 3
        assert "wait_in_task" in alike["calls"][0]
        assert "Event.wait" in alike["calls"][1]
        (one,) = [stack for stack in got.body["threads"] if "a-thread" in stack["names"]]
        assert any("test_debugging.py" in call and "wait_in_thread" in call for call in one["calls"])
        assert secret not in str(got.body)
    finally:
        release.set()
        thread.join()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_the_newest_lines_are_kept() -> None:
    """So many, and so many bytes; of a very long line its beginning."""
    kept = logs.Kept(lines_max=3)
    for number in range(5):
        kept.add(str(number))
    assert (kept.shown(), kept.count) == (("2", "3", "4"), 5)
    kept = logs.Kept(bytes_max=30_000)
    for _ in range(5):
        kept.add("x" * 100_000)
    assert [len(line) for line in kept.shown()] == [8_195] * 3


@pytest.mark.parametrize("shown_count", [1, 7, 31, 32, 63])
def test_an_id_at_the_end_of_what_is_kept(shown_count: int) -> None:
    """A part of an id is nearly the whole of it."""
    kept = logs.Kept()
    kept.add("x " * 4_096 + "y")
    kept.add(f"{'x ' * 4_096}"[shown_count:] + "0123456789abcdef" * 4)
    assert "0123456" not in kept.shown()[1]


def test_what_looks_like_a_secret_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """An id, a token, and what stands in a header; other words are whole."""
    kept = logs.Kept()
    hold_id = secrets.token_hex(16)
    for line in (
        f"event=a hold={hold_id} b=1",
        f"token {OPS}!",
        "Authorization: Bearer abc.def",
        "event=ready n=1",
    ):
        kept.add(line)
    # When a line is kept, and not each time that somebody asks: a node would do little else for many of them.
    monkeypatch.setattr(logs, "_LIKE_SECRETS", ())
    assert kept.shown() == (
        f"event=a hold={hold_id[:6]}... b=1",
        "token hft_oo...",
        "Authorization: Bearer abc.de...",
        "event=ready n=1",
    )


def test_what_is_logged_is_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """As it was written to standard error, with tracebacks."""
    kept = logs.Kept()
    monkeypatch.setattr(logs, "kept", kept)
    root = logging.getLogger()
    before = root.handlers[:]
    try:
        logs.set_up("info", "text")
        logging.getLogger("http_api").info("event=one n=%d", 1)
        logging.getLogger("http_api").debug("event=none")
    finally:
        root.handlers[:] = before
    assert "\n".join(kept.shown()) + "\n" == capsys.readouterr().err
    assert kept.count == 1


def test_settings_are_shown_without_secrets(tmp_path: Path) -> None:
    """All of them but those, as texts."""
    file = tmp_path / "secret"
    file.write_text("current: c-secret-of-the-file\nnext: n-secret-of-the-file\n")
    shown = load(["--secret-file", str(file), "--peers", "n1=a:1,n2=b:2", "--allow-host", "x,y"], {}).shown
    assert shown["secret_file"] == str(file)
    assert shown["peers"] == "n1=a:1,n2=b:2"
    assert (shown["http"], shown["allow_hosts"], shown["join"]) == ("127.0.0.1:7700", "x,y", "false")
    assert (shown["tls_cert"], shown["heartbeat_ms"]) == ("", "100")
    assert "of-the-file" not in str(shown)
    assert "secret" not in shown
    shown = load(["--secret", "a-secret-of-a-flag"], {}).shown
    assert "of-a-flag" not in str(shown)


async def _set(served: Served, level: object, **fields: object) -> tuple[int, dict[str, object]]:
    body = {"node_id": "n1", "level": level, **fields}
    got = await served.call("PUT", wire.CLUSTER_LOG_LEVEL, body, headers=bearer(OPS))
    return got.status, got.body


async def test_a_level_is_set_for_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """Status shows it, the log says by whom, and the level of the settings ends it."""
    async with serving(tokens=LINES) as served:
        status, told = await _set(served, "debug", for_ms=60_000)
        assert (status, told["level"], told["before"]) == (200, "debug", "info")
        assert told["ends_in_ms"] in range(59_000, 60_001)
        assert logging.getLogger().level == logging.DEBUG
        assert "event=log-level-set level=debug before=info for_ms=60000 by=ops" in caplog.text
        status, told = await _set(served, "info")
        assert (status, told["before"], told["ends_in_ms"]) == (200, "debug", None)
        assert logging.getLogger().level == logging.INFO


async def test_a_level_goes_back_by_itself(caplog: pytest.LogCaptureFixture) -> None:
    """When its time is over, whatever it was; it is told even if errors alone are logged meanwhile."""
    level = LogLevel()
    level.set("error", 1, "")
    assert (level.now, level.ends_in_ms() in range(2)) == ("error", True)
    await until(lambda: level.now == "info")
    assert (level.now, level.ends_in_ms()) == ("info", None)
    assert "event=log-level-set level=error before=info for_ms=1 by=-" in caplog.text
    assert "event=log-level-back level=info before=error" in caplog.text


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"level": "trace"}, "must be one of debug, info, warning, error"),
        ({"level": "debug", "for_ms": 1}, "for_ms: 1; must be 1000 to 86400000"),
        ({"level": "debug", "node_id": "n2"}, "this is node n1"),
    ],
)
async def test_a_wrong_request_changes_nothing(body: dict[str, object], said: str) -> None:
    """It is told what is allowed."""
    async with serving() as served:
        got = await served.call("PUT", wire.CLUSTER_LOG_LEVEL, {"node_id": "n1", **body})
        check_problem(got, 400, "invalid-request")
        assert said in got.body["detail"]
    assert logging.getLogger().level == logging.INFO
