"""The commands of the command line at a real node: what they print, and how they exit."""

import asyncio
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.cli import completion, exit_codes
from holdfast.cli.main import _main, build_parser, read
from tests.unit.holdfast.conftest import a_node
from tests.unit.holdfast.scripted import ScriptedNode, answer, problem

DEADLINE_S = 60
ROOT = Path(__file__).resolve().parents[4]
KINDS = ("locks", "semaphores", "elections", "rate-limits", "fences", "cells", "sessions", "holds")


class Line:
    """The command line, in this process."""

    def __init__(self, url: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._url = url
        self._capsys = capsys

    async def __call__(self, *argv: str) -> tuple[int, str, str]:
        """Run a command; return exit code, stdout and stderr."""
        code = await _main(read(["--nodes", self._url, *argv]))
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err


async def start(url: str, *argv: str, **options: Any) -> asyncio.subprocess.Process:
    """Start the command line as a process."""
    options = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE} | options
    environment = os.environ | {"HOLDFAST_NODES": url, "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "holdfast", *argv, env=environment, **options
    )


async def until(condition: Callable[[], object]) -> None:
    """Wait until `condition` holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - no event to await
            await asyncio.sleep(0.01)


async def test_everything_can_be_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Each kind comes as a table with titles, or with one JSON document in each line."""
    async with a_node() as (served, url), holdfast.Client(url, owner="ann") as client:
        line = Line(url, capsys)
        await client.cells.put("app/a", "v")
        await client.rate_limiter("app/a", limit=2, per=60).take()
        served.draw(3)
        await client.fence("app/a").advance(3)
        async with (
            client.lock("app/a"),
            client.semaphore("app/a", limit=2),
            client.election("app/a", value="here"),
        ):
            for kind in KINDS:
                code, out, _ = await line("list", "" if kind == "sessions" else "app/", "--kind", kind)
                titles, *rows = out.splitlines()
                assert code == 0
                assert titles == titles.upper()
                assert len(rows) == (3 if kind == "holds" else 1), out
                code, out, _ = await line("list", "--kind", kind, "-o", "jsonl")
                assert [json.loads(row) for row in out.splitlines()]
        code, out, _ = await line("list", "app/")
        assert out.splitlines() == ["NAME  STATE  HOLDER  MODE  WAITING"]


async def test_one_of_each_kind_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """A lock, a semaphore, an election and a fence, by name, as nodes show them."""
    async with a_node() as (served, url), holdfast.Client(url, owner="ann") as client:
        line = Line(url, capsys)
        served.draw(3)
        await client.fence("app/a").advance(3)
        async with client.semaphore("app/a", limit=2), client.election("app/a", value="here"):

            async def shown(kind: str) -> Any:
                code, out, _ = await line("get", "app/a", "--kind", kind, "-o", "json")
                assert code == 0
                return json.loads(out)

            assert (await shown("lock"))["state"] == "free"
            assert (await shown("semaphore"))["limit"] == 2
            assert (await shown("election"))["leader"]["value"] == "here"
            assert (await shown("fence"))["highest_token"] == 3
            _, out, _ = await line("get", "app/a", "--kind", "semaphore")
            _, row, _, titles, holder = out.splitlines()
            assert row.split() == ["app/a", "2", "1", "ann", "0"]
            assert (titles.split()[0], holder.split()[0]) == ("OWNER", "ann")


