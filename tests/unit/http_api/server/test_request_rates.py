"""How many requests a second a node takes of one caller, in both lanes and on a stream."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

import holdfast
from cluster.peers.strangers import origin_of
from holdfast import wire
from holdfast.wire.stream import JSON
from http_api.server.connection_limits import ConnectionPlaces, PlaceLimits
from http_api.server.request_rates import RequestRates, TooManyRequests, caller_of
from lockapi.gateway import Gateway
from lockapi.needs import ACQUIRE, ADMIN, Need
from lockapi.rights import Principal, Rights
from tests.support.local_node import LocalNode
from tests.unit.http_api.serving import Got, Served, bearer, serving, token_line

TOKENS = {name: f"token-of-{name}-".ljust(40, "x") for name in ("ann", "bob", "ops")}
LINES = b"".join(
    [
        token_line("ann", TOKENS["ann"], "read,acquire"),
        token_line("bob", TOKENS["bob"], "read,acquire"),
        token_line("ops", TOKENS["ops"], "read,acquire,force,admin,metrics"),
    ]
)


class Clock:
    """A clock that stands still until a test moves it."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now_s


class Unseen:
    """A connection that nobody ends."""

    def end(self) -> None:
        """Fail."""
        raise NotImplementedError


class Bound:
    """Rates by a clock of the test."""

    def __init__(self, per_second: int) -> None:
        self.clock = Clock()
        self.rates = RequestRates(per_second, self.clock)

    def wait_ms(self, caller: str = "ann", need: Need = ACQUIRE, count: int = 1) -> int:
        """Ask as somebody; return after how many milliseconds to come back, 0 if there was room."""
        try:
            self.rates.take(caller, need, count)
        except TooManyRequests as refused:
            return refused.retry_after_ms
        return 0


def test_a_burst_of_a_second_and_then_one_by_one() -> None:
    """Who has asked all at once is told when there is room for one, and has it then, not earlier."""
    bound = Bound(4)
    assert [bound.wait_ms() for _ in range(5)] == [0, 0, 0, 0, 250]
    bound.clock.now_s += 0.249
    assert bound.wait_ms() == 1
    bound.clock.now_s += 0.001
    assert [bound.wait_ms(), bound.wait_ms()] == [0, 250]
    bound.clock.now_s += 1000
    assert [bound.wait_ms() for _ in range(5)] == [0, 0, 0, 0, 250]


def test_each_caller_has_a_bucket_of_its_own() -> None:
    """What one has asked leaves the others theirs."""
    bound = Bound(1)
    assert [bound.wait_ms("ann"), bound.wait_ms("ann"), bound.wait_ms("bob")] == [0, 1000, 0]


async def test_a_principal_is_counted_by_its_name_and_nobody_by_the_address() -> None:
    """Of IPv6 that is the network, as for connections."""
    room, gateway = ConnectionPlaces(PlaceLimits(), origin_of), Gateway(LocalNode())
    places = [room.come(Unseen(), address) for address in ("10.0.0.1", "2001:db8::1", "2001:db8::2")]
    ann = gateway.of(Principal("ann", Rights({})))
    assert {caller_of(ann, place) for place in places} == {"ann"}
    first, second, third = [caller_of(gateway, place) for place in places]
    assert first != second == third


@pytest.mark.parametrize(("per_second", "kept"), [(1, 1), (9, 1), (30, 3)])
def test_some_is_kept_for_operators(per_second: int, kept: int) -> None:
    """However much a caller has asked for, it can still do so much of what needs `admin` or `force`."""
    bound = Bound(per_second)
    assert [bound.wait_ms() for _ in range(per_second)] == [0] * per_second
    assert bound.wait_ms() > 0
    assert [bound.wait_ms(need=ADMIN) for _ in range(kept)] == [0] * kept
    assert bound.wait_ms(need=ADMIN) > 0


def test_what_comes_in_one_message_has_to_be_waited_for_afterwards() -> None:
    """It is taken if there is room for one, and the next one waits the longer."""
    bound = Bound(10)
    assert bound.wait_ms(count=30) == 0
    assert bound.wait_ms() == 2100
    bound.clock.now_s += 2.1
    assert bound.wait_ms() == 0


def test_no_bound_counts_nothing() -> None:
    """Nothing is refused, kept or told."""
    bound = Bound(0)
    assert [bound.wait_ms() for _ in range(3)] == [0, 0, 0]
    assert bound.rates._full_at_s == {}
    assert list(bound.rates.samples()) == []


