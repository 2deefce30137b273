"""Workers that acquire, renew and release over streams, some cancelled, and what each was told.

All times are those of the clients' clock, by which they know how long they may rely on what they hold.
"""

import asyncio
import collections
import contextlib
import itertools
import random
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import holdfast
from holdfast.values.clock import now_s
from tests.process.belief_checkers import Belief
from tests.support.both_clients import Threaded, beneath

T = TypeVar("T")

TIMEOUT_S: Final = 3.0
"""Seconds that clients have for each call, besides its wait."""
CALL_S_MAX: Final = 3 * TIMEOUT_S + 10
"""Seconds after which a call hangs: a late grant is renewed, and released if that fails. The rest is for
machines that are slow."""
TTLS_S: Final = (0.5, 1.0, 3.0)
WAITS_S: Final = (0, 0, 0, 0.05, 0.2)
CANCELLED_PART: Final = 0.2
LAST_S: Final = 0.1
"""Seconds before the end of its lease until which some hold is relied on, and then released."""
SESSION_PART: Final = 0.15
PLAIN_PART: Final = 0.3
BLOCK_PART: Final = 0.5
RENEWED_PART: Final = 0.4
RELEASED_PART: Final = 0.9
LAST_PART: Final = 0.5
"""How many of all steps are so."""
PERMITS: Final = 4
"""How many permits the semaphore has."""
LOCKS: Final = "abcdefgh"
"""The names of the locks, below the prefix of the load."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be acquired, and how."""

    name: str
    permits: int
    ttl_s: float
    wait_s: float
    is_block: bool
    in_session: bool
    is_plain: bool
    """Whether nothing renews it; some of these are relied on nearly to their end."""

    @property
    def limit(self) -> int:
        """How many can be held at a time, at most."""
        return PERMITS if self.permits else 1


def a_wish(prefix: str, choices: random.Random) -> Wish:
    """Return something to acquire: of few names, so that others want it, too."""
    permits = choices.choice((0, 0, 1, 2))
    return Wish(
        name=f"{prefix}/permits" if permits else f"{prefix}/{choices.choice(LOCKS)}",
        permits=permits,
        ttl_s=choices.choice(TTLS_S),
        wait_s=choices.choice(WAITS_S),
        is_block=choices.random() < BLOCK_PART,
        in_session=choices.random() < SESSION_PART,
        is_plain=not permits and choices.random() < PLAIN_PART,
    )


SURE: Final = ("ok", "lock-held", "no-permits", "Unavailable")
"""What says for sure whether something was granted."""


