"""The command line as a process: what it prints, how it exits, what becomes of its command."""

import argparse
import asyncio
import json
import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.parsing import duration_ms
from tests.unit.holdfast.scripted import ScriptedNode, answer, granted, problem, released

DEADLINE_S = 30


async def _holdfast(
    node_url: str, *argv: str, stdin: str = "", environment: Mapping[str, str] | None = None
) -> tuple[int | None, str, str]:
    """Run the command line against a node; return exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "holdfast",
        "--timeout",
        "500ms",
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"HOLDFAST_NODES": node_url} | dict(environment or {}),
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate(stdin.encode())
    return process.returncode, out.decode(), err.decode()


def _has_ended(pid: int) -> bool:
    """Whether a process is gone, or a zombie that nobody reaps here."""
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z"


async def test_acquire_prints_the_hold() -> None:
    """A script finds in the JSON what it needs to fence and to release."""
    async with ScriptedNode(granted()) as node:
        code, out, _ = await _holdfast(
            node.url, "acquire", "a/b", "--ttl", "30s", "--wait", "2s", "--owner", "me", "-o", "json"
        )
        assert code == 0
        assert json.loads(out)["token"] == 7
        assert json.loads(out)["hold_id"] == "h" * 32
        fields = node.seen[0].fields
        assert (fields["ttl_ms"], fields["wait_ms"], fields["owner"]) == (30_000, 2_000, "me")


@pytest.mark.parametrize("command", [["acquire", "a/b"], ["run", "a/b", "--", "true"]])
async def test_the_exit_code_of_a_conflict_can_be_chosen(command: list[str]) -> None:
    """A cron job that is content when another machine does the work asks for 0."""
    async with ScriptedNode(problem("lock-held")) as node:
        assert (await _holdfast(node.url, *command))[0] == 75
        name, chosen = command[0], ["--conflict-exit-code", "0"]
        assert (await _holdfast(node.url, name, *chosen, *command[1:]))[0] == 0
        assert (await _holdfast(node.url, name, "--conflict-exit-code", "256", *command[1:]))[0] == 2


async def test_exit_codes_of_failures_are_not_those_of_commands() -> None:
    """Whoever runs a command can tell a refusal, 119, from the command's own 1."""
    async with ScriptedNode(problem("invalid-request")) as node:
        assert (await _holdfast(node.url, "run", "a/b", "--", "true"))[0] == 119
    async with ScriptedNode(granted(), released, granted(), released) as node:
        assert (await _holdfast(node.url, "run", "a/b", "--", "false"))[0] == 1
        assert (await _holdfast(node.url, "run", "a/b", "--", "sh", "-c", "kill -9 $$"))[0] == 137


async def test_a_held_lock_is_exit_code_75_and_names_its_holder() -> None:
    """A refusal says who holds the lock and what to do."""
    async with ScriptedNode(problem("lock-held", holders=[{"owner": "eve"}])) as node:
        code, out, err = await _holdfast(node.url, "acquire", "a/b")
        assert (code, out) == (75, "")
        assert err == "holdfast: 'a/b' is held by eve\nholdfast: wait for it with --wait 1m\n"
    holders = [{"owner": owner, "token": 7, "expires_in_ms": 28_300} for owner in "abcde"]
    async with ScriptedNode(problem("lock-held", holders=holders)) as node:
        _, _, err = await _holdfast(node.url, "run", "a/b", "--wait", "10ms", "--", "true")
        assert "'a/b' is held by a (token 7, 28 s of its lease left), b (token 7" in err
        assert "left), 2 more\nholdfast: wait longer, with --wait" in err


async def test_an_unavailable_cluster_is_exit_code_121_and_a_lost_answer_122() -> None:
    """A script can tell what surely did not happen from what may have."""
    async with ScriptedNode(problem("no-leader")) as node:
        code, _, err = await _holdfast(node.url, "release", "h")
        assert code == 121
        assert "nothing was changed" in err
    async with ScriptedNode(problem("outcome-unknown")) as node:
        code, _, err = await _holdfast(node.url, "release", "h")
        assert code == 122
        assert "may have been done" in err


@pytest.mark.parametrize(
    ("argv", "stdin", "environment"),
    [
        (["-"], "the-secret\n", {}),
        (["-"], '{"hold_id": "the-secret", "token": 7}', {}),
        ([], "", {"HOLDFAST_HOLD_ID": "the-secret"}),
        (["the-secret"], "", {"HOLDFAST_HOLD_ID": "another one"}),
    ],
)
async def test_release_takes_the_secret_from_where_nobody_sees_it(
    argv: list[str], stdin: str, environment: dict[str, str]
) -> None:
    """A hold id comes from standard input, as such or as acquire printed it, or from the environment."""
    async with ScriptedNode(released) as node:
        code, _, _ = await _holdfast(node.url, "release", *argv, stdin=stdin, environment=environment)
        assert (code, node.seen[0].fields["hold_id"]) == (0, "the-secret")


async def test_release_of_a_name_says_that_a_hold_id_belongs_there() -> None:
    """Only what cannot be a hold_id is taken for a name: the others are over."""
    for given, said in (
        ("build/app", "not a name; `holdfast force release NAME`"),
        ("0f" * 16, "was over already"),
    ):
        async with ScriptedNode(problem("lease-expired")) as node:
            code, _, err = await _holdfast(node.url, "release", given)
            assert code == 119
            assert said in err


