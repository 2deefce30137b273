"""A client of the Redis face that sends a command again when its answer is lost, as redis-py does.

It breaks its connections itself, at any moment from before a command has come to after it was answered, in
every way in which a connection can end; and nodes die, stop and lose their network meanwhile. Some clients
have values of their own, as lock libraries make them; others all have the same short one; and others a long
one of which each has a copy, as processes have that were forked behind its making.
"""

import asyncio
from random import Random
from typing import Any, Final

from tests.simulation.checks.redis_repeats import OK, SPACE, RedisRepeats
from tests.simulation.workload.any_client import AnyClient
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.client_holds import relied_until_us
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.network import REDIS_PORT
from tests.support.redis_words import Reader, Value, sent

REPEATS_MAX: Final = 10
"""How often redis-py 8 sends a command again."""
KEYS: Final = (b"a", b"b", b"c")
SHORT: Final = b"1"
COPIED: Final = b"c0ffee00c0ffee00c0ffee00c0ffee00"
VALUES: Final = (COPIED, COPIED, b"", SHORT, SHORT)
"""The values of clients, by their numbers; empty: a fresh one for each lock."""
THINK_S: Final = 0.3
TTL_MS: Final = (200, 500, 2_000, 20_000)
WAIT_MS: Final = (0, 0, 200, 2_000)
TIMEOUT_S: Final = (0.3, 1.0, 3.0)
"""How long a client waits for an answer."""
BREAKS_S: Final = (None, None, 0.0, 0.001, 0.003, 0.01, 0.05, 0.3)
"""About when it breaks the connection behind a command; None: it does not."""
BACK_OFF_S: Final = (0.0, 0.0, 0.01, 0.1, 0.5, 1.2)
STAYS_CHANCE: Final = 0.8
"""That it asks the same node again."""
SPINS_MAX: Final = 5
"""How often it asks again when it was told nil, as a lock that blocks does, with the same value."""
RELEASE: Final = b"""
    local token = redis.call('get', KEYS[1])
    if not token or token ~= ARGV[1] then return 0 end
    redis.call('del', KEYS[1])
    return 1
"""


class _LostError(Exception):
    """There is no answer."""


