"""Clients of the simulated cluster: each on its own machine and clock, careful as the SDK, and impatient."""

import asyncio
from random import Random
from typing import Final

import msgspec

from lockstate.words import results
from lockstate.words.commands.holds import MayWait, Release, Renew
from lockstate.words.commands.overrides import ForceRelease
from lockstate.words.commands.sessions import CloseSession, KeepAlive, OpenSession
from lockstate.words.ids import NO_SESSION, SessionId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Result
from tests.simulation.workload.any_client import AnyClient
from tests.simulation.workload.call_transport import CallTransport
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.cell_acts import CellActs
from tests.simulation.workload.client_commands import ClientCommands
from tests.simulation.workload.client_holds import ClientHolds, Held, Session
from tests.simulation.workload.client_settings import ClientSettings
from tests.simulation.workload.full_vocabulary import FullVocabulary
from tests.simulation.workload.history import History, Query, ReadLock, ReadLocks, ReadSession
from tests.simulation.world.event_loop import NodeLoop

SESSION_TTL_MS_MIN: Final = (2_000, 10_000, 20_000, 20_000)
"""Keepalives shall not be all that happens."""


class Client(AnyClient):
    """One client. `active` is false while the world wants it to be quiet."""

    def __init__(
        self,
        loop: NodeLoop,
        transport: CallTransport,
        node_ids: list[str],
        history: History,
        *,
        settings: ClientSettings,
        random: Random,
    ) -> None:
        caller = Caller(loop, transport, node_ids, history, timeout_s=settings.timeout_s, random=random)
        super().__init__(loop, caller)
        self.random = random
        self.holdings = ClientHolds(loop, history)
        self.commands = ClientCommands(loop.name, self.caller, settings, random)
        self._settings = settings
        self._full_vocabulary = FullVocabulary(self)
        self._cell_acts = CellActs(self)
        self._main = self.spawn(self._live())

    # -- what it does ---------------------------------------------------------------------------------------

    async def _live(self) -> None:
        """Do something now and again."""
        while True:
            await asyncio.sleep(self.random.expovariate(1 / self._settings.think_s))
            if self.is_active:
                self.spawn(self._act())

    async def _act(self) -> None:
        """Do one thing."""
        random = self.random
        self.holdings.forget_old()
        if self._settings.cells_share and random.random() < self._settings.cells_share:
            await self._cell_acts.act()
        elif self._settings.overrides_share and random.random() < self._settings.overrides_share:
            await self._full_vocabulary.override()
        elif self._settings.hand_overs_share and random.random() < self._settings.hand_overs_share:
            await self._full_vocabulary.hand_over()
        elif self._settings.vocabulary_share and random.random() < self._settings.vocabulary_share:
            await self._full_vocabulary.act()
        else:
            await self._act_on_locks()

    async def _act_on_locks(self) -> None:
        """Do one thing with sessions and single locks."""
        random = self.random
        held, sessions = list(self.holdings.held.values()), list(self.holdings.sessions)
        dice = random.random()
        if dice < 0.08 and len(sessions) < self._settings.sessions_max:
            await self.open_session()
        elif dice < 0.45:
            await self.acquire(self.commands.lock(sessions))
        elif dice < 0.52:
            await self.acquire(
                self.commands.lock(sessions, wait_ms=random.randint(1000, 20_000)), leaves=True
            )
        elif dice < 0.57:
            await self._acquire_twice_at_once()
        elif dice < 0.70 and held:
            await self._renew(random.choice(held))
        elif dice < 0.85 and held:
            await self._release(random.choice(held))
        elif dice < 0.87:
            await self._force()
        elif dice < 0.88 and sessions:
            await self._close_session(self.holdings.sessions[random.choice(sessions)])
        else:
            await self._read()

    # -- sessions -------------------------------------------------------------------------------------------

    async def open_session(self) -> None:
        """Open a session, and keep it alive from then on."""
        ttl_ms = max(self.random.choice(SESSION_TTL_MS_MIN), self.commands.pick_ttl())
        command = OpenSession(
            SessionId(self.caller.new_id()), ttl_ms, {"client": self.name}, self.caller.request_id()
        )
        _, result = await self.caller.insist(command)
        if isinstance(result, results.SessionOpened):
            session = self.holdings.sessions[result.session_id] = Session(result.session_id, ttl_ms)
            self.spawn(self._keep_alive(session))

    async def _keep_alive(self, session: Session) -> None:
        """Keep a session alive, well or badly, until it ends."""
        while session.session_id in self.holdings.sessions:
            await asyncio.sleep(session.ttl_ms / 1000 / self.random.choice([2, 3, 3, 4]))
            if session.session_id not in self.holdings.sessions:
                return
            asked_us, result = await self.caller.insist(
                KeepAlive(session.session_id), patience_s=session.ttl_ms / 1000
            )
            if isinstance(result, results.SessionKept):
                self.holdings.session_kept(session, asked_us, result.expires_in_ms)
            elif isinstance(result, Refused) and result.reason == Reason.SESSION_EXPIRED:
                self.holdings.session_over(session)

    async def _close_session(self, session: Session) -> None:
        self.holdings.session_over(session)
        await self.caller.insist(CloseSession(session.session_id, self.caller.request_id()))

    # -- holds ----------------------------------------------------------------------------------------------

    async def acquire(self, command: MayWait, *, leaves: bool = False) -> None:
        """Ask for a hold, and wait for it; or leave at any moment of the wait."""
        since_us = self.holdings.asks(command)
        if not leaves:
            asked_us, result = await self.caller.insist(command, patience_s=command.wait_ms / 1000 + 10)
            self._take(command, asked_us, result, since_us)
            return
        task = self.spawn(self.caller.attempt(self.random.choice(self.caller.node_ids), command))
        await asyncio.wait({task}, timeout=self.random.uniform(0, command.wait_ms / 1000))
        if task.done() and not task.cancelled() and task.exception() is None:
            asked_us, result = task.result()
            self._take(command, asked_us, result, since_us)
        task.cancel()

    async def _acquire_twice_at_once(self) -> None:
        """Send one request to two nodes at the same time."""
        wish = self.commands.lock(list(self.holdings.sessions))
        command = msgspec.structs.replace(wish, request_id=self.caller.new_id())
        since_us = self.holdings.asks(command)
        nodes = self.random.sample(self.caller.node_ids, min(2, len(self.caller.node_ids)))
        tasks = [self.spawn(self.caller.attempt(node_id, self.caller.again(command))) for node_id in nodes]
        answers = await asyncio.gather(*tasks)
        for asked_us, result in answers:
            self._take(command, asked_us, result, since_us)

    def _take(self, command: MayWait, asked_us: int, result: Result | None, since_us: int) -> None:
        if isinstance(result, results.Granted):
            self.holdings.take(command, asked_us, result, since_us)
        elif isinstance(result, Refused) and result.reason == Reason.SESSION_EXPIRED:
            session = self.holdings.sessions.get(getattr(command, "session_id", NO_SESSION))
            if session is not None:
                self.holdings.session_over(session)
        self._full_vocabulary.told(command, result)

    async def _renew(self, held: Held) -> None:
        if held.is_renewing:
            # Two renewals with different leases may come into effect in any order.
            return
        held.is_renewing = True
        ttl_ms = self.commands.pick_ttl() if self.random.random() < 0.2 and not held.session_id else 0
        if ttl_ms:
            self.holdings.shorten(held, ttl_ms)
        asked_us, result = await self.caller.insist(
            Renew(held.hold_id, ttl_ms, self.caller.request_id()), patience_s=5
        )
        if isinstance(result, results.Renewed):
            if held.hold_id in self.holdings.held:
                self.holdings.believe(held, asked_us, result.expires_in_ms)
        elif ttl_ms or (isinstance(result, Refused) and result.reason == Reason.LEASE_EXPIRED):
            # Another lease of which nobody knows whether and when it begins is none to rely on.
            self.holdings.give_up(held.hold_id)
        held.is_renewing = False

    async def _release(self, held: Held) -> None:
        self.holdings.give_up(held.hold_id)
        await self.caller.insist(Release(held.hold_id, self.caller.request_id()), patience_s=5)

    async def _force(self) -> None:
        name = self.random.choice(self._settings.names)
        await self.caller.insist(
            ForceRelease(name, "by hand", self.random.choice([0, 1000]), self.caller.request_id())
        )

    async def _read(self) -> None:
        random, sessions = self.random, self.holdings.sessions
        query: Query = ReadLock(random.choice(self._settings.names))
        if random.random() < 0.2:
            query = ReadLocks(limit=random.choice([1, 10, 100]))
        elif sessions and random.random() < 0.3:
            query = ReadSession(random.choice(list(sessions)))
        await self.caller.read(query)