async def test_get_shows_who_was_asked_to_give_up(capsys: pytest.CaptureFixture[str]) -> None:
    """So an operator sees that a revocation is under way, for how long yet, and why; then that it is not."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client, client.lock("a", ttl=60):
        line = Line(url, capsys)
        assert (await line("revoke", "a", "--grace", "1h", "--reason", "the disk is moved"))[0] == 0
        shown = (await line("get", "a"))[1].splitlines()
        assert shown[-2].split("  ")[0] == "ASKED TO GIVE UP"
        assert shown[-1].split()[:2] == ["ann", "1"]
        assert shown[-1].endswith("  the disk is moved")
        assert (await line("revoke", "a", "--withdraw", "--reason", "it stays"))[0] == 0
        assert "ASKED" not in (await line("get", "a"))[1]


async def test_a_listing_stops_and_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """With --limit the rest is told on stderr, and --after goes on there."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        line = Line(url, capsys)
        for index in range(3):
            await client.acquire(f"x/{index}", wait=0, renew=False)
        code, out, err = await line("list", "x/", "--limit", "2", "-o", "jsonl")
        assert [json.loads(row)["name"] for row in out.splitlines()] == ["x/0", "x/1"]
        after = err.partition("--after '")[2].partition("'")[0]
        code, out, err = await line("list", "x/", "--after", after, "-o", "jsonl")
        assert [json.loads(row)["name"] for row in out.splitlines()] == ["x/2"]
        assert (code, err) == (0, "")
        assert (await line("list", "x/", "--longer-than", "1h"))[1].count("\n") == 1
        code, _, err = await line("list", "--owner", "ann")
        assert (code, "owner" in err) == (119, True)


