"""A client that numbers its commands on a stream (docs/stream.md): many at a time, on one node after another.

It does what `http_api/v1/stream.py` and its clients do, without the bytes between them: it opens a session,
resumes its stream, sends frames over one connection without waiting for answers, and comes back over another
node when anything is lost, or just so.
"""

import asyncio
from collections.abc import Awaitable
from random import Random
from typing import Final

from lockstate.words.commands.holds import MayWait
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.commands.streams import Numbered, NumberedCommand, ResumeStream
from lockstate.words.ids import SessionId
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import (
    FrameRefused,
    NumberedDone,
    Queued,
    Result,
    SessionOpened,
    StreamFault,
    StreamResumed,
)
from tests.simulation.workload.any_client import AnyClient
from tests.simulation.workload.call_transport import CallTransport, Channel
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.client_holds import ClientHolds, Session
from tests.simulation.workload.client_settings import ClientSettings
from tests.simulation.workload.history import History
from tests.simulation.workload.stream_numbers import StreamNumbers, Wish
from tests.simulation.workload.stream_wishes import StreamWishes
from tests.simulation.world.event_loop import NodeLoop
from tests.support.vocabulary import another_attempt

TTL_MS: Final = (2_000, 10_000, 20_000)
AT_ONCE: Final = (1, 1, 1, 2, 4)
"""Frames that leave at one moment."""
COMMANDS: Final = (1, 1, 1, 2, 6)
"""Commands in one frame."""
CONNECTIONS_MAX: Final = 12
"""Of one session, before it is closed."""
LEAVES_CHANCE: Final = 0.04
"""That a client leaves a connection that is well, after each burst."""
GIVES_UP_CHANCE: Final = 0.3
"""That it gives up what was not applied, and its numbers to something else."""
FILLED_CHANCE: Final = 0.7
"""That a node is to fill in the ids of a command, each time that it comes."""
WAIT_S: Final = 3.0
"""How much longer than it may last a client listens for the end of a wait."""
BACK_OFF_S: Final = 0.5


class _Connection:
    """One connection of a stream, to one node."""

    def __init__(self, node_id: str, epoch: int) -> None:
        self.node_id, self.epoch = node_id, epoch
        self.channel = Channel()
        self.is_over = asyncio.Event()