@pytest.mark.parametrize(("argv", "stdin"), [([], ""), (["-"], ""), (["-"], '{"token": 7}')])
async def test_release_without_a_hold_is_exit_code_2(argv: list[str], stdin: str) -> None:
    """Nothing is sent when it is not said what to release."""
    code, _, err = await _holdfast("http://127.0.0.1:1", "release", *argv, stdin=stdin)
    assert code == 2
    assert "hold_id" in err


async def test_release_of_a_table_says_what_to_give_instead() -> None:
    """A script that keeps what `acquire` printed for people is told of the format for programs."""
    table = "HOLD_ID  NAME\nthe-secret  a/b"
    code, _, err = await _holdfast("http://127.0.0.1:1", "release", table)
    assert (code, "give what `holdfast acquire -o json` printed, not a table" in err) == (2, True)
    async with ScriptedNode(released) as node:
        code, _, _ = await _holdfast(node.url, "release", '{\n"hold_id": "the-secret"}\n')
        assert (code, node.seen[0].fields["hold_id"]) == (0, "the-secret")


async def test_version() -> None:
    """The command line says which version it is."""
    assert await _holdfast("x", "--version") == (0, f"holdfast {holdfast.__version__}\n", "")


async def test_a_command_without_dashes_is_told_where_they_go() -> None:
    """Who forgets the dashes reads the line as it should have been."""
    code, _, err = await _holdfast("x", "run", "a/b", "echo", "ok")
    assert code == 2
    assert "holdfast run a/b -- echo ok" in err


async def test_acquire_shows_an_owner_who_is_still_there() -> None:
    """The process of an acquire ends at once; the user has the lock. `run` shows its own process."""
    async with ScriptedNode(granted(), granted(), released) as node:
        await _holdfast(node.url, "acquire", "a/b", environment={"LOGNAME": "ann"})
        await _holdfast(node.url, "run", "a/b", "--", "true")
        owners = [request.fields["owner"] for request in node.seen[:2]]
        assert owners[0] == f"ann@{socket.gethostname()}"
        assert owners[1].startswith(f"{socket.gethostname()}:")


async def test_run_passes_token_and_exit_code() -> None:
    """The command finds its fencing token, its exit code is ours, and the lock is released after it."""
    async with ScriptedNode(granted(token=42), released) as node:
        code, out, _ = await _holdfast(
            node.url, "run", "a/b", "--", "sh", "-c", "echo $HOLDFAST_TOKEN $HOLDFAST_LOCK; exit 9"
        )
        assert (code, out) == (9, "42 a/b\n")
        assert [request.path for request in node.seen] == ["/v1/locks/acquire", "/v1/locks/release"]


async def test_run_ends_the_command_when_the_lock_is_lost(tmp_path: Path) -> None:
    """A command whose lease is over gets SIGTERM, what it started is killed, and the exit code is 123."""
    script = (granted(expires_in_ms=900), problem("lease-expired"))
    pid_file = tmp_path / "pid"
    command = f"sleep 600 & echo $! > {pid_file}; trap 'echo stopped; exit 0' TERM; wait"
    async with ScriptedNode(*script) as node:
        code, out, err = await _holdfast(node.url, "run", "a/b", "--ttl", "900ms", "--", "sh", "-c", command)
    assert (code, out) == (123, "stopped\n")
    assert "lost" in err
    assert _has_ended(int(pid_file.read_text()))


async def test_run_releases_when_the_command_cannot_be_started() -> None:
    """A command that does not exist is reported, and does not keep the lock."""
    async with ScriptedNode(granted(), released) as node:
        code, _, err = await _holdfast(node.url, "run", "a/b", "--", "./no-such-command")
        assert code == 127
        assert "no-such-command" in err
    async with ScriptedNode(granted(), released) as node:
        assert (await _holdfast(node.url, "run", "a/b", "--", "/etc/passwd"))[0] == 126
        assert node.seen[-1].path == "/v1/locks/release"


async def test_get_prints_the_lock() -> None:
    """A lock's holders and waiters come as JSON."""
    async with ScriptedNode(answer(name="a/b", state="free", holders=[], queue=[])) as node:
        code, out, _ = await _holdfast(node.url, "get", "a/b", "-o", "json")
        assert code == 0
        assert json.loads(out) == {"name": "a/b", "state": "free", "holders": [], "queue": []}


@pytest.mark.parametrize(
    "argv",
    [["run", "a/b"], ["run", "a/b", "--"], ["get", "a", "--", "b"], ["acquire", "a", "--ttl", "soon"], []],
)
async def test_wrong_usage_is_exit_code_2(argv: list[str]) -> None:
    """What cannot be understood is refused before anything is sent."""
    code, _, err = await _holdfast("http://127.0.0.1:1", *argv)
    assert code == 2
    assert "--help" in err


async def test_a_wrong_node_is_exit_code_2() -> None:
    """A node that cannot be a URL is refused, with an example of one."""
    code, _, err = await _holdfast("localhost:seven", "status")
    assert code == 2
    assert "http://" in err


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("500ms", 500), ("10s", 10_000), ("1.5m", 90_000), ("1h", 3_600_000), ("1d", 86_400_000), ("2", 2_000)],
)
def test_lengths_of_time(text: str, expected_ms: int) -> None:
    """People write units; a bare number means seconds."""
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "s", "-1s", "soon", "1w", "nan", "inf", "1 2"])
def test_what_is_not_a_length_of_time(text: str) -> None:
    """Anything else is refused with an example."""
    with pytest.raises(argparse.ArgumentTypeError, match="10s"):
        duration_ms(text)
