"""What holds for the names below a prefix: by both clients, and by `holdfast namespace`."""

import json
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import _main, read
from tests.unit.holdfast.cli.test_quotas import url_of
from tests.unit.holdfast.conftest import NewClient
from tests.unit.http_api.serving import serving, token_line

TENANT, WORKER = "hft_tenant".ljust(47, "t"), "hft_worker".ljust(47, "w")
LINES = token_line("tenant", TENANT, "admin@jobs") + token_line("worker", WORKER, "acquire")
OPEN: dict[str, int | bool | None] = dict.fromkeys(holdfast.NamespaceSettings.__struct_fields__)
NOTHING = {"holds": 0, "waits": 0, "cells": 0, "fences": 0, "rate_limits": 0, "bytes": 0}


async def test_a_namespace_is_set_reached_and_removed(new_client: NewClient) -> None:
    """By either client: what it does not allow is refused at once, and says which namespace it is."""
    async with serving(tokens=LINES) as served, new_client(url_of(served), token=TENANT) as tenant:
        every = holdfast.NamespaceSettings(1000, 60_000, 50, True, False, 1, 2, 3, 4)
        assert await tenant.admin.set_namespace("jobs/night", every, reason="by hand") == every
        async with new_client(url_of(served), token=WORKER) as worker:
            lease = await worker.acquire("jobs/night/1", ttl=60, renew=False)
            with pytest.raises(holdfast.QuotaExceeded) as full:
                await worker.acquire("jobs/night/2", ttl=60, renew=False)
            told = full.value.problem
            assert (told["namespace"], told["quota"], told["used"]) == ("jobs/night", "holds", 1)
            with pytest.raises(holdfast.Refused) as refused:
                await worker.acquire("jobs/night/2", ttl=61, renew=False)
            assert (refused.value.code, refused.value.problem["namespace"]) == (
                "ttl-out-of-range", "jobs/night",
            )  # fmt: skip
            with pytest.raises(holdfast.AccessDenied):
                await worker.admin.set_namespace("jobs", every, reason="by hand")
            (row,) = await tenant.admin.namespaces("jobs/")
            assert (row.prefix, row.settings, row.used.holds) == ("jobs/night", every, 1)
            assert await tenant.admin.namespace("jobs/night") == row
            await tenant.admin.remove_namespace("jobs/night", reason="by hand")
            await worker.acquire("jobs/night/2", ttl=61, renew=False)
            await worker.release(lease.hold_id)
        assert await tenant.admin.namespaces("jobs") == ()
        assert await tenant.admin.namespace("jobs/night") is None


async def test_a_rate_limit_is_what_its_namespace_sets(new_client: NewClient) -> None:
    """The client says nothing of it, also among several kinds and on a stream; something else is refused."""
    async with serving() as served, new_client(url_of(served)) as client:
        with pytest.raises(holdfast.Refused, match="no namespace sets the rate of 'mail/ann'"):
            await client.rate_limiter("mail/ann").take()
        rate = holdfast.RateSettings(3, 60_000, "gcra")
        settings = await client.admin.set_namespace(
            "mail", holdfast.NamespaceSettings(rate=rate), reason="by hand"
        )
        assert settings is not None
        assert settings.rate == rate
        limiter = client.rate_limiter("mail/ann")
        assert (await limiter.take()).remaining == 2
        assert (await limiter.peek()).remaining == 2
        async with client.together("a", rate_limits=[holdfast.WantedRate("mail/ann")], ttl=60):
            assert (await limiter.take(wait=0)).remaining == 0
        with pytest.raises(holdfast.Refused) as refused:
            await client.rate_limiter("mail/ann", "4/minute").take()
        assert (refused.value.code, refused.value.problem["limit"]) == ("limit-mismatch", 3)


async def test_all_pages_of_namespaces(new_client: NewClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads on until there is no more."""
    monkeypatch.setattr("lockstate.words.limits.LIST_LIMIT_MAX", 2)
    async with serving() as served, new_client(url_of(served)) as client:
        names = ["a", "a/%b", "a/b", "c/d e"]
        for name in names:
            await client.admin.set_namespace(name, holdfast.NamespaceSettings(waits=0), reason="by hand")
        assert [row.prefix for row in await client.admin.namespaces()] == names
        assert [row.prefix for row in await client.admin.namespaces("a/")] == names[1:3]


async def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It sets, shows and removes namespaces."""
    token_file = tmp_path / "token"
    token_file.write_text(TENANT)

    async def line(*argv: str) -> list[str]:
        before = ["--nodes", url, "--token-file", str(token_file), "namespace"]
        why = ["--reason", "as agreed"] if argv[0] in {"set", "remove"} else []
        assert await _main(read([*before, *argv, *why])) == 0
        return capsys.readouterr().out.splitlines()

    async with serving(tokens=LINES) as served:
        url = url_of(served)
        (said,) = await line(
            "set", "-o", "jsonl", "jobs", "--ttl-max", "1m", "--no-deadline", "no", "--holds", "5"
        )
        expected = {
            "prefix": "jobs",
            "settings": OPEN | {"ttl_ms_max": 60_000, "no_deadline": False, "holds": 5},
        }
        assert json.loads(said) == expected | {"revision": 1}
        titles, row = await line("list", "jobs")
        assert titles.split() == [
            "PREFIX",
            "HOLDS",
            "WAITS",
            "CELLS",
            "FENCES",
            "RATE_LIMITS",
            "BYTES",
            "RULES",
        ]
        assert row.split() == [
            "jobs",
            *["0", "of", "5", "0", "0", "0", "0", "0"],
            "ttl_ms_max=60000",
            "no_deadline=no",
        ]
        (shown,) = await line("list", "-o", "jsonl")
        assert json.loads(shown) == expected | {"used": NOTHING}
        await line("set", "jobs", "--ttl-min", "1s", "--lock-delay-min", "2s", "--held-max", "1h")
        assert (await line("list"))[1].split()[-1] == "held_ms_max=3600000"
        rest = await line(
            "set", "-o", "jsonl", "jobs", "--waits", "1", "--cells", "2", "--fences", "3", "--priority", "yes"
        )
        assert json.loads(rest[0])["settings"] == OPEN | {
            "waits": 1,
            "cells": 2,
            "fences": 3,
            "priority": True,
        }
        assert (await line("list"))[1].split()[-1] == "priority=yes"
        titles, row = await line("set", "jobs", "--bytes", "0", "--if-held", "refuse")
        assert titles.split() == [
            "PREFIX",
            "HOLDS",
            "WAITS",
            "CELLS",
            "FENCES",
            "RATE_LIMITS",
            "BYTES",
            "RULES",
        ]
        assert row.split() == ["jobs", "-", "-", "-", "-", "-", "0", "if_held=refuse"]
        assert (await line("list"))[1].split()[-4:] == ["0", "of", "0", "if_held=refuse"]
        row = (await line("set", "jobs", "--rate", "100/minute", "--rate-algorithm", "gcra"))[1]
        assert row.split()[-1] == "rate=100/60000ms,gcra"
        with pytest.raises(SystemExit, match="2"):
            await line("set", "jobs", "--rate", "many")
        assert "'many' is not a rate; write it like 100/minute" in capsys.readouterr().err
        await line("set", "jobs", "--waits", "1")
        assert (await line("list"))[1].split()[-1] == "-"
        assert await line("remove", "jobs") == ["jobs has no rules of its own"]
        assert await line("list", "-o", "jsonl") == []
