"""The tokens file of a running node: new lines are taken, wrong ones change nothing, odd ones are told of."""

# ruff: noqa: ASYNC240 - the node needs a loop, and nothing else runs on it

import asyncio
import logging
import os
import time
from pathlib import Path

import pytest

from cluster.errors import NoLeader
from holdfast import token_lines
from http_api import tokens_watch
from http_api.server.authentication import Authentication
from http_api.tokens_watch import TokensUnusable, TokensWatch
from lockapi.gateway import Gateway
from lockapi.problems import ProblemError
from lockapi.rights import EVERYTHING, Principal
from lockstate.words.commands.holds import Acquire
from lockstate.words.events import EventKind
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode
from lockstate.words.results import Granted
from tests.support.local_node import LocalNode
from tests.unit.http_api.serving import token_line, until

OLD, NEW = "o" * 40, "n" * 40


@pytest.fixture(autouse=True)
def _all_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the file, with one principal."""
    path = tmp_path / "tokens"
    path.write_bytes(token_line("old", OLD, "read"))
    path.chmod(0o600)
    return path


def watching(path: Path, *, has_client_certificates: bool = True) -> tuple[TokensWatch, Authentication]:
    """Return a watch of the file, and what it serves."""
    watch = TokensWatch(path, has_client_certificates=has_client_certificates)
    authentication = Authentication(Gateway(LocalNode()), watch.samples)
    watch.serve(authentication)
    return watch, authentication


def known(authentication: Authentication, token: str) -> bool:
    """Whether somebody has this token."""
    assert authentication.principals is not None
    return authentication.principals.of_token(token.encode()) is not None


def refused(authentication: Authentication) -> float:
    """Return what the metric says."""
    (value,) = [one[4] for one in authentication.samples() if one[0] == "holdfast_http_tokens_file_refused"]
    return value


async def test_new_lines_are_taken_when_they_rest(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that is being written is not read: half of it could shut somebody out."""
    watch, authentication = watching(path)
    watch.look()
    path.write_bytes(token_line("new", NEW, "read"))
    watch.look()
    assert known(authentication, OLD)
    path.write_bytes(token_line("new", NEW, "read") + token_line("old", OLD, "read"))
    watch.look()
    assert not known(authentication, NEW)
    watch.look()
    assert known(authentication, NEW)
    assert known(authentication, OLD)
    assert "event=tokens-read" in caplog.text
    assert "principals=2" in caplog.text