async def test_names_of_others_cannot_disturb_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """What a terminal would obey is replaced, and there is no colour where there is no terminal."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        await client.cells.put("app/\x1b[2J", "\x1b]0;gone\x07")
        for command in (("list", "--kind", "cells"), ("cell", "list")):
            _, out, _ = await Line(url, capsys)(*command)
            assert "\x1b" not in out
            assert "\x07" not in out


async def test_a_session_is_shown_with_what_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """By its public name: its labels, and its holds and waits."""
    async with (
        a_node() as (_, url),
        holdfast.Client(url, owner="ann") as client,
        client.session(labels={"host": "rack-3"}) as session,
        client.lock("a", session=session) as hold,
    ):
        line = Line(url, capsys)
        (holder,) = (await client.inspect("a")).holders
        code, out, _ = await line("session", "show", holder.session_name)
        assert code == 0
        assert "host:rack-3" in out
        assert f"lock  a     {hold.token}" in out
        _, out, _ = await line("session", "show", holder.session_name, "-o", "json")
        assert json.loads(out)["holds"][0]["token"] == hold.token
        _, out, _ = await line("session", "list", "--label", "host:rack-3", "-o", "jsonl")
        assert json.loads(out)["session_name"] == holder.session_name
        code, _, err = await line("session", "show", "s-999")
        assert (code, "s-999" in err) == (119, True)


async def test_a_lock_is_handed_over(capsys: pytest.CaptureFixture[str]) -> None:
    """To a waiter by its number, or a session by its name; the command says who has it, with which token."""
    async with a_node() as (node, url), holdfast.Client(url, owner="ann") as client:
        line = Line(url, capsys)
        _, out, _ = await line("acquire", "a", "-o", "json")
        hold_id = json.loads(out)["hold_id"]
        code, _, err = await line("hand-over", hold_id, "--to-session", "s-99")
        assert (code, "session-expired" in err) == (119, True)
        waiting = asyncio.ensure_future(client.lock("a", wait=60).acquire())
        await until(lambda: node.node.machine.lock("a").queue)
        ticket = str(node.node.machine.lock("a").queue[0].ticket)
        code, out, _ = await line("hand-over", hold_id, "--to-ticket", ticket)
        given = await waiting
        assert (code, out) == (0, f"handed over to ann; token {given.token}\n")
        code, _, err = await line("release", hold_id)
        assert (code, "the hold was handed over" in err, "`holdfast get NAME`" in err) == (119, True, True)
        assert "holdfast run" not in err


@pytest.mark.parametrize("receivers", [(), ("--to-ticket", "1", "--to-session", "s-1")])
async def test_a_lock_is_handed_to_one_receiver(
    receivers: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    """None or two are an error of usage, and no node is asked."""
    code, _, err = await Line("http://127.0.0.1:1", capsys)("hand-over", "0" * 32, *receivers)
    assert (code, "--to-ticket" in err, "--to-session" in err) == (exit_codes.USAGE, True, True)


async def test_a_node_that_starts_is_waited_for(capsys: pytest.CaptureFixture[str]) -> None:
    """It says how far it is, and nobody is sent to look whether it runs or what `holdfast status` says."""
    detail = "the node is starting: it has read 52 % of its state"
    async with ScriptedNode(problem("not-ready", detail=detail)) as node:
        for command, first, hint in (
            (("status",), "", "look again when one has started"),
            (("--timeout", "1s", "get", "a"), "not done: ", "repeat it when the node has started"),
        ):
            code, _, err = await Line(node.url, capsys)(*command)
            assert (code, err.splitlines()[0]) == (121, f"holdfast: {first}{node.url}: {detail}")
            assert hint in err.splitlines()[1]


async def test_what_others_have_is_overridden(capsys: pytest.CaptureFixture[str]) -> None:
    """By force, with a reason that the audit has then; of what is gone nothing is left to end."""
    async with a_node() as (node, url), holdfast.Client(url, owner="ann") as client:
        line = Line(url, capsys)
        session = await client.session(ttl=60, renew=False).open()
        await client.lock("a", session=session).acquire()
        (holder,) = (await client.inspect("a")).holders
        end = ("force", "end-session", holder.session_name, "--reason", "it hangs")
        code, out, _ = await line(*end, "-o", "json")
        assert (code, json.loads(out)["names"]) == (0, ["a"])
        assert json.loads(out)["session_name"] == holder.session_name
        code, _, err = await line(*end)
        assert (code, "session-expired" in err) == (119, True)
        await client.lock("a", ttl=60, lock_delay=60, renew=False).acquire()
        code, out, _ = await line("force", "release", "a", "--reason", "it hangs", "-o", "jsonl")
        assert [one["owner"] for one in json.loads(out)["forced"]] == ["ann"]
        code, out, _ = await line("force", "lift-delay", "a", "--reason", "all is well")
        assert (code, out.startswith("1 lifted, "), out.endswith(" early\n")) == (0, True, True)
        await client.lock("a", ttl=60, renew=False).acquire()
        waiting = [asyncio.ensure_future(client.lock("a", wait=60).acquire()) for _ in "bc"]
        await until(lambda: len(node.node.machine.lock("a").queue) == len(waiting))
        first = node.node.machine.lock("a").queue[0].ticket
        code, out, _ = await line("force", "end-waits", "a", "--ticket", str(first), "--reason", "it hangs")
        assert (code, out.split()[:5]) == (0, ["OWNER", "TICKET", "WAITED", "ann", str(first)])
        code, out, _ = await line("force", "end-waits", "a", "--reason", "it hangs", "-o", "json")
        assert (code, len(json.loads(out)["ended"])) == (0, 1)
        assert [type(one) for one in await asyncio.gather(*waiting, return_exceptions=True)] == [
            holdfast.Refused
        ] * 2
        node.draw(9)
        await client.fence("disk").advance(9)
        forget = ("force", "forget-fence", "disk", "--reason", "a new disk")
        assert json.loads((await line(*forget, "-o", "json"))[1])["highest_token"] == 9
        _, out, _ = await line("audit", "disk")
        assert "reason=a new disk" in out
        for name in ("mail/1", "mail/2", "post", "web"):
            await client.rate_limiter(name, "1/minute").take()
        for which, said in (
            (("post",), "1 forgotten"),
            (("--prefix", "mail/"), "2 forgotten"),
            (("--all",), "1 f"),
        ):
            code, out, _ = await line("force", "forget-rate-limits", *which, "--reason", "it is full")
            assert (code, said in out) == (0, True)
        _, out, _ = await line("audit", "mail/1")
        assert "reason=it is full" in out


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("force", "release", "a"), "nobody holds lock 'a'; nothing was ended"),
        (("force", "end-waits", "a"), "nobody waits for lock 'a'; nothing was ended"),
        (("force", "lift-delay", "a", "--kind", "semaphore"), "semaphore 'a' has no lock-delay"),
        (("force", "forget-fence", "a"), "fence 'a' has never seen a token; nothing was forgotten"),
        (("force", "forget-rate-limits", "a"), "nothing has been taken from any of these rate limits"),
        (("revoke", "a"), "nobody holds lock 'a'; nobody was asked"),
        (("revoke", "a", "--withdraw"), "no holder of lock 'a' was asked to release; nothing was withdrawn"),
    ],
)
async def test_nothing_to_override_is_not_success(
    capsys: pytest.CaptureFixture[str], command: tuple[str, ...], said: str
) -> None:
    """Whoever names the wrong lock is told so, and a script sees it."""
    async with a_node() as (_, url):
        code, out, err = await Line(url, capsys)(*command, "--reason", "it hangs")
        assert (code, out) == (119, "")
        assert said in err


async def test_a_revocation_is_made_and_withdrawn(capsys: pytest.CaptureFixture[str]) -> None:
    """With its grace; to take it back needs none. The audit has both reasons."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        line = Line(url, capsys)
        hold = await client.lock("a", ttl=60).acquire()
        code, out, _ = await line("revoke", "a", "--reason", "the disk is replaced")
        assert (code, "30.0s" in out or "29.9s" in out) == (0, True)
        withdraw = ("revoke", "a", "--withdraw", "--reason", "the disk is fine")
        code, _, err = await line(*withdraw, "--grace", "5s")
        assert (code, "leave out --grace" in err) == (2, True)
        code, out, _ = await line(*withdraw, "--token", str(hold.token), "-o", "json")
        assert (code, json.loads(out)) == (0, {"withdrawn": 1})
        _, out, _ = await line("audit", "a")
        assert "reason=the disk is fine" in out


