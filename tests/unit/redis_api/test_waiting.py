"""HF.ACQUIRE over real sockets: the order of the queue, and what becomes of clients that leave."""

import pytest

from cluster.errors import OutcomeUnknown
from tests.support.redis_words import sent
from tests.unit.http_api.serving import token_line, until
from tests.unit.redis_api.test_server import TOKEN, VALUE, Connected, Served, leaving, serving

NAME = "redis/0/k"


def waiting_count(served: Served) -> int:
    """Return how many wait for the lock in the cluster."""
    return len(served.node.machine.lock(NAME).queue)


async def begin_wait(served: Served, client: Connected, value: bytes, wait_ms: int = 60_000) -> None:
    """Let a client ask for the lock, and see it in the queue."""
    count = waiting_count(served)
    client.send("HF.ACQUIRE", "k", value, 30_000, wait_ms)
    await until(lambda: waiting_count(served) == count + 1)


async def test_those_who_wait_get_it_in_their_order() -> None:
    """Each answer is the fencing token, which rises; who waited too long hears nothing of one."""
    async with serving() as served, served.client() as one, served.client() as two, served.client() as three:
        first = await one.ask("HF.ACQUIRE", "k", VALUE, 30_000, 0)
        assert first == await one.ask("HF.TOKEN", "k", VALUE)
        assert 29_000 < await one.ask("PTTL", "k") <= 30_000
        await begin_wait(served, two, b"two")
        await begin_wait(served, three, b"three")
        assert await one.ask("HF.ACQUIRE", "k", VALUE, 30_000, 1) is None
        assert await one.ask("DEL", "k") == 1
        second = await two.read()
        assert second == await one.ask("HF.TOKEN", "k", "two")
        assert await two.ask("DEL", "k") == 1
        third = await three.read()
        assert first < second < third
        assert await three.ask("PEXPIRE", "k", 5_000) == 1, "it was taken on this connection"


async def test_who_leaves_holds_up_nobody() -> None:
    """The wait of a connection that ended is out of the queue, and the next one gets the lock."""
    async with serving() as served, served.client() as holder, served.client() as last:
        assert await holder.ask("HF.ACQUIRE", "k", VALUE, 30_000, 0)
        async with served.client() as leaver:
            await begin_wait(served, leaver, b"leaver, of whom nobody hears again")
            await begin_wait(served, last, b"last")
        await until(lambda: waiting_count(served) == 1)
        assert await holder.ask("DEL", "k") == 1
        assert await last.read() == await holder.ask("HF.TOKEN", "k", "last")


async def test_a_grant_that_nobody_hears_of_is_given_back() -> None:
    """At once: the connection that waited for it is gone."""
    async with serving() as served:
        served.node.answers.clear()
        async with served.client() as leaver:
            leaver.send("HF.ACQUIRE", "k", VALUE, 30_000, 0)
            await until(lambda: len(served.holders) == 1)
        await until(lambda: not served.holders)


async def test_what_a_lost_set_took_is_not_waited_for() -> None:
    """Whoever asks again with its value, this time to wait, has it already."""
    async with serving() as served:
        async with leaving(served, VALUE):
            pass
        (token,) = served.holders
        async with served.client() as client:
            client.send("HF.ACQUIRE", "k", VALUE, 60_000, 60_000)
            served.node.answers.set()
            assert await client.read() == token
            assert await client.ask("PTTL", "k") > 50_000


async def test_nothing_stays_of_what_has_no_outcome() -> None:
    """The connection ends without an answer, and what was taken is taken back."""
    async with serving() as served, served.client() as client:
        served.node.lost = OutcomeUnknown("no outcome")
        client.send("HF.ACQUIRE", "k", VALUE, 30_000, 60_000)
        assert await client.is_over()
        await until(lambda: not served.holders)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["k", "v", "x", "0"], "-ERR value is not an integer"),
        (["k", "v", "30000", "-1"], "-ERR invalid-request: wait_ms: "),
        (["k", "v", "0", "0"], "-ERR ttl-out-of-range: "),
        (["k" * 600, "v", "30000", "0"], "-ERR name-too-long: "),
        (["k", "v", "30000"], "-ERR wrong number of arguments for 'hf.acquire' command"),
    ],
)
async def test_what_cannot_be_asked_is_refused(words: list[str], error: str) -> None:
    """Each refusal names what is wrong."""
    async with serving() as served, served.client() as client:
        assert (await client.ask("HF.ACQUIRE", *words)).startswith(error)


async def test_it_needs_the_right_to_acquire() -> None:
    """For the name of the key."""
    token = token_line("billing", TOKEN, "acquire@redis/0/billing")
    async with serving(token) as served, served.client() as client:
        assert await client.ask("AUTH", TOKEN) == "+OK"
        assert (await client.ask("HF.ACQUIRE", "k", "v", 30_000, 0)).startswith("-NOPERM ")
        assert await client.ask("HF.ACQUIRE", "billing/k", "v", 30_000, 0)


@pytest.mark.parametrize("words", [("BLPOP", "q", 0), ("HF.ACQUIRE", "k", "other", 30_000, 60_000)])
async def test_a_client_that_says_much_behind_a_wait_is_heard_of_when_it_goes(
    words: tuple[object, ...],
) -> None:
    """Its connection is read no more then, so nobody would hear its end: such a wait is refused, or over."""
    much = b"PING\r\n" * 20_000
    async with serving() as served, served.client() as holder:
        assert await holder.ask("HF.ACQUIRE", "k", VALUE, 30_000, 0)
        async with served.client() as hasty, served.client() as later:
            hasty.writer.write(sent([str(word).encode() for word in words]) + much)
            assert (await hasty.read()).startswith("-ERR too many commands behind one that waits")
            later.send(*words)  # type: ignore[arg-type]
            await until(lambda: served.face.waits.count + waiting_count(served) == 1)
            later.writer.write(much)
            assert (await later.read()).startswith("-ERR too many commands behind one that waits")
            assert await later.is_over()
        await until(lambda: served.face.clients_count == 1)
        await until(lambda: served.face.waits.count + waiting_count(served) == 0)
