"""How much a principal may have: by both clients, and by `holdfast quota`."""

import json
from pathlib import Path

import pytest

import holdfast
from holdfast.cli.main import _main, read
from tests.unit.holdfast.conftest import NewClient
from tests.unit.http_api.serving import Served, serving, token_line

WORKER, ADMIN = "hft_worker".ljust(47, "w"), "hft_admin".ljust(47, "a")
LINES = token_line("worker", WORKER, "read,acquire") + token_line("boss", ADMIN, "admin")
UNBOUNDED: dict[str, int | None] = dict.fromkeys(holdfast.Quota.__struct_fields__)


def url_of(served: Served) -> str:
    """Return the address of the node."""
    return f"http://127.0.0.1:{served.port}"


async def test_a_quota_is_set_reached_and_ended(new_client: NewClient) -> None:
    """By either client: who has as much as it may have is refused at once, with the numbers."""
    async with serving(tokens=LINES) as served, new_client(url_of(served), token=ADMIN) as boss:
        every = {what: 10**6 + number for number, what in enumerate(holdfast.Quota.__struct_fields__)}
        assert await boss.admin.set_quota("worker", **every, reason="by hand") == holdfast.Quota(**every)
        assert await boss.admin.set_quota("worker", holds=1, reason="by hand") == holdfast.Quota(holds=1)
        async with new_client(url_of(served), token=WORKER) as worker:
            lease = await worker.acquire("a", ttl=60, renew=False)
            with pytest.raises(holdfast.QuotaExceeded) as refused:
                await worker.acquire("b", ttl=60, renew=False)
            assert (refused.value.problem["quota"], refused.value.problem["used"]) == ("holds", 1)
            with pytest.raises(holdfast.AccessDenied):
                await worker.admin.quotas()
            (row,) = await boss.admin.quotas()
            assert (row.principal, row.quota, row.used.holds) == ("worker", holdfast.Quota(holds=1), 1)
            assert await boss.admin.quota("worker") == row
            await boss.admin.remove_quota("worker", reason="by hand")
            await worker.acquire("b", ttl=60, renew=False)
            await worker.release(lease.hold_id)
        assert [row.quota for row in await boss.admin.quotas()] == [None]
        nobody = await boss.admin.quota("nobody")
        assert (nobody.principal, nobody.quota, nobody.used.holds) == ("nobody", None, 0)


async def test_all_pages_of_quotas(new_client: NewClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reads on until there is no more."""
    monkeypatch.setattr("lockstate.words.limits.LIST_LIMIT_MAX", 2)
    async with serving(tokens=LINES) as served, new_client(url_of(served), token=ADMIN) as boss:
        for name in ("*", "a", "b", "c/d"):
            await boss.admin.set_quota(name, sessions=1, waits=0, reason="by hand")
        assert [row.principal for row in await boss.admin.quotas()] == ["*", "a", "b", "c/d"]


async def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It sets, shows and ends quotas."""
    token_file = tmp_path / "token"
    token_file.write_text(ADMIN)

    async def line(*argv: str) -> list[str]:
        before = ["--nodes", url, "--token-file", str(token_file), "quota"]
        why = ["--reason", "as agreed"] if argv[0] in {"set", "remove"} else []
        assert await _main(read([*before, *argv, *why])) == 0
        return capsys.readouterr().out.splitlines()

    async with serving(tokens=LINES) as served:
        url = url_of(served)
        (said,) = await line("set", "-o", "jsonl", "ci", "--holds", "5", "--waits", "0")
        expected = {"principal": "ci", "quota": UNBOUNDED | {"holds": 5, "waits": 0}}
        assert json.loads(said) == expected | {"revision": 1}
        titles, row = await line("list")
        assert titles.split() == ["PRINCIPAL", *[what.upper() for what in UNBOUNDED]]
        assert row.split() == ["ci", "0", "0", "of", "5", "0", "of", "0", "0", "0", "0", "0"]
        (shown,) = await line("list", "-o", "jsonl")
        assert json.loads(shown) == expected | {"used": dict.fromkeys(UNBOUNDED, 0)}
        _, row = await line("set", "ci", "--cells", "1", "--fences", "2", "--bytes", "3", "--sessions", "4")
        assert row.split() == ["ci", "4", "-", "-", "1", "2", "-", "3"]
        assert await line("remove", "ci") == ["ci has no quota of its own"]
        assert await line("list", "-o", "jsonl") == []