def test_buckets_that_are_full_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that many have asked keeps those of the last second."""
    monkeypatch.setattr("http_api.server.request_rates.BUCKETS_COUNT_LEAST", 2)
    bound = Bound(1)
    bound.rates = RequestRates(1, bound.clock)
    for name in ("a", "b"):
        bound.wait_ms(name)
    bound.clock.now_s += 0.5
    bound.wait_ms("c")
    assert set(bound.rates._full_at_s) == {"a", "b", "c"}
    bound.clock.now_s += 0.6
    for name in "defgh":
        bound.wait_ms(name)
    assert set(bound.rates._full_at_s) == set("cdefgh")


# -- over HTTP --------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def bounded(
    per_second: int, tokens: bytes | None = LINES, *, fast_lane: bool = True
) -> AsyncIterator[tuple[Served, Clock]]:
    """Serve with a bound, by a clock that stands still."""
    clock = Clock()
    rates = RequestRates(per_second, clock)
    async with serving(tokens=tokens, fast_lane=fast_lane, rates=rates) as served:
        yield served, clock


async def acquired(served: Served, who: str, name: str, **fields: Any) -> Got:
    """Acquire a lock as somebody, "" for nobody."""
    body = {"name": name, "ttl_ms": 60_000} | fields
    headers = bearer(TOKENS[who]) if who else {}
    return await served.call("POST", wire.LOCK_ACQUIRE, body, headers=headers)


@pytest.mark.parametrize("fast_lane", [True, False])
@pytest.mark.parametrize("who", ["ann", ""])
async def test_one_too_many(who: str, fast_lane: bool) -> None:  # noqa: FBT001 - a parameter
    """It is refused with the bound, has not been done, and passes a moment later."""
    async with bounded(2, LINES if who else None, fast_lane=fast_lane) as (served, clock):
        for name in ("a", "b"):
            assert (await acquired(served, who, name)).status == 200
        refused = await acquired(served, who, "c")
        told = {key: refused.body[key] for key in ("status", "code", "limit", "retry_after_ms")}
        assert told == {"status": 429, "code": "too-many-requests", "limit": 2, "retry_after_ms": 500}
        assert (refused.body["outcome"], refused.headers["Retry-After"]) == ("not-applied", "1")
        assert "c" not in served.node.machine.state.locks
        clock.now_s += 0.5
        assert (await acquired(served, who, "c")).status == 200


async def test_reads_and_waits_count_as_well() -> None:
    """Whatever a call is about: what it costs is not known before."""
    async with bounded(2) as (served, _):
        assert (await acquired(served, "ann", "a", wait_ms=1)).status == 200
        assert (await served.call("GET", "/v1/locks/a", headers=bearer(TOKENS["ann"]))).status == 200
        got = await served.call("GET", "/v1/locks/a", headers=bearer(TOKENS["ann"]))
        assert got.body["code"] == "too-many-requests"
        assert (await acquired(served, "bob", "b")).status == 200


async def test_probes_are_free_and_refusals_are_counted() -> None:
    """Supervisors ask without end; what is refused is a number that they can read."""
    async with bounded(1) as (served, _):
        ops = bearer(TOKENS["ops"])
        assert (await acquired(served, "ops", "a")).status == 200
        assert [(await acquired(served, "ops", "a")).status for _ in range(3)] == [429] * 3
        for path in (wire.LIVEZ, wire.READYZ, wire.METRICS) * 3:
            assert (await served.call("GET", path, headers=ops)).status == 200
        metrics = (await served.call("GET", wire.METRICS, headers=ops)).body.decode()
        assert "\nholdfast_http_too_many_requests_total 3\n" in metrics


async def test_an_operator_who_is_busy_can_still_act() -> None:
    """A tenth more is kept for it, at least one."""
    async with bounded(1) as (served, _):
        assert (await acquired(served, "ops", "a")).status == 200
        assert (await acquired(served, "ops", "b")).status == 429
        set_one = await served.call(
            "PUT", "/v1/quotas/ann", {"holds": 1, "reason": "by hand"}, headers=bearer(TOKENS["ops"])
        )
        assert set_one.status == 200
        again = await served.call(
            "PUT", "/v1/quotas/ann", {"holds": 1, "reason": "by hand"}, headers=bearer(TOKENS["ops"])
        )
        assert (again.status, again.body["code"]) == (429, "too-many-requests")


async def test_commands_on_a_stream_count() -> None:
    """A message that comes too early is refused with its number, and may be sent again later."""
    async with bounded(4) as (served, clock), aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{served.port}{wire.STREAM}"
        async with client.ws_connect(url, protocols=(JSON,), headers=bearer(TOKENS["ann"])) as socket:

            async def say(*message: Any) -> Any:
                await socket.send_json(message)
                return (await socket.receive_json())[:6]

            take = [16, "mail", 9, 1000]
            assert (await say(1, 1, "", 60_000))[0] == 1
            assert (await say(2, 1, [], 0, [take] * 3))[0] == 2
            refused = await say(2, 4, [], 0, [take])
            assert (refused[:3], refused[4:]) == ([4, 4, "too-many-requests"], [250, "not-applied"])
            clock.now_s += 0.25
            assert (await say(2, 4, [], 0, [take]))[0] == 2


async def test_a_client_comes_back_when_there_is_room() -> None:
    """Its user hears nothing of it."""
    async with serving(tokens=LINES, rates=RequestRates(20)) as served:
        url = f"http://127.0.0.1:{served.port}"
        async with holdfast.Client(url, token=TOKENS["ann"]) as client:
            leases = await asyncio.gather(*[client.acquire(f"a{number}", ttl=60) for number in range(30)])
        assert len({lease.token for lease in leases}) == 30
