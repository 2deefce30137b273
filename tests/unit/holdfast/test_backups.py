"""Backups through the client and the command line: whole, or not there."""

import asyncio
import contextlib
import io
import os
import re
import stat
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

import holdfast
from holdfast.wire import backup
from lockstate.stored import snapshot
from tests.unit.holdfast.conftest import NewClient, a_node
from tests.unit.holdfast.scripted import ScriptedNode, problem

DEADLINE_S = 30


def names_in(directory: Path) -> list[str]:
    """Return what is in a directory."""
    return sorted(path.name for path in directory.iterdir())


@contextlib.asynccontextmanager
async def command(node_url: str, *argv: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run the command line against a node; it is gone afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "--timeout", "2s", *argv),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"HOLDFAST_NODES": node_url},
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def run(node_url: str, *argv: str, stdin: bytes = b"") -> tuple[int | None, bytes, str]:
    """Run the command line to its end; return exit code, standard output and standard error."""
    async with command(node_url, *argv) as process, asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate(stdin)
        return process.returncode, out, err.decode()


async def test_a_backup_has_what_was_answered_before(tmp_path: Path, new_client: NewClient) -> None:
    """The file is for its owner alone, whole, and holds the state of the node."""
    path = tmp_path / "saved"
    left = tmp_path / "saved.0123abcd.part"
    left.write_text("of a save that was killed")
    os.utime(left, (1, 1))
    async with a_node() as (served, url), new_client(url) as client:
        hold = await client.acquire("kept")
        info = await client.admin.backup(path)
        machine = served.node.machine
        assert (info.revision, info.highest_token) == (machine.revision, hold.token)
        state: list[bytes] = []
        assert backup.check([path.read_bytes()], state.append) == info
        assert snapshot.digest(snapshot.decode(b"".join(state))) == snapshot.digest(machine.state)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert names_in(tmp_path) == ["saved"]


async def test_a_backup_goes_to_an_open_file() -> None:
    """What is written there is the same as a file would have."""
    async with a_node() as (_, url), holdfast.Client(url) as client:
        written = io.BytesIO()
        info = await client.admin.backup(written)
        assert backup.check([written.getvalue()]) == info


async def test_another_node_is_asked(tmp_path: Path) -> None:
    """A node that cannot is left, and so is one that is not there."""
    async with ScriptedNode(problem("no-leader")) as other, a_node() as (_, url):
        for _ in range(4):  # the client begins with any of them
            async with holdfast.Client(["http://127.0.0.1:1", other.url, url]) as client:
                assert (await client.admin.backup(tmp_path / "saved")).revision > 0


async def test_no_node_gives_one(tmp_path: Path) -> None:
    """What each of them said is told, in the order of their URLs, and no file is left."""
    async with ScriptedNode(problem("overloaded")) as node, holdfast.Client(node.url) as client:
        with pytest.raises(holdfast.Unavailable, match="no node gives a backup: " + re.escape(node.url)):
            await client.admin.backup(tmp_path / "saved")
    nowhere = "http://127.0.0.1:1"
    async with ScriptedNode(problem("overloaded")) as node, holdfast.Client([nowhere, node.url]) as client:
        for _ in range(2):
            with pytest.raises(holdfast.Unavailable) as refused:
                await client.admin.backup(tmp_path / "saved")
            _, first, second = re.split(f"(?:: |; )(?={nowhere}|{node.url})", str(refused.value))
            assert first.startswith(f"{nowhere}: no connection")
            assert second.startswith(f"{node.url}: ")
    assert not names_in(tmp_path)


async def test_a_refusal_is_final(tmp_path: Path) -> None:
    """Without the right for it no other node is asked."""
    async with ScriptedNode(problem("forbidden")) as node, holdfast.Client(node.url) as client:
        with pytest.raises(holdfast.AccessDenied):
            await client.admin.backup(tmp_path / "saved")
        assert len(node.seen) == 1


async def _half(request: web.Request) -> web.StreamResponse:
    """Send the beginning of a backup, and break the connection."""
    content = backup.head(
        backup.BackupInfo(
            cluster_id="c", version="1", rules=1, revision=1, highest_token=0, created_ms=0, members={},
            log_index=2, log_term=1, state_bytes=1000,
        )
    )  # fmt: skip
    response = web.StreamResponse()
    response.content_length = 5000
    await response.prepare(request)
    await response.write(content)
    assert request.transport is not None
    request.transport.close()
    return response


