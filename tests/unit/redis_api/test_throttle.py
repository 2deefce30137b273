"""CL.THROTTLE over real sockets, on a clock that the test moves, beside what redis-cell documents."""

import random
from fractions import Fraction
from math import ceil, floor

from lockstate.words.commands.admin import SetNamespace
from lockstate.words.kinds import Algorithm
from lockstate.words.settings import NamespaceSettings, RateSettings
from tests.unit.http_api.serving import token_line
from tests.unit.redis_api.test_server import TOKEN, serving

ONE_MS = Fraction(1, 1000)


class Cell:
    """The formula of redis-cell: a theoretical arrival time, exact, and rounded up where it is told."""

    def __init__(self, max_burst: int, count: int, period_s: int) -> None:
        self.limit, self.interval_s = max_burst + 1, Fraction(period_s, count)
        self.tolerance_s = self.interval_s * self.limit
        self.arrival_s = Fraction(0)

    def take(self, now_ms: int, quantity: int) -> list[int]:
        """Return the five integers."""
        now_s, increment_s = now_ms * ONE_MS, self.interval_s * quantity
        arrival_s = max(now_s, self.arrival_s)
        wait_s = arrival_s + increment_s - self.tolerance_s - now_s
        retry_s = -1
        if wait_s > 0:
            retry_s = ceil(wait_s) if increment_s <= self.tolerance_s else -1
        else:
            arrival_s = self.arrival_s = arrival_s + increment_s
        left_s = arrival_s - now_s
        remaining = floor((self.tolerance_s - left_s) / self.interval_s)
        return [int(wait_s > 0), self.limit, remaining, retry_s, ceil(left_s)]


async def test_it_answers_as_the_formula_of_redis_cell() -> None:
    """Random limits whose windows are whole milliseconds, and requests at random moments, of any size."""
    asked_count = limited_count = 0
    async with serving() as served, served.client() as client:
        rng = random.Random(1)
        now_ms = served.node.fixed_ms = 1_000_000
        for number in range(40):
            max_burst, count, period_s = rng.randint(0, 20), rng.choice([1, 2, 4, 5, 10]), rng.randint(1, 90)
            cell = Cell(max_burst, count, period_s)
            for _ in range(30):
                now_ms += rng.choice([0, 0, 1, 10, 500, 1000, rng.randint(0, 60_000)])
                served.node.fixed_ms = now_ms
                quantity = rng.choice([1, 1, 1, 0, 2, max_burst + 1, max_burst + 2])
                words = ("CL.THROTTLE", f"k{number}", max_burst, count, period_s, quantity)
                expected = cell.take(now_ms, quantity)
                assert await client.ask(*words) == expected, (now_ms, words)
                asked_count += 1
                limited_count += expected[0]
    assert asked_count == 1200
    assert 200 < limited_count < 1000


async def test_a_rate_without_a_whole_window_never_lets_more_through() -> None:
    """Three in ten seconds after a burst of one: the window is rounded up, by less than a millisecond."""
    async with serving() as served, served.client() as client:
        served.node.fixed_ms = 1_000_000
        assert await client.ask("CL.THROTTLE", "k", 0, 3, 10) == [0, 1, 0, -1, 4]
        served.node.fixed_ms += 3_333
        assert await client.ask("CL.THROTTLE", "k", 0, 3, 10) == [1, 1, 0, 1, 1]
        served.node.fixed_ms += 1
        assert await client.ask("CL.THROTTLE", "k", 0, 3, 10) == [0, 1, 0, -1, 4]


async def test_what_cannot_be_asked_is_refused() -> None:
    """By its grammar, or because the service has no such limit; nothing is taken."""
    async with serving() as served, served.client() as client:
        for words, error in (
            (("k", 1, 1), "-ERR wrong number of arguments for 'cl.throttle' command"),
            (("k", 1, 1, 1, 1, 1), "-ERR wrong number of arguments for 'cl.throttle' command"),
            (("k", "x", 1, 1), "-ERR value is not an integer or out of range"),
            (("k", -1, 1, 1), "-ERR max_burst and quantity must not be negative"),
            (("k", 1, 1, 1, -1), "-ERR max_burst and quantity must not be negative"),
            (("k", 1, 0, 1), "-ERR count and period must be positive"),
            (("k", 1, 1, 0), "-ERR count and period must be positive"),
            (("k", 10**6, 1, 1), "-ERR invalid-request: limit: 1000001; must be 1 to 1000000"),
            (("k", 10, 1, 10**9), "-ERR invalid-request: window_ms: "),
            (("k" * 600, 1, 1, 1), "-ERR name-too-long: "),
        ):
            assert (await client.ask("CL.THROTTLE", *words)).startswith(error), words
        assert served.node.machine.revision == 0


async def test_it_needs_the_right_acquire() -> None:
    """Also to look, which takes nothing."""
    async with serving(token_line("me", TOKEN, "acquire@redis/0/mine")) as served, served.client() as client:
        await client.ask("AUTH", TOKEN)
        for quantity in (1, 0):
            assert (await client.ask("CL.THROTTLE", "mine", 1, 1, 1, quantity))[0] == 0
            refused = await client.ask("CL.THROTTLE", "other", 1, 1, 1, quantity)
            assert refused.startswith("-NOPERM forbidden: this needs the right acquire")


async def test_a_namespace_sets_the_rate() -> None:
    """Whoever says the same goes on; whoever says something else is told so, also who only looks."""
    async with serving() as served, served.client() as client:
        rate = RateSettings(5, 1_000, Algorithm.GCRA)
        await served.node.submit(SetNamespace("redis/0", NamespaceSettings(rate=rate)), 5.0)
        assert await client.ask("CL.THROTTLE", "k", 4, 5, 1) == [0, 5, 4, -1, 1]
        for quantity in (1, 0):
            refused = await client.ask("CL.THROTTLE", "k", 9, 10, 1, quantity)
            assert refused.startswith("-ERR limit-mismatch: limit: 10; the namespace 'redis/0' sets 5")
