"""Freezes: by both clients, and by `holdfast freeze`."""

import json
import re
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import _main, read
from tests.unit.holdfast.cli.test_quotas import url_of
from tests.unit.holdfast.conftest import NewClient
from tests.unit.http_api.serving import serving, token_line

BOSS, WORKER = "hft_boss".ljust(47, "b"), "hft_worker".ljust(47, "w")
LINES = token_line("boss", BOSS, "admin,force,read") + token_line("worker", WORKER, "read@cron/db")


async def test_a_prefix_is_frozen_and_thawed(new_client: NewClient) -> None:
    """By either client: what is left is told, what would not wait is refused as if it were held."""
    async with serving() as served, new_client(url_of(served)) as client:
        lease = await client.acquire("db/1", ttl=60, renew=False)
        left = await client.admin.freeze("db", reason="the disk is moved", duration=600)
        assert (left.holds, left.waits, left.more) == (1, 0, False)
        with pytest.raises(holdfast.LockTimeout) as refused:
            await client.lock("db/2", ttl=60).acquire(wait=0)
        assert (refused.value.code, refused.value.detail) == ("frozen", "'db' is frozen: the disk is moved")
        await client.release(lease.hold_id)
        now = await client.admin.frozen("db")
        assert (now.frozen, now.reason, now.left) == (True, "the disk is moved", holdfast.LeftBelow(0, 0))
        assert now.ends_in_ms is not None
        assert [(row.prefix, row.left) for row in await client.admin.freezes("d")] == [("db", None)]
        assert await client.admin.freezes("e") == ()
        assert await client.admin.thaw("db", reason="it is moved") is True
        assert await client.admin.thaw("db", reason="it is moved") is False
        now = await client.admin.frozen("db")
        assert (now.frozen, now.ends_in_ms) == (False, None)
        assert (await client.acquire("db/2", ttl=60, renew=False)).token == 2


async def test_all_pages_of_freezes(new_client: NewClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads on until there is no more."""
    monkeypatch.setattr("lockstate.words.limits.LIST_LIMIT_MAX", 2)
    async with serving() as served, new_client(url_of(served)) as client:
        for name in ("a", "b", "c"):
            await client.admin.freeze(name, reason="a test")
        assert [row.prefix for row in await client.admin.freezes()] == ["a", "b", "c"]


async def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    """It freezes, shows, lists and thaws."""

    async def line(*words: str) -> str:
        assert await _main(read(["--nodes", url_of(served), "freeze", *words])) == 0
        return capsys.readouterr().out

    async with serving() as served:
        await served.acquire("db/1")
        said = await line("set", "db", "--for", "10m", "--reason", "the disk is moved")
        assert said == "db is frozen; 1 held, 0 waiting\n"
        shown = (await line("show", "db")).splitlines()
        assert shown[0].split() == ["PREFIX", "FROZEN", "ENDS", "REASON", "LEFT"]
        assert "the disk is moved" in shown[1]
        assert shown[1].endswith("1 held, 0 waiting")
        await line("set", "jobs", "--reason", "a look")
        listed = await line("list")
        assert "when thawed" in listed
        (row,) = json.loads(await line("list", "j", "-o", "json"))
        assert (row["prefix"], row["reason"]) == ("jobs", "a look")
        assert await line("end", "db", "--reason", "done") == "db is thawed\n"
        assert await line("end", "db", "--reason", "done") == "db was not frozen\n"
        assert (await line("show", "db")).splitlines()[1].split()[:4] == ["db", "no", "-", "-"]


async def test_what_freezes_a_name_is_shown_with_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """By `get`, and by `freeze show` of a prefix below; who may not read what is above is not told of it."""
    token_file = tmp_path / "token"

    async def line(*words: str) -> str:
        assert await _main(read(["--nodes", url_of(served), "--token-file", str(token_file), *words])) == 0
        return capsys.readouterr().out

    async with serving(tokens=LINES) as served:
        token_file.write_text(BOSS)
        for prefix, more in (("cron", ("--for", "10m")), ("cron/db", ()), ("cron/d", ()), ("cr", ())):
            await line("freeze", "set", prefix, "--reason", f"why {prefix}", *more)
        _, _, *said = (await line("get", "cron/db/1")).splitlines()
        assert len(said) == 2
        assert re.fullmatch(r"frozen: 'cron', since \S+s ago, for another \S+m: why cron", said[0])
        assert re.fullmatch(r"frozen: 'cron/db', since \S+s ago, until it is thawed: why cron/db", said[1])
        told = json.loads(await line("get", "cron", "--kind", "election", "-o", "json"))
        assert [row["prefix"] for row in told["frozen_by"]] == ["cron"]
        assert "frozen_by" not in json.loads(await line("get", "other", "-o", "json"))
        assert "since" not in await line("freeze", "show", "cron")
        assert "frozen: 'cron', since" in await line("freeze", "show", "cron/x")
        shown = json.loads(await line("freeze", "show", "cron/db", "-o", "json"))
        assert [row["prefix"] for row in shown["frozen_by"]] == ["cron"]
        token_file.write_text(WORKER)
        assert "'cron/db', since" in await line("get", "cron/db/1")
        assert "'cron', since" not in await line("get", "cron/db/1")


async def test_a_prefix_has_no_slash_at_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    """All that take one say so, reading and writing."""
    async with serving() as served:
        for words in (
            ("freeze", "set", "jobs/", "--reason", "a look"),
            ("freeze", "end", "jobs/", "--reason", "a look"),
            ("freeze", "show", "jobs/"),
            ("namespace", "remove", "jobs/", "--reason", "a look"),
        ):
            code = await _main(read(["--nodes", url_of(served), *words]))
            said = capsys.readouterr().err
            assert (code, "prefix: leave out the '/' at its end: 'jobs' covers" in said) == (119, True), said
