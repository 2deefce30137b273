"""Clients of the simulated cluster: each on its own machine and clock, careful as the SDK, and impatient."""

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import msgspec

from lockstate import results
from lockstate.commands import (
    Acquire,
    CloseSession,
    ForceRelease,
    KeepAlive,
    OpenSession,
    Release,
    Renew,
)
from lockstate.modes import Mode
from lockstate.results import Reason, Refused, Result
from tests.simulation.asking import Asker
from tests.simulation.front import Front
from tests.simulation.history import History, Query, ReadLock, ReadLocks, ReadSession
from tests.simulation.loop import NodeLoop

ROUNDING_US: Final = 1_000
RATE_DIVISOR: Final = 500
"""What a client takes off a lease, as the SDK does: rounding, and the error of clock rates."""
SESSION_TTL_MS_MIN: Final = (2_000, 10_000, 20_000, 20_000)
"""Keepalives shall not be all that happens."""


class Habits(msgspec.Struct, frozen=True):
    """How the clients of one world behave."""

    names: tuple[str, ...]
    sessions_max: int
    """Of one client at a time."""
    think_s: float
    """On average, between two actions of one client."""
    ttl_ms: tuple[int, int]
    wait_ms: tuple[int, int]
    timeout_s: tuple[float, float]


@dataclass
class Held:
    """What a client holds, or held until not long ago."""

    name: str
    mode: Mode
    hold_id: str
    token: int
    session_id: str
    ttl_ms: int
    until_us: int
    """On the client's own clock."""
    is_renewing: bool = False


@dataclass
class Session:
    """A session of a client's."""

    session_id: str
    ttl_ms: int
    holds: list[str] = field(default_factory=list)