async def _short(request: web.Request) -> web.StreamResponse:
    """Send an answer that ends in order, and is not all of a backup."""
    del request
    return web.Response(body=backup.MAGIC)


async def test_a_backup_that_breaks_off_leaves_the_last_one(tmp_path: Path) -> None:
    """The file of before is untouched until the new one is whole."""
    path = tmp_path / "saved"
    path.write_text("the last one")
    for script in (_half, _short):
        async with ScriptedNode(script) as node, holdfast.Client(node.url) as client:
            with pytest.raises(holdfast.Unavailable, match="the backup broke off"):
                await client.admin.backup(path)
    assert path.read_text() == "the last one"
    assert names_in(tmp_path) == ["saved"]


async def test_two_saves_to_one_file(tmp_path: Path) -> None:
    """The one that breaks off takes nothing from the other, which ends while the first is under way."""
    path, begun, ended = tmp_path / "saved", asyncio.Event(), asyncio.Event()

    async def slow(request: web.Request) -> web.StreamResponse:
        begun.set()
        await ended.wait()
        return await _half(request)

    async with (
        a_node() as (_, url),
        holdfast.Client(url) as client,
        ScriptedNode(slow) as node,
        holdfast.Client(node.url) as other,
    ):
        breaking = asyncio.ensure_future(other.admin.backup(path))
        await begun.wait()
        assert len(names_in(tmp_path)) == 1
        info = await client.admin.backup(path)
        assert backup.check([path.read_bytes()]) == info
        assert len(names_in(tmp_path)) == 2
        ended.set()
        with pytest.raises(holdfast.Unavailable, match="the backup broke off"):
            await breaking
    assert backup.check([path.read_bytes()]) == info
    assert names_in(tmp_path) == ["saved"]


@pytest.mark.parametrize("kind", ["directory", "pipe", "device"])
async def test_only_files_are_replaced(kind: str, tmp_path: Path) -> None:
    """Not `/dev/null`, which root could; nothing is asked then."""
    path = tmp_path / "there"
    match kind:
        case "directory":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case _:
            path.symlink_to("/dev/null")
    before = path.stat().st_ino
    async with ScriptedNode(problem("overloaded")) as node, holdfast.Client(node.url) as client:
        with pytest.raises(FileExistsError, match="no file that a backup could replace"):
            await client.admin.backup(path)
        assert not node.seen
    assert path.stat().st_ino == before


async def test_a_link_stays_one(tmp_path: Path) -> None:
    """The file that it leads to is replaced."""
    path, link = tmp_path / "saved", tmp_path / "link"
    path.write_text("the last one")
    link.symlink_to(path)
    async with a_node() as (_, url), holdfast.Client(url) as client:
        info = await client.admin.backup(link)
    assert link.is_symlink()
    assert backup.check([path.read_bytes()]) == info


async def test_what_is_no_backup_at_all(tmp_path: Path) -> None:
    """A proxy's page, with status 200, is not taken for a backup."""

    async def page(request: web.Request) -> web.StreamResponse:
        del request
        return web.Response(body=b"<html>")

    async with ScriptedNode(page) as node, holdfast.Client(node.url) as client:
        with pytest.raises(holdfast.Unavailable, match="it is not a backup of Holdfast"):
            await client.admin.backup(tmp_path / "saved")


async def test_save_and_status(tmp_path: Path) -> None:
    """The two commands agree on what is in a file; a pipe works as well."""
    path = str(tmp_path / "saved")
    async with a_node() as (_, url):
        code, out, err = await run(url, "backup", "save", path)
        assert (code, err) == (0, "")
        assert out.startswith(f"saved {path}: revision ".encode())
        code, piped, err = await run(url, "backup", "save", "-")
        assert code == 0
        assert "revision " in err
    code, out, _ = await run("http://127.0.0.1:1", "backup", "status", "-o", "json", path)
    assert code == 0
    info = msgspec.json.decode(out, type=backup.BackupInfo)
    assert info == backup.check([(tmp_path / "saved").read_bytes()])
    code, out, _ = await run("", "backup", "status", "-", stdin=piped)
    assert code == 0
    assert out.startswith(b"complete: revision ")
    assert b"n1 at 127.0.0.1:" in out