class _Link(asyncio.Protocol):
    """A connection to one node."""

    def __init__(self, node_id: str, name: str) -> None:
        self.node_id, self.name = node_id, name
        self.transport: Any = None
        self.is_over = False
        self._reader = Reader()
        self._asked: list[asyncio.Future[Value]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say who this is."""
        self.transport = transport
        self.send([b"CLIENT", b"SETNAME", self.name.encode()])

    def data_received(self, data: bytes) -> None:
        """Take answers."""
        self._reader.feed(data)
        while self._reader.values:
            answer, value = self._asked.pop(0), self._reader.values.popleft()
            if not answer.done():
                answer.set_result(value)

    def connection_lost(self, exc: Exception | None) -> None:
        """End what is under way."""
        del exc
        self.is_over = True
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(_LostError())
                answer.exception()  # nobody may wait for it any more

    def send(self, words: list[bytes]) -> "asyncio.Future[Value]":
        """Send a command; return its answer."""
        answer: asyncio.Future[Value] = asyncio.get_running_loop().create_future()
        self._asked.append(answer)
        self.transport.write(sent(words))
        return answer


class RedisClient(AnyClient):
    """One such client. While `is_active` is false it asks for nothing new."""

    def __init__(
        self, loop: NodeLoop, caller: Caller, repeats: RedisRepeats, *, number: int, random: Random
    ) -> None:
        super().__init__(loop, caller)
        self._repeats, self._random = repeats, random
        self._value = VALUES[(number - 1) % len(VALUES)]
        self._link: _Link | None = None
        self._count = 0
        self.spawn(self._live())

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / THINK_S))
            if self.is_active:
                await self._use_a_lock()

    async def _use_a_lock(self) -> None:
        """Take a lock, have it for a while, and release it or let it expire."""
        random = self._random
        key, ttl_ms, wait_ms = random.choice(KEYS), random.choice(TTL_MS), random.choice(WAIT_MS)
        value = self._value or random.randbytes(16).hex().encode()
        words = [b"SET", key, value, b"NX", b"PX", b"%d" % ttl_ms]
        if wait_ms:
            words = [b"HF.ACQUIRE", key, value, b"%d" % ttl_ms, b"%d" % wait_ms]
        spins = random.choice((0, 0, SPINS_MAX))
        taken = await self._insist(words)
        while taken is not None and taken[0] is None and spins:
            spins -= 1
            await asyncio.sleep(0.1)
            taken = await self._insist(words)
        if taken is None or not (taken[0] == OK or isinstance(taken[0], int)):
            return
        _, asked_us, link = taken
        name, relied_us = SPACE + key.decode(), relied_until_us(asked_us, ttl_ms)
        if relied_us <= self._loop.local_us():
            return
        self._repeats.believes(
            self.name, link.name, name, self._loop.now_us, self._loop.clock.true_time(relied_us)
        )
        await asyncio.sleep(random.random() * random.choice((0.05, 0.5, 1.2)) * ttl_ms / 1000)
        self._repeats.stopped_believing(self.name, name)
        if self._loop.local_us() < relied_us:
            await self._insist([b"EVAL", RELEASE, b"1", key, value])

    async def _insist(self, words: list[bytes]) -> tuple[Value, int, _Link] | None:
        """Ask until there is an answer: it, when it was asked for, and on which connection."""
        for _ in range(1 + REPEATS_MAX):
            asked_us = self._loop.local_us()
            try:
                link = await self._connected()
                asked_us = self._loop.local_us()
                answer = await self._ask(link, words)
            except (_LostError, OSError, TimeoutError):
                self._end(self._link)
            else:
                if not (isinstance(answer, str) and answer.startswith(("-LOADING", "-TRYAGAIN"))):
                    return answer, asked_us, link
            await asyncio.sleep(self._random.random() * self._random.choice(BACK_OFF_S))
        return None

    async def _connected(self) -> _Link:
        """Return a connection, the present one if there is one. Raises OSError, TimeoutError."""
        link, node_ids = self._link, self.caller.node_ids
        if link is not None and not link.is_over:
            return link
        stays = link is not None and link.node_id in node_ids and self._random.random() < STAYS_CHANCE
        node_id = link.node_id if link is not None and stays else self._random.choice(node_ids)
        self._count += 1
        name = f"{self.name}-{self._count}"
        async with asyncio.timeout(self._random.choice(TIMEOUT_S)):
            _, made = await self._loop.create_connection(lambda: _Link(node_id, name), node_id, REDIS_PORT)
        assert isinstance(made, _Link)
        self._link = made
        return made

    async def _ask(self, link: _Link, words: list[bytes]) -> Value:
        """Send a command, and often give up before its answer. Raises _LostError, TimeoutError."""
        random = self._random
        if random.random() < 0.1:
            # Something that is under way as well, and whose answer nobody needs.
            key, value = b"of-" + self.name.encode(), random.randbytes(16).hex().encode()
            link.send([b"SET", key, value, b"NX", b"PX", b"500"])
        answer = link.send(words)
        breaks_s = random.choice(BREAKS_S)
        if breaks_s is not None:
            async with asyncio.timeout(breaks_s * 2 * random.random()):
                return await answer
        async with asyncio.timeout(random.choice(TIMEOUT_S)):
            return await answer

    def _end(self, link: _Link | None) -> None:
        """Break a connection: in order, at once, or so that its node does not hear of it."""
        if link is not None and not link.is_over:
            transport = link.transport
            self._random.choice([transport.close, transport.close, transport.abort, transport.break_here])()
            link.is_over = True