class Load:
    """Workers of several clients, and what they were told."""

    def __init__(self, prefix: str, seed: int) -> None:
        self.prefix = prefix
        self._seed = seed
        self._is_over = False
        self._numbers = itertools.count()
        self.beliefs: list[Belief] = []
        self.prompt: set[str] = set()
        """Acquires that were granted or refused for sure before what they may have got can have ended. Each
        names an owner of its own."""
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []

    def names(self) -> list[str]:
        """Return all that is ever acquired."""
        return [f"{self.prefix}/permits", *(f"{self.prefix}/{letter}" for letter in LOCKS)]

    def end(self) -> None:
        """Let all workers stop with what they are at."""
        self._is_over = True

    async def work(self, client: holdfast.Client, worker: str) -> None:
        """Take one step after the other, some of them cancelled: threads cannot be."""
        for number in itertools.count():
            if self._is_over:
                return
            choices = random.Random(f"{self._seed}/{worker}/{number}")
            wish = a_wish(self.prefix, choices)
            step = asyncio.create_task(self._step(client, wish, random.Random(f"{choices.random()}")))
            try:
                if not isinstance(client, Threaded) and choices.random() < CANCELLED_PART:
                    await asyncio.wait({step}, timeout=choices.choice((0, 0.002, 0.01, 0.05, 0.3)))
                    step.cancel()
                await asyncio.wait({step})
            finally:
                step.cancel()
            if not step.cancelled():
                step.result()

    async def _step(self, client: holdfast.Client, wish: Wish, choices: random.Random) -> None:
        """Acquire something, use it, and mostly give it back; what is not given back ends by itself."""
        call = f"call-{next(self._numbers)}"
        session = await self._session(client, wish) if wish.in_session else None
        if wish.in_session and session is None:
            return
        beneath(client)._owner = call  # nothing is awaited before it is read
        asked_s = now_s()
        told, hold = await self._timed(_acquiring(client, wish, session), wish.wait_s)
        self.counts[f"acquire: {told}"] += 1
        if told in SURE and not wish.in_session and now_s() - asked_s < wish.ttl_s:
            self.prompt.add(call)
        if hold is None:
            return
        if wish.is_block:
            with contextlib.suppress(holdfast.LeaseLost):
                async with hold:
                    await self._use(hold, wish, call, asked_s, choices)
            return
        await self._use(hold, wish, call, asked_s, choices)
        if choices.random() < RELEASED_PART:
            self._check_loss(hold, await self._told("release", hold.release()))

    async def _session(self, client: holdfast.Client, wish: Wish) -> Any:
        """Open a session that nobody keeps alive: it expires, soon."""
        told, session = await self._timed(client.session(ttl=wish.ttl_s, renew=False).open(), 0)
        self.counts[f"session: {told}"] += 1
        return session

    async def _use(self, hold: Any, wish: Wish, call: str, asked_s: float, choices: random.Random) -> None:
        """Rely on a hold for a while."""
        from_s = now_s()
        try:
            if wish.is_plain and choices.random() < LAST_PART:
                await asyncio.sleep(_twin(hold).remaining - LAST_S)
                return
            await asyncio.sleep(choices.choice((0, 0, 0.01, 0.05, 0.3)))
            if choices.random() < RENEWED_PART:
                self._check_loss(hold, await self._told("renew", hold.renew()))
                await asyncio.sleep(choices.choice((0, 0.05)))
        finally:
            until_s = min(now_s(), _twin(hold).lease.valid_until_s)
            self.beliefs.append(
                Belief(wish.name, call, hold.token, wish.permits or 1, wish.limit, asked_s, from_s, until_s)
            )

    # -- what calls tell ------------------------------------------------------------------------------------

    async def _told(self, what: str, calling: Coroutine[Any, Any, object]) -> str:
        told, _ = await self._timed(calling, 0)
        self.counts[f"{what}: {told}"] += 1
        return told

    async def _timed(self, calling: Awaitable[T], wait_s: float) -> tuple[str, T | None]:
        """Return what a call told, and gave. Whatever it is, and if it is cancelled, it comes in time."""
        began_s = now_s()
        try:
            return "ok", await calling
        except (holdfast.LockHeld, holdfast.LeaseExpired, holdfast.SessionExpired) as error:
            return error.code, None
        except (holdfast.Unavailable, holdfast.OutcomeUnknown, holdfast.LeaseLost) as error:
            return type(error).__name__, None
        finally:
            if (took_s := now_s() - began_s) > wait_s + CALL_S_MAX:
                self.wrong.append(f"a call took {took_s:.1f} s with a wait of {wait_s} s")

    def _check_loss(self, hold: Any, told: str) -> None:
        """Note a hold that the cluster says is over, while the client may still rely on it."""
        left_s = _twin(hold).lease.valid_until_s - now_s()
        if told.endswith("expired") and left_s > 0:
            self.wrong.append(f"{told} with {left_s:.3f} s left: {hold}")


def _acquiring(client: holdfast.Client, wish: Wish, session: Any) -> Coroutine[Any, Any, Any]:
    """Return the call that acquires what is wanted."""
    options: dict[str, Any] = {"wait": wish.wait_s, "session": session}
    options["ttl"] = None if session is not None else wish.ttl_s
    if wish.permits:
        return client.semaphore(wish.name, limit=PERMITS, permits=wish.permits, **options).acquire()
    if wish.is_plain and not isinstance(client, Threaded):
        return client.acquire(wish.name, renew=False, **options)
    return client.lock(wish.name, **options).acquire()


def _twin(hold: Any) -> holdfast.Hold:
    """Return the asyncio hold that a hold is, or stands on."""
    twin = hold.thing.twin if isinstance(hold, Threaded) else hold
    assert isinstance(twin, holdfast.Hold)
    return twin