class Client:
    """One client. `active` is false while the world wants it to be quiet."""

    def __init__(
        self,
        loop: NodeLoop,
        front: Front,
        node_ids: list[str],
        history: History,
        *,
        habits: Habits,
        random: Random,
    ) -> None:
        self.name = loop.name
        self.is_active = True
        self._loop = loop
        self._asker = Asker(loop, front, node_ids, history, timeout_s=habits.timeout_s, random=random)
        self._history = history
        self._habits = habits
        self._random = random
        self._sessions: dict[str, Session] = {}
        self._held: dict[str, Held] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._main = self._spawn(self._live())

    def told_of_nodes(self, node_ids: list[str]) -> None:
        """Ask these nodes from now on."""
        self._node_ids = list(node_ids)

    def leave(self) -> None:
        """End the client's process."""
        self._loop.kill()

    # -- what it does ---------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Do something now and again."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._habits.think_s))
            if self.is_active:
                self._spawn(self._act())

    def _spawn(self, work: Any) -> "asyncio.Task[Any]":
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        self._loop.tell_failure(task)

    async def _act(self) -> None:
        """Do one thing."""
        random = self._random
        self._forget_old()
        dice = random.random()
        if dice < 0.08 and len(self._sessions) < self._habits.sessions_max:
            await self._open_session()
        elif dice < 0.45:
            await self._acquire(self._new_acquire())
        elif dice < 0.52:
            await self._acquire(self._new_acquire(wait_ms=random.randint(1000, 20_000)), leaves=True)
        elif dice < 0.57:
            await self._acquire_twice_at_once()
        elif dice < 0.70 and self._held:
            await self._renew(random.choice(list(self._held.values())))
        elif dice < 0.85 and self._held:
            await self._release(random.choice(list(self._held.values())))
        elif dice < 0.87:
            await self._force()
        elif dice < 0.88 and self._sessions:
            await self._close_session(random.choice(list(self._sessions.values())))
        else:
            await self._read()

    async def _open_session(self) -> None:
        ttl_ms = max(self._random.choice(SESSION_TTL_MS_MIN), self._pick_ttl())
        command = OpenSession(self._asker.new_id(), ttl_ms, {"client": self.name}, self._asker.request_id())
        _, result = await self._asker.insist(command)
        if isinstance(result, results.SessionOpened):
            session = self._sessions[result.session_id] = Session(result.session_id, ttl_ms)
            self._spawn(self._keep_alive(session))

    async def _keep_alive(self, session: Session) -> None:
        """Keep a session alive, well or badly, until it ends."""
        while session.session_id in self._sessions:
            await asyncio.sleep(session.ttl_ms / 1000 / self._random.choice([2, 3, 3, 4]))
            if session.session_id not in self._sessions:
                return
            asked_us, result = await self._asker.insist(
                KeepAlive(session.session_id), patience_s=session.ttl_ms / 1000
            )
            if isinstance(result, results.SessionKept):
                for hold_id in session.holds:
                    held = self._held.get(hold_id)
                    if held is not None:
                        self._believe(held, asked_us, result.expires_in_ms)
            elif isinstance(result, Refused) and result.reason == Reason.SESSION_EXPIRED:
                self._session_over(session)

    async def _close_session(self, session: Session) -> None:
        self._session_over(session)
        await self._asker.insist(CloseSession(session.session_id, self._asker.request_id()))

    def _session_over(self, session: Session) -> None:
        self._sessions.pop(session.session_id, None)
        for hold_id in session.holds:
            self._give_up(hold_id)

    def _new_acquire(self, wait_ms: int | None = None) -> Acquire:
        random, habits = self._random, self._habits
        session_id, ttl_ms = "", self._pick_ttl()
        if self._sessions and random.random() < 0.5:
            session_id, ttl_ms = random.choice(list(self._sessions)), 0
        if wait_ms is None:
            wait_ms = random.randint(*habits.wait_ms) if random.random() < 0.6 else 0
        return Acquire(
            name=random.choice(habits.names),
            mode=Mode.SHARED if random.random() < 0.3 else Mode.EXCLUSIVE,
            hold_id=self._asker.new_id(),
            attempt_id=self._asker.new_id(),
            session_id=session_id,
            ttl_ms=ttl_ms,
            owner=self.name,
            wait_ms=wait_ms,
            lock_delay_ms=random.choice([0, 0, 0, 0, 500, 3000]),
            request_id=self._asker.request_id(),
        )

    async def _acquire(self, command: Acquire, *, leaves: bool = False) -> None:
        if not leaves:
            asked_us, result = await self._asker.insist(command, patience_s=command.wait_ms / 1000 + 10)
            self._take_grant(command, asked_us, result)
            return
        task = self._spawn(self._asker.attempt(self._random.choice(self._asker.node_ids), command))
        await asyncio.wait({task}, timeout=self._random.uniform(0, command.wait_ms / 1000))
        if task.done() and not task.cancelled() and task.exception() is None:
            asked_us, result = task.result()
            self._take_grant(command, asked_us, result)
        task.cancel()

    async def _acquire_twice_at_once(self) -> None:
        """Send one request to two nodes at the same time."""
        command = msgspec.structs.replace(self._new_acquire(), request_id=self._asker.new_id())
        nodes = self._random.sample(self._asker.node_ids, min(2, len(self._asker.node_ids)))
        tasks = [self._spawn(self._asker.attempt(node_id, self._asker.again(command))) for node_id in nodes]
        answers = await asyncio.gather(*tasks)
        if all(result is not None for _, result in answers):
            # Who hangs up on one of the two takes the whole request back.
            for asked_us, result in answers:
                self._take_grant(command, asked_us, result)

    def _take_grant(self, command: Acquire, asked_us: int, result: Result | None) -> None:
        if isinstance(result, results.Granted):
            ttl_ms = command.ttl_ms
            session = self._sessions.get(command.session_id)
            if session is not None:
                session.holds.append(result.hold_id)
            held = self._held.get(result.hold_id)
            if held is None:
                held = Held(
                    result.name, result.mode, result.hold_id, result.token, command.session_id, ttl_ms, 0
                )
                self._held[result.hold_id] = held
            self._believe(held, asked_us, result.expires_in_ms)
        elif isinstance(result, Refused) and result.reason == Reason.SESSION_EXPIRED:
            session = self._sessions.get(command.session_id)
            if session is not None:
                self._session_over(session)

    async def _renew(self, held: Held) -> None:
        if held.is_renewing:
            # Two renewals with different leases may come into effect in any order.
            return
        held.is_renewing = True
        ttl_ms = self._pick_ttl() if self._random.random() < 0.2 and not held.session_id else 0
        if ttl_ms:
            self._shorten(held, ttl_ms)
        asked_us, result = await self._asker.insist(
            Renew(held.hold_id, ttl_ms, self._asker.request_id()), patience_s=5
        )
        if isinstance(result, results.Renewed):
            if held.hold_id in self._held:
                self._believe(held, asked_us, result.expires_in_ms)
        elif ttl_ms or (isinstance(result, Refused) and result.reason == Reason.LEASE_EXPIRED):
            # Another lease of which nobody knows whether and when it begins is none to rely on.
            self._give_up(held.hold_id)
        held.is_renewing = False

    async def _release(self, held: Held) -> None:
        self._give_up(held.hold_id)
        await self._asker.insist(Release(held.hold_id, self._asker.request_id()), patience_s=5)

    async def _force(self) -> None:
        name = self._random.choice(self._habits.names)
        await self._asker.insist(
            ForceRelease(name, "by hand", self._random.choice([0, 1000]), self._asker.request_id())
        )

    async def _read(self) -> None:
        random = self._random
        query: Query = ReadLock(random.choice(self._habits.names))
        if random.random() < 0.2:
            query = ReadLocks(limit=random.choice([1, 10, 100]))
        elif self._sessions and random.random() < 0.3:
            query = ReadSession(random.choice(list(self._sessions)))
        await self._asker.read(query)

    # -- what it believes -----------------------------------------------------------------------------------

    def _believe(self, held: Held, asked_us: int, expires_in_ms: int) -> None:
        """Rely on a lease, from before it was asked for, on this client's own clock."""
        until_us = _until_us(asked_us, expires_in_ms)
        if until_us > held.until_us and until_us > self._loop.local_us():
            held.until_us = until_us
            self._tell_belief(held)

    def _shorten(self, held: Held, ttl_ms: int) -> None:
        """Rely on a lease no longer than the one that is about to be asked for instead."""
        until_us = _until_us(self._loop.local_us(), ttl_ms)
        if until_us < held.until_us:
            held.until_us = until_us
            self._tell_belief(held)

    def _tell_belief(self, held: Held) -> None:
        self._history.believes(
            self.name,
            held.name,
            held.mode,
            held.hold_id,
            held.token,
            self._loop.now_us,
            self._loop.clock.true_time(held.until_us),
        )

    def _give_up(self, hold_id: str) -> None:
        held = self._held.pop(hold_id, None)
        if held is not None:
            self._history.stopped_believing(hold_id, self._loop.now_us)

    def _forget_old(self) -> None:
        """Forget what has been over for long; until then it is asked about now and again."""
        old_us = self._loop.local_us() - 5_000_000
        for hold_id in [hold_id for hold_id, held in self._held.items() if held.until_us < old_us]:
            self._give_up(hold_id)

    # -- choices --------------------------------------------------------------------------------------------

    def _pick_ttl(self) -> int:
        low, high = self._habits.ttl_ms
        return int(low * (high / low) ** self._random.random())


def _until_us(asked_us: int, expires_in_ms: int) -> int:
    """Return up to when a client relies on a lease, on its own clock."""
    lease_us = expires_in_ms * 1000
    return asked_us + lease_us - ROUNDING_US - lease_us // RATE_DIVISOR