async def test_holds_of_any_kind_are_ended_by_force(capsys: pytest.CaptureFixture[str]) -> None:
    """All of a name or the one with a token; another kind or token, and a delay that cannot be, are told."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        line = Line(url, capsys)
        why = ("--reason", "it hangs", "-o", "json")
        first = await client.semaphore("gpu", limit=2).acquire()
        await client.semaphore("gpu", limit=2, renew=False).acquire()
        leader = await client.election("primary").acquire()
        code, _, err = await line("force", "release", "gpu", *why)
        assert (code, "wrong-kind" in err, "say what is held with --kind" in err) == (119, True, True)
        one = ("force", "release", "gpu", "--kind", "semaphore", "--token", str(first.token))
        code, out, _ = await line(*one, *why)
        assert [each["token"] for each in json.loads(out)["forced"]] == [first.token]
        code, _, err = await line(*one, *why)
        assert (code, "not-holder" in err) == (119, True)
        await line("force", "release", "gpu", "--kind", "semaphore", "--lock-delay", "1h", *why)
        seen = await client.get_semaphore("gpu")
        assert (seen.holders, seen.available) == ((), 1)
        depose = ("force", "release", "primary", "--kind", "election")
        code, _, err = await line(*depose, "--lock-delay", "1s", *why)
        assert (code, "an election has none" in err) == (2, True)
        code, out, _ = await line(*depose, *why)
        assert (code, [each["token"] for each in json.loads(out)["forced"]]) == (0, [leader.token])
        assert await client.election("primary").leader() is None
        with pytest.raises(ValueError, match="must be one of lock, semaphore, election"):
            await client.admin.force_release("a", reason="a test", kind="cell")  # type: ignore[arg-type]


async def test_cells_are_read_and_written(capsys: pytest.CaptureFixture[str]) -> None:
    """Values come as they are; conditions refuse; what is not there is exit code 119."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        line = Line(url, capsys)
        assert (await line("cell", "put", "a", "one", "--if-version", "0"))[1] == "version 1\n"
        assert (await line("cell", "put", "a", "two", "--if-version", "0"))[0] == 119
        assert (await line("cell", "get", "a"))[:2] == (0, "one")
        assert json.loads((await line("cell", "get", "a", "-o", "json"))[1])["value"] == "one"
        await client.cells.put("b", b"\xff")
        assert json.loads((await line("cell", "get", "b", "-o", "jsonl"))[1])["value_base64"] == "/w=="
        assert len((await line("cell", "list"))[1].splitlines()) == 3
        assert (await line("cell", "delete", "a"))[1] == "1 deleted\n"
        assert (await line("cell", "delete", "a"))[0] == 119
        assert (await line("cell", "delete", "--prefix", ""))[0] == 2
        assert (await line("cell", "delete", "--prefix", "app", "--all"))[0] == 2
        assert (await line("cell", "delete", "--all"))[1] == "1 deleted\n"
        assert (await line("cell", "delete", "--all"))[:2] == (0, "0 deleted\n")
        code, _, err = await line("cell", "get", "a")
        assert (code, "no cell 'a'" in err) == (119, True)
        for wrong in (
            ("delete",),
            ("delete", "a", "--prefix", "b"),
            ("delete", "--prefix", "b", "--if-version", "1"),
        ):
            assert (await line("cell", *wrong))[0] == 2