@pytest.mark.parametrize("content", [None, b"", b"junk", token_line("a", NEW, "write"), b"\xff\xfe"])
async def test_a_wrong_file_leaves_the_old_in_force(
    path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told once, or to whoever asks, and seen in a metric; the next good one is taken."""
    watch, authentication = watching(path)
    assert refused(authentication) == 0
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    for _ in range(4):
        watch.look()
    assert known(authentication, OLD)
    assert caplog.text.count("event=tokens-not-read") == 1
    assert "the present principals stay in force" in caplog.text
    assert refused(authentication) == 1
    watch.look(is_asked=True)
    assert caplog.text.count("event=tokens-not-read") == 2
    path.write_bytes(token_line("new", NEW, "read"))
    watch.look()
    watch.look()
    assert known(authentication, NEW)
    assert refused(authentication) == 0


async def test_connections_keep_what_they_have_proven_if_nothing_changed(path: Path) -> None:
    """A file that was only touched is the same."""
    watch, authentication = watching(path)
    principals = authentication.principals
    os.utime(path, (1, 1))
    watch.look()
    watch.look()
    assert authentication.principals is principals


@pytest.mark.parametrize("content", [None, b"", b"# nobody\n"])
def test_a_node_does_not_begin_without_principals(path: Path, content: bytes | None) -> None:
    """It was told to let only those in."""
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    with pytest.raises(TokensUnusable, match=r"^tokens: '.*tokens': "):
        TokensWatch(path, has_client_certificates=True)


def test_only_a_file_is_read(tmp_path: Path) -> None:
    """A pipe would be waited for, and a directory says nothing."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises(TokensUnusable, match="must be a regular file"):
            tokens_watch.read(path)


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        (0o600, ""),
        (0o640, ""),
        (0o644, "other users can read the rights of all principals"),
        (0o620, "other users can write it, and so give themselves any right"),
        (0o666, "other users can write it"),
    ],
)
async def test_a_file_that_others_can_use_is_told_of(
    path: Path, mode: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It works all the same: who may read files is the operator's business."""
    path.chmod(mode)
    watching(path)
    assert ("event=config-warning" in caplog.text) is bool(said)
    assert said in caplog.text


async def test_lines_that_do_nothing_are_told_of(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those whose time is over, by name; and certificates where nobody is asked for one."""
    path.write_bytes(token_line("a", OLD, "read until=2020-01-01") + b"b cert:x read\n")
    watching(path, has_client_certificates=False)
    assert "a expired (until=): remove the lines" in caplog.text
    assert "lines with cert: have no effect without --tls-client-ca" in caplog.text


async def test_a_task_looks_by_itself_and_when_asked(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a second, and at SIGHUP; many lines are read in a thread."""
    monkeypatch.setattr(tokens_watch, "LOOK_S", 1000.0)
    watch, authentication = watching(path)
    watch.start()
    many = b"".join(
        [token_line(f"w{number}", f"{number:040}", f"acquire@w/{number}") for number in range(10_000)]
    )
    path.write_bytes(many)
    watch.read_now()
    await until(lambda: known(authentication, f"{9_999:040}"))
    monkeypatch.setattr(tokens_watch, "LOOK_S", 0.001)
    watch.read_now()
    path.write_bytes(token_line("new", NEW, "read"))
    await until(lambda: known(authentication, NEW))
    await watch.stop()


def test_ten_thousand_lines_are_read_soon() -> None:
    """A file of that size does not hold a start up."""
    many = b"".join([token_line(f"w{number}", f"{number:040}", "acquire@w") for number in range(10_000)])
    began_s = time.process_time()
    assert len(token_lines.parse(many)) == 10_000
    assert time.process_time() - began_s < 5


# -- what those wait for that are shut out -------------------------------------------------------------------


async def _look(watch: TokensWatch) -> None:
    await watch.look_aside(is_asked=False)


def _of(authentication: Authentication, name: str) -> Gateway:
    return authentication.gateway.of(Principal(name, EVERYTHING))


def _asking(name: str, hold_id: str, wait_ms: int = 60_000) -> Acquire:
    return Acquire(name, Mode.EXCLUSIVE, HoldId(hold_id), AttemptId("a"), ttl_ms=60_000, wait_ms=wait_ms)


async def test_waits_of_a_principal_that_was_removed_end(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """At the next look, with the reason; others wait on, holds stay, and so does who is let in again."""
    path.write_bytes(token_line("old", OLD, "acquire") + token_line("new", NEW, "acquire"))
    watch, authentication = watching(path)
    node = authentication.gateway.node
    assert isinstance(node, LocalNode)
    old, new = _of(authentication, "old"), _of(authentication, "new")
    await old.submit(_asking("a", "h1", 0), Granted, 5)
    waits = [
        asyncio.ensure_future(gateway.acquire(_asking("a", hold_id), Granted, 60))
        for gateway, hold_id in ((old, "h2"), (new, "h3"), (old, "h4"))
    ]
    await until(lambda: len(node.machine.lock("a").queue) == len(waits))
    await _look(watch)
    assert not any(wait.done() for wait in waits)
    path.write_bytes(token_line("new", NEW, "acquire"))
    await _look(watch)
    await _look(watch)
    for ended in (waits[0], waits[2]):
        with pytest.raises(ProblemError, match="principal 'old' is not let in any more by n1") as caught:
            await ended
        assert caught.value.code == "ticket-ended"
    assert not waits[1].done()
    assert list(node.machine.state.holds) == ["h1"]
    assert "event=shut-out-waits-ended principal='old' count=2" in caplog.text
    (told,) = node.machine.audit("a", limit=1)
    assert (told.kind, told.principal, told.by) == (EventKind.WAIT_FORCED, "old", "")
    path.write_bytes(token_line("new", NEW, "acquire") + token_line("old", OLD, "acquire"))
    await _look(watch)
    await _look(watch)
    late = asyncio.ensure_future(old.acquire(_asking("a", "h5"), Granted, 60))
    await until(lambda: len(node.machine.lock("a").queue) == 2)
    await _look(watch)
    assert not late.done()
    for wait in (late, waits[1]):
        wait.cancel()
    await asyncio.gather(late, waits[1], return_exceptions=True)


async def test_waits_of_a_principal_whose_time_is_over_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file need not change for that."""
    until_s = round(time.time()) + 3600
    path.write_bytes(token_line("old", OLD, f"acquire until={_date(until_s)}"))
    watch, authentication = watching(path)
    gateway = _of(authentication, "old")
    await authentication.gateway.submit(_asking("a", "h1", 0), Granted, 5)
    wait = asyncio.ensure_future(gateway.acquire(_asking("a", "h2"), Granted, 60))
    node = authentication.gateway.node
    await until(lambda: node.machine.lock("a").queue)
    await _look(watch)
    assert not wait.done()
    monkeypatch.setattr(time, "time", lambda: until_s + 1.0)
    await _look(watch)
    with pytest.raises(ProblemError, match="not let in any more"):
        await wait


async def test_a_node_ends_no_waits_of_those_it_never_knew(path: Path) -> None:
    """Another node may have a newer file, which lets them in."""
    watch, authentication = watching(path)
    await authentication.gateway.submit(_asking("a", "h1", 0), Granted, 5)
    wait = asyncio.ensure_future(_of(authentication, "newer").acquire(_asking("a", "h2"), Granted, 60))
    node = authentication.gateway.node
    await until(lambda: node.machine.lock("a").queue)
    await watch.look_aside(is_asked=True)
    assert not wait.done()
    wait.cancel()
    await asyncio.gather(wait, return_exceptions=True)


async def test_what_cannot_be_ended_now_ends_later(path: Path) -> None:
    """While the cluster has no leader the look goes on; the next one tries it again."""
    watch, authentication = watching(path)
    node = authentication.gateway.node
    assert isinstance(node, LocalNode)
    await authentication.gateway.submit(_asking("a", "h1", 0), Granted, 5)
    wait = asyncio.ensure_future(_of(authentication, "old").acquire(_asking("a", "h2"), Granted, 60))
    await until(lambda: node.machine.lock("a").queue)
    path.write_bytes(token_line("new", NEW, "read"))
    node.failure = NoLeader("nobody leads")
    await _look(watch)
    await _look(watch)
    assert not wait.done()
    node.failure = None
    await _look(watch)
    with pytest.raises(ProblemError):
        await wait


def _date(unix_s: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_s))