async def test_status_refuses_a_damaged_file(tmp_path: Path) -> None:
    """It says what is wrong, and exits with 119."""
    path = tmp_path / "saved"
    path.write_bytes(b"HOLDFBAK and no more")
    code, out, err = await run("", "backup", "status", str(path))
    assert (code, out) == (119, b"")
    assert f"{path}: not usable: " in err
    for name, said in (("nothing", "No such file or directory"), ("", "Is a directory")):
        path = tmp_path / name
        code, out, err = await run("", "backup", "status", str(path))
        assert (code, out) == (119, b"")
        assert err.splitlines() == [
            f"holdfast: {path}: {said}",
            "holdfast: nothing was checked; name a backup that you can read",
        ]


async def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    """As `debug` does it; no node is asked before."""
    path = tmp_path / "saved"
    path.write_text("an older one")
    async with a_node() as (_, url):
        code, out, err = await run("http://127.0.0.1:1", "backup", "save", str(path))
        assert (code, out) == (2, b"")
        assert f"{path} is there already: name another file, or replace it with --force" in err
        assert path.read_text() == "an older one"
        code, _, err = await run(url, "backup", "save", "--force", str(path))
    assert (code, err) == (0, "")
    assert backup.check([path.read_bytes()]).revision


async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """As it was given; what was printed is not blamed."""
    path = tmp_path / "nowhere" / "saved"
    async with a_node() as (_, url):
        code, out, err = await run(url, "backup", "save", str(path))
    assert (code, out) == (119, b"")
    assert err.splitlines() == [
        f"holdfast: {path}: No such file or directory",
        "holdfast: nothing was saved; put that right and repeat the command",
    ]


async def test_saves_at_intervals_keep_the_newest(tmp_path: Path) -> None:
    """Files of its own are rotated, others stay, and a failure between two saves ends nothing."""
    (tmp_path / "holdfast-20200101T000000Z-r1.backup").write_text("old")
    (tmp_path / "holdfast.toml").write_text("somebody else's")
    async with a_node() as (served, url):
        argv = ("backup", "save", "--every", "50ms", "--keep", "2", "-o", "jsonl", str(tmp_path))
        async with command(url, *argv) as process, asyncio.timeout(DEADLINE_S):
            assert process.stdout is not None
            assert process.stderr is not None
            saved = [
                msgspec.json.decode(await process.stdout.readline(), type=backup.BackupInfo) for _ in range(3)
            ]
            served.node.failure = OSError("broken")
            assert b"not saved: " in await process.stderr.readline()
            served.node.failure = None
            saved.append(msgspec.json.decode(await process.stdout.readline(), type=backup.BackupInfo))
            files = [name for name in names_in(tmp_path) if name.endswith(".backup")]
            assert (tmp_path / "holdfast.toml").exists()
    assert len(files) <= 3  # one may have come meanwhile, before the rotation
    assert "holdfast-20200101T000000Z-r1.backup" not in files
    assert saved == sorted(saved, key=lambda info: info.revision)


async def test_a_clock_that_was_ahead_costs_no_backup(tmp_path: Path) -> None:
    """What was saved last stays, though files of a node with a wrong clock have names of later times."""
    for number in (1, 2):
        (tmp_path / f"holdfast-29990101T00000{number}Z-r1.backup").write_text("of a wrong clock")
    async with a_node() as (_, url):
        argv = ("backup", "save", "--every", "1h", "--keep", "2", "-o", "jsonl", str(tmp_path))
        async with command(url, *argv) as process, asyncio.timeout(DEADLINE_S):
            assert process.stdout is not None
            await process.stdout.readline()
    saved, other = names_in(tmp_path)
    assert not saved.startswith("holdfast-2999")
    assert other == "holdfast-29990101T000002Z-r1.backup"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("save", "x", "--keep", "2"), "--keep: only with --every"),
        (("save", "x", "--every", "0"), "--every: must be above 0"),
        (("save", ".", "--every", "1h", "--force"), "--force: not with --every"),
        (("save", "/nowhere", "--every", "1h"), "give a directory that exists"),
    ],
)
async def test_wrong_usage(argv: tuple[str, ...], says: str) -> None:
    """It is told before any node is asked."""
    code, _, err = await run("http://127.0.0.1:1", "backup", *argv)
    assert code == 2
    assert says in err