async def test_a_rate_limit_is_taken_from(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0 means allowed, and 75 or another one not."""
    async with a_node() as (_, url):
        line = Line(url, capsys)
        take = ("take", "mail", "--limit", "1", "--per", "1h")
        assert (await line(*take))[:2] == (0, "allowed; 0 left\n")
        code, _, err = await line(*take)
        assert (code, "allows it in" in err) == (75, True)
        code, out, _ = await line(*take, "-o", "json", "--conflict-exit-code", "3")
        assert (code, json.loads(out)["allowed"]) == (3, False)


async def test_the_audit_is_printed_oldest_first(capsys: pytest.CaptureFixture[str]) -> None:
    """So it goes on where --follow continues; with the time of the wall clock, to the second."""
    began_s = time.time()
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        async with client.lock("a"), client.lock("b"):
            """Held."""
        _, out, _ = await Line(url, capsys)("audit", "a")
        head, *rows = out.splitlines()
        assert head.split("  ")[0] == "UTC, AT THE LATEST"
        first_s, last_s = (datetime.fromisoformat(row.split()[0]).timestamp() for row in rows)
        assert began_s - 1 <= first_s <= last_s <= time.time()
        assert [row.split()[1:4] for row in rows] == [
            ["granted", "lock", "a"],
            ["released", "lock", "a"],
        ]
        _, out, _ = await Line(url, capsys)("audit", "a", "-o", "jsonl", "--limit", "1")
        assert json.loads(out)["event"] == "released"


async def _keep_busy(client: holdfast.Client) -> None:
    """Let things happen to a lock and a cell until cancelled: who follows them may begin at any time."""
    while True:
        await client.cells.put("a/cell", "new")
        async with client.lock("a"):
            await asyncio.sleep(0.01)


async def test_what_happens_is_followed_until_an_interrupt() -> None:
    """`audit --follow` and both kinds of `watch` tell events as they come; Control-C ends them with 130."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        audit = await start(url, "audit", "a", "--follow", "-o", "jsonl")
        watch = await start(url, "watch", "a")
        cells = await start(url, "cell", "watch", "a", "-o", "jsonl")
        assert audit.stdout is not None
        assert watch.stdout is not None
        assert cells.stdout is not None
        busy = asyncio.create_task(_keep_busy(client))
        try:
            async with asyncio.timeout(DEADLINE_S):
                told = [json.loads(await audit.stdout.readline())["event"] for _ in range(3)]
                seen = [(await watch.stdout.readline()).split()[2] for _ in range(3)]
                changed = json.loads(await cells.stdout.readline())
                for process in (audit, watch, cells):
                    process.send_signal(signal.SIGINT)
                    _, err = await process.communicate()
                    assert (process.returncode, err) == (130, b"")
        finally:
            busy.cancel()
            for process in (audit, watch, cells):
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        assert set(told) == {"granted", "released"}
        assert set(seen) <= {b"a", b"a/cell"}
        assert (changed["event"], changed["value"]) == ("cell-put", "new")


async def test_whoever_reads_may_go() -> None:
    """A pipe that is closed ends a command with 141, without a traceback."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        await client.acquire("x", wait=0, renew=False)
        script = f"{sys.executable} -m holdfast watch --since 0 | head -1; exit ${{PIPESTATUS[0]}}"
        process = await asyncio.create_subprocess_exec(
            "bash",
            "-c",
            script,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=os.environ | {"HOLDFAST_NODES": url, "PYTHONPATH": str(ROOT)},
        )
        ending = asyncio.create_task(process.communicate())
        async with asyncio.timeout(DEADLINE_S):
            while not ending.done():
                async with client.lock("y"):
                    await asyncio.sleep(0.01)
        out, err = ending.result()
        assert (process.returncode, out.count(b"\n"), err) == (141, 1, b"")


async def test_a_hold_that_cannot_be_printed_is_given_back() -> None:
    """Nobody could release what nobody has read."""
    async with a_node() as (served, url):
        full = os.open("/dev/full", os.O_WRONLY)
        process = await start(url, "acquire", "a", stdout=full)
        os.close(full)
        async with asyncio.timeout(DEADLINE_S):
            _, err = await process.communicate()
        assert process.returncode == 119, err
        assert not served.node.machine.state.holds


async def test_renew_starts_a_lease_anew(capsys: pytest.CaptureFixture[str]) -> None:
    """By the secret, with another length if one is given; what is over is exit code 119."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        hold = await client.acquire("a", wait=0, renew=False)
        line = Line(url, capsys)
        assert await line("renew", hold.hold_id, "--ttl", "1h") == (0, "renewed; ends in 1.0h\n", "")
        await line("renew", hold.hold_id, "--ttl", "30m")
        assert await line("renew", hold.hold_id, "--ttl", "90s", "--exact") == (
            0,
            "renewed; ends in 1.5m\n",
            "",
        )
        code, _, error = await line("renew", hold.hold_id, "--exact")
        assert (code, "--exact needs --ttl" in error) == (2, True)
        _, out, _ = await line("renew", hold.hold_id, "--ttl", "1h", "-o", "json")
        assert json.loads(out) == {"token": hold.token, "expires_in_ms": 3_600_000} | {
            "revision": json.loads(out)["revision"]
        }
        await hold.release()
        assert (await Line(url, capsys)("renew", hold.hold_id))[0] == 119


async def test_elect_runs_a_command_while_leading() -> None:
    """The command has the token and the name; others see the value; at the end nobody leads."""
    async with a_node() as (served, url), holdfast.Client(url) as client:
        script = "echo $HOLDFAST_TOKEN $HOLDFAST_ELECTION; read line; exit 7"
        leading = await start(
            url,
            "elect",
            "primary",
            "--value",
            "here",
            "--",
            "sh",
            "-c",
            script,
            stdin=asyncio.subprocess.PIPE,
        )
        assert leading.stdout is not None
        async with asyncio.timeout(DEADLINE_S):
            token, name = (await leading.stdout.readline()).decode().split()
            leader = await client.election("primary").leader()
            assert leader is not None
            assert (leader.token, leader.value, name) == (int(token), "here", "primary")
            late = await start(url, "elect", "primary", "--wait", "0", "--", "true")
            _, err = await late.communicate()
            assert late.returncode == 75, err
            await leading.communicate(b"\n")
        assert leading.returncode == 7
        assert await client.election("primary").leader() is None
        assert not served.node.machine.state.sessions


async def test_run_takes_one_of_several_permits() -> None:
    """As many commands as permits run at a time; the next one is refused with 75, and the end frees one."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        script = ("run", "gpu", "--semaphore", "2", "--", "sh", "-c", "echo $HOLDFAST_LOCK; read line")
        first = await start(url, *script, stdin=asyncio.subprocess.PIPE)
        async with asyncio.timeout(DEADLINE_S), client.semaphore("gpu", limit=2):
            assert first.stdout is not None
            assert await first.stdout.readline() == b"gpu\n"
            late = await start(url, *script)
            _, err = await late.communicate()
            assert late.returncode == 75, err
            await first.communicate(b"\n")
            assert (await client.get_semaphore("gpu")).available == 1
            wrong = await start(url, "run", "gpu", "--semaphore", "2", "--shared", "--", "true")
            await wrong.communicate()
            assert wrong.returncode == 2


async def test_a_lock_is_taken_in_any_mode() -> None:
    """`--mode` says in which; beside others as the mode allows."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        async with client.lock("a", mode="concurrent-write"):
            for option, code in (("concurrent-write", 0), ("concurrent-read", 0), ("shared", 75), ("odd", 2)):
                taken = await start(url, "acquire", "a", "--mode", option)
                await taken.communicate()
                assert taken.returncode == code, option
        assert [holder.mode for holder in (await client.inspect("a")).holders] == [
            "concurrent-write",
            "concurrent-read",
        ]


@pytest.mark.parametrize("more", [(), ("--semaphore", "2")])
async def test_run_with_a_priority(more: tuple[str, ...]) -> None:
    """It is asked for where the node allows it, and refused elsewhere."""
    async with a_node("gpu") as (_, url):
        for name, code in (("gpu", 0), ("cpu", 119)):
            running = await start(url, "run", name, *more, "--priority", "9", "--", "true")
            _, err = await running.communicate()
            assert running.returncode == code, err


@pytest.mark.parametrize("more", [(), ("--semaphore", "1")])
async def test_run_asks_for_what_it_needs(more: tuple[str, ...]) -> None:
    """The holder is ended after the grace, and the command runs."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        ruled = holdfast.NamespaceSettings(ask_after_ms_min=0)
        await client.admin.set_namespace("gpu", ruled, reason="as agreed")
        await (
            client.semaphore("gpu", limit=1, renew=False) if more else client.lock("gpu", renew=False)
        ).acquire()
        asks = ("--wait", "60s", "--ask-after", "10ms", "--ask-grace", "0s")
        running = await start(url, "run", "gpu", *more, *asks, "--", "true")
        _, err = await running.communicate()
        assert running.returncode == 0, err
        running = await start(url, "run", "gpu", *more, "--ask-grace", "1s", "--", "true")
        _, err = await running.communicate()
        assert (running.returncode, b"needs ask_after" in err) == (2, True)


# -- top --------------------------------------------------------------------------------------------------


async def test_top_shows_the_longest_queue_first(capsys: pytest.CaptureFixture[str]) -> None:
    """Once, as a table or as JSON."""
    async with a_node() as (served, url), holdfast.Client(url, owner="ann") as client:
        for name in ("a", "b", "c"):
            await client.acquire(name, wait=0, renew=False)
        waiting = asyncio.create_task(client.lock("b", wait=60).acquire())
        await until(lambda: served.node.machine.state.tickets)
        code, out, _ = await Line(url, capsys)("top", "--once", "--rows", "2")
        head, _, *rows = out.splitlines()
        assert (code, [row.split()[:3] for row in rows]) == (0, [["b", "held", "ann"], ["a", "held", "ann"]])
        assert "locks 3  waiting 1" in head
        _, out, _ = await Line(url, capsys)("top", "--once", "-o", "json")
        assert [row["name"] for row in json.loads(out)["locks"]] == ["b", "a", "c"]
        waiting.cancel()
        await asyncio.wait({waiting})


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
async def test_top_leaves_the_terminal_as_it_was(number: signal.Signals, code: int) -> None:
    """On a terminal it draws on a screen of its own, which is gone at the end, however that comes."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        await client.acquire("a", wait=0, renew=False)
        ours, theirs = pty.openpty()
        os.set_blocking(ours, False)
        process = await start(url, "top", "--interval", "100ms", stdout=theirs, stdin=theirs)
        os.close(theirs)
        drawn = b""

        def has_drawn(text: bytes) -> bool:
            nonlocal drawn
            try:
                drawn += os.read(ours, 65536)
            except (BlockingIOError, OSError):
                """Nothing is there now; or never again, once nobody has the other side."""
            return text in drawn

        await until(lambda: has_drawn(b"ann"))
        process.send_signal(number)
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == code
        assert has_drawn(b"\x1b[?25h\x1b[?1049l")
        assert drawn.startswith(b"\x1b[?1049h\x1b[?25l")
        os.close(ours)


# -- what is made from the parser --------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    """Return what bash offers for the last word."""
    script = completion.bash(build_parser())
    line = " ".join(f"'{word}'" for word in ("holdfast", *words))
    script += f"\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _holdfast 2>/dev/null"
    script += "\nprintf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["el"], ["elect"]),
        (["--nodes", "x", "cell", "p"], ["put"]),
        (["list", "--kind", "sem"], ["semaphores"]),
        (["list", "--af"], ["--after"]),
        (["cluster", "mem"], ["members"]),
        (["completion", "z"], ["zsh"]),
        (["run", "a", "--", "li"], []),
    ],
)
def test_bash_completes_commands_and_options(words: list[str], offered: list[str]) -> None:
    """What is offered is what the parser takes at this place."""
    assert completed(*words) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_shells_are_correct_and_complete(shell: str) -> None:
    """Each names every command and option; the shell, if it is there, takes the script."""
    root = build_parser()
    script = completion.SHELLS[shell](root)
    for word in root.walk():
        assert all(name in script for name in word.path)
        for option in word.options:
            assert all(flag.lstrip("-") in script for flag in option.option_strings)
    if shutil.which(shell):
        done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_the_manual_page_has_every_command_and_exit_code() -> None:
    """groff, if it is there, formats it without a warning."""
    root = build_parser()
    page = completion.manual(root)
    for word in root.walk():
        assert word.below or f".SS holdfast {' '.join(word.path)}".replace("-", "\\-") in page
    for code in exit_codes.MEANINGS:
        assert f".TP\n{code}\n" in page
    if shutil.which("groff"):
        done = subprocess.run(
            ["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


# -- what goes wrong ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("body", [{"locks": 5}, {"locks": ["a"]}, {"locks": [], "next": 7}, {}])
async def test_an_answer_of_something_else_is_exit_code_122(
    body: dict[str, object], capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not look like a page of a node ends the command with a sentence."""
    async with ScriptedNode(answer(**body)) as node:
        code, out, err = await Line(node.url, capsys)("list", "-o", "jsonl")
        assert (code, out, "not come from a Holdfast node" in err) == (122, "", True)


async def test_closed_streams_are_not_taken_for_something_else() -> None:
    """Started without any stream, as some daemons do, it works, and the command has empty ones."""
    async with a_node() as (served, url), holdfast.Client(url) as client:
        script = "holdfast run a -- sh -c 'echo lost; cat' <&- >&- 2>&-"
        script = script.replace("holdfast", f"{sys.executable} -m holdfast", 1)
        process = await asyncio.create_subprocess_exec(
            "sh", "-c", script, env=os.environ | {"HOLDFAST_NODES": url, "PYTHONPATH": str(ROOT)}
        )
        async with asyncio.timeout(DEADLINE_S):
            assert await process.wait() == 0
        assert [event.event for event in await client.audit("a")] == ["released", "granted"]
        assert not served.node.machine.state.holds