class StreamClient(AnyClient):
    """One such client. While `is_active` is false it keeps its session alive, and asks for nothing."""

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
        self._random, self._think_s = random, settings.think_s
        self._holdings = ClientHolds(loop, history)
        self._wishes = StreamWishes(loop.name, self.caller, self._holdings, settings, random)
        self._numbers = StreamNumbers()
        self.spawn(self._live())

    # -- sessions and connections ---------------------------------------------------------------------------

    async def _live(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / self._think_s))
            if self.is_active:
                await self._use_a_session()

    async def _use_a_session(self) -> None:
        """Open a session, and number commands in it for as long as it lives, or this client wants it."""
        ttl_ms = self._random.choice(TTL_MS)
        command = OpenSession(
            SessionId(self.caller.new_id()), ttl_ms, {"client": self.name}, self.caller.request_id()
        )
        _, opened = await self.caller.insist(command)
        if not isinstance(opened, SessionOpened):
            return
        session = self._holdings.sessions[opened.session_id] = Session(opened.session_id, ttl_ms)
        self._numbers = StreamNumbers()
        for _ in range(self._random.randint(1, CONNECTIONS_MAX)):
            await self._connect(session)
            if session.session_id not in self._holdings.sessions:
                return
            await asyncio.sleep(self._random.random() * BACK_OFF_S)
        self._holdings.session_over(session)
        await self.caller.insist(CloseSession(session.session_id, self.caller.request_id()))

    async def _connect(self, session: Session) -> None:
        """Resume the stream on some node, and use it until it breaks, or for no reason at all."""
        node_id = self._random.choice(self.caller.node_ids)
        asked_us, resumed = await self.caller.attempt(node_id, ResumeStream(session.session_id))
        if isinstance(resumed, Refused) and resumed.reason is Reason.SESSION_EXPIRED:
            self._holdings.session_over(session)
        if not isinstance(resumed, StreamResumed):
            return
        self._holdings.session_kept(session, asked_us, session.ttl_ms)
        connection = _Connection(node_id, resumed.epoch)
        self._numbers.resumed(resumed.last, gives_up=self._random.random() < GIVES_UP_CHANCE)
        for first, commands in list(self._numbers.again(self._random, self._attempt)):
            self._send(session, connection, first, commands, is_again=True)
        while not connection.is_over.is_set():
            await self._rest(session, connection)
            for _ in range(self._random.choice(AT_ONCE)):
                first, commands = self._new_commands(session) if self.is_active else (self._numbers.next, ())
                self._send(session, connection, first, commands)
            if self._random.random() < LEAVES_CHANCE:
                connection.is_over.set()

    async def _rest(self, session: Session, connection: _Connection) -> None:
        """Wait for a while, in which the session does not end."""
        pause_s = self._random.expovariate(1 / self._think_s)
        if not self.is_active:
            pause_s = session.ttl_ms / 4000
        try:
            async with asyncio.timeout(min(pause_s, session.ttl_ms / 3000)):
                await connection.is_over.wait()
        except TimeoutError:
            return

    def _attempt(self, command: NumberedCommand) -> NumberedCommand:
        if not isinstance(command, MayWait):
            return command
        again: NumberedCommand = another_attempt(command, lambda _field: self.caller.new_id())
        return again

    # -- frames ---------------------------------------------------------------------------------------------

    def _new_commands(self, session: Session) -> tuple[int, tuple[NumberedCommand, ...]]:
        """Number some commands; return the first number, and them."""
        first, commands = self._numbers.next, list[NumberedCommand]()
        waiting = [number for number, wish in self._numbers.wishes.items() if wish.is_waiting]
        for _ in range(self._random.choice(COMMANDS)):
            wish = self._wishes.make(session, waiting, self._numbers.next)
            wish.is_filled = self._random.random() < FILLED_CHANCE
            self._numbers.add(wish)
            commands.append(wish.command)
        return first, tuple(commands)

    def _send(
        self,
        session: Session,
        connection: _Connection,
        first: int,
        commands: tuple[NumberedCommand, ...],
        *,
        is_again: bool = False,
    ) -> None:
        acked = self._numbers.acknowledge(self._random, is_again=is_again)
        frame = Numbered(len(commands), session.session_id, connection.epoch, first, acked, commands)
        self.spawn(self._follow(session, connection, frame))

    async def _follow(self, session: Session, connection: _Connection, frame: Numbered) -> None:
        """Send a frame, and hear what becomes of it."""
        numbers = self._numbers
        asked_us, call, answer = await self.caller.attempt_frame(
            connection.node_id, frame, connection.channel
        )
        result = answer.result if answer is not None else None
        if isinstance(result, FrameRefused) and result.fault is StreamFault.GONE:
            self._holdings.session_over(session)
        if not isinstance(result, NumberedDone) or answer is None:
            connection.is_over.set()
            return
        if result.refused is not None:
            connection.is_over.set()
        self._holdings.session_kept(session, asked_us, session.ttl_ms)
        numbers.heard(frame.acked)
        for place, told in enumerate(result.results):
            wish = numbers.wishes.get(frame.first + place)
            if wish is None or wish.is_final:
                continue
            if not isinstance(told, Queued):
                self._tell(wish, asked_us, told)
                continue
            wish.is_waiting = True
            assert answer.waits is not None, "nobody would be told the ends of these waits"
            number, longest_s = frame.first + place, _longest_s(wish)
            ending = self.caller.end_of_wait(call, number, told.hold_id, answer.waits[place], longest_s)
            self.spawn(self._follow_wait(connection, wish, ending, asked_us))

    async def _follow_wait(
        self, connection: _Connection, wish: Wish, ending: Awaitable[Result | None], asked_us: int
    ) -> None:
        """Hear how a wait ends."""
        told = await ending
        if told is None:
            connection.is_over.set()
        elif not wish.is_final:
            self._tell(wish, asked_us, told)

    def _tell(self, wish: Wish, asked_us: int, told: Result) -> None:
        """Take a final answer."""
        wish.is_waiting, wish.is_final = False, True
        self._wishes.told(wish, asked_us, told)


def _longest_s(wish: Wish) -> float:
    """Return for how long to listen for the end of a wait."""
    assert isinstance(wish.command, MayWait)
    return wish.command.wait_ms / 1000 + WAIT_S
