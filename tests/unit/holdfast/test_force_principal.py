"""Operators end all that a principal has, with either client and with the command."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import holdfast
from holdfast.cli.main import _main, read
from holdfast.client import ending
from tests.unit.holdfast.conftest import NewClient, sessions_of
from tests.unit.http_api.serving import Served, serving, token_line, until

TOKENS = {name: f"token-of-{name}-".ljust(40, "x") for name in ("ann", "bob", "ops")}
LINES = b"".join(
    [
        token_line("ann", TOKENS["ann"], "read,acquire"),
        token_line("bob", TOKENS["bob"], "read,acquire"),
        token_line("ops", TOKENS["ops"], "read,acquire,force"),
    ]
)


@asynccontextmanager
async def _a_busy_node() -> AsyncIterator[tuple[Served, str, list["asyncio.Task[holdfast.Hold]"]]]:
    """Give a node where Ann has a session, holds and waits, and Bob one of each; and all waits."""
    async with serving(tokens=LINES) as served:
        url = f"http://127.0.0.1:{served.port}"
        async with (
            holdfast.Client(url, token=TOKENS["ann"]) as ann,
            holdfast.Client(url, token=TOKENS["bob"]) as bob,
        ):
            session = await ann.session(ttl=60, renew=False).open()
            await ann.lock("in/session", session=session).acquire()
            await ann.locks("x", "y", ttl=60, renew=False).acquire()
            await ann.semaphore("pool", limit=1, ttl=60, renew=False).acquire()
            await bob.lock("z", ttl=60, renew=False).acquire()
            waits = [
                asyncio.create_task(ann.locks("z", "y2", ttl=60, wait=60).acquire()),
                asyncio.create_task(ann.semaphore("pool", limit=1, ttl=60, wait=60).acquire()),
                asyncio.create_task(bob.semaphore("pool", limit=1, ttl=60, wait=60).acquire()),
            ]
            await until(lambda: served.node.machine.counts()["tickets"] == len(waits))
            yield served, url, waits
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


async def test_all_that_a_principal_has_is_ended(new_client: NewClient) -> None:
    """Its waits first, so that it is not granted what it lets go; nobody else loses anything."""
    async with _a_busy_node() as (served, url, waits), new_client(url, token=TOKENS["ops"]) as ops:
        ended = await ops.admin.force_principal("ann", reason="the token was stolen")
        assert (ended.holds, ended.waits, ended.is_finished) == (2, 2, True)
        assert ended.sessions >= 1  # and that of a stream, if its client had one
        for wait in waits[:2]:
            with pytest.raises(holdfast.Refused, match="the token was stolen"):
                await wait
        assert (await waits[2]).name == "pool"
        rows = {row.principal for row in [one async for one in ops.list_holds()]}
        assert rows == {"bob"}
        assert not [one async for one in ops.list_holds(principal="ann")]
        assert not [one async for one in ops.list_waits(principal="ann")]
        assert not [one async for one in ops.list_sessions(principal="ann")]
        told = [one for one in await ops.audit(limit=100) if one.reason == "the token was stolen"]
        assert {one.by for one in told} == {"ops"}
        assert {one.principal for one in told} == {"ann"}
        assert {one.event for one in told} == {"forced", "session-forced", "wait-forced"}
        again = await ops.admin.force_principal("ann", reason="to be sure")
        assert again == holdfast.PrincipalEnded(0, 0, 0, is_finished=True)
        assert served.node.machine.counts()["holds"] == 2


async def test_only_the_waits_of_a_principal_are_ended(new_client: NewClient) -> None:
    """Its sessions and holds go on."""
    async with _a_busy_node() as (served, url, _), new_client(url, token=TOKENS["ops"]) as ops:
        ended = await ops.admin.force_principal("ann", reason="a test", waits_only=True)
        assert ended == holdfast.PrincipalEnded(0, 0, 2, is_finished=True)
        assert sessions_of(served)
        assert served.node.machine.counts() | {"holds": 4, "tickets": 1} == served.node.machine.counts()


async def test_a_principal_that_makes_more_is_not_finished(
    new_client: NewClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ends after some rounds, and says so."""
    monkeypatch.setattr(ending, "ROUNDS_MAX", 1)
    async with _a_busy_node() as (_, url, _), new_client(url, token=TOKENS["ops"]) as ops:
        ended = await ops.admin.force_principal("ann", reason="a test")
        assert (ended.holds, ended.waits, ended.is_finished) == (2, 2, False)


async def test_the_right_to_force_everything_is_needed(new_client: NewClient) -> None:
    """Without it nothing is ended, and the refusal says which right that is."""
    async with _a_busy_node() as (served, url, _), new_client(url, token=TOKENS["bob"]) as bob:
        before = served.node.machine.counts()
        with pytest.raises(holdfast.AccessDenied, match="force"):
            await bob.admin.force_principal("ann", reason="mischief")
        assert served.node.machine.counts()["tickets"] == before["tickets"]


async def test_the_command_ends_what_a_principal_has(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how much that was, and fails if that is nothing, or not all."""
    monkeypatch.setenv("HOLDFAST_ACCESS_TOKEN", TOKENS["ops"])
    async with _a_busy_node() as (_, url, _):

        async def line(*argv: str) -> tuple[int, str, str]:
            code = await _main(read(["--nodes", url, "force", "principal", *argv, "--reason", "stolen"]))
            said = capsys.readouterr()
            return code, said.out, said.err

        code, out, _ = await line("bob", "--waits-only")
        assert (code, out) == (0, "ended 0 sessions, 0 other holds and 1 waits\n")
        with monkeypatch.context() as patch:
            patch.setattr(ending, "ROUNDS_MAX", 1)
            code, _, err = await line("ann")
            assert (code, "take it out of the tokens files first" in err) == (119, True)
        code, out, err = await line("ann")
        assert (code, out) == (119, "")
        assert "principal 'ann' has nothing; nothing was ended" in err
