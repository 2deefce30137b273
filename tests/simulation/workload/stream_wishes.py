"""What a client wants on its stream, and what it makes of the answers."""

from random import Random
from typing import Final

import msgspec

from lockstate.words.cell_operations import GetOperation, PutOperation
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.holds import Convert, MayWait, Release, Renew
from lockstate.words.commands.streams import EndWait, NumberedCommand
from lockstate.words.ids import SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Renewed, Result
from lockstate.words.wanted import Wanted
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.client_commands import ClientCommands
from tests.simulation.workload.client_holds import ClientHolds, Held, Session, weaker
from tests.simulation.workload.client_settings import ClientSettings
from tests.simulation.workload.stream_numbers import Wish
from tests.support.vocabulary import NO_OUTCOME

KEYS: Final = (b"d", b"d/a")
WAITING_MAX: Final = 4
"""Numbers of one client that wait: long queues make a world slow."""


class StreamWishes:
    """Makes the commands of one client: all but rate limits, which the model of frames leaves out."""

    def __init__(
        self, name: str, caller: Caller, holdings: ClientHolds, settings: ClientSettings, random: Random
    ) -> None:
        self._commands = ClientCommands(name, caller, settings, random)
        self._holdings = holdings
        self._random = random
        self._vocabulary_share = settings.vocabulary_share

    def make(self, session: Session, waiting: list[int], number: int) -> Wish:
        """Return a wish that is to have this number; `waiting` are the numbers of those that wait."""
        random, held = self._random, list(self._holdings.held.values())
        dice, before = random.random(), tuple[Wanted, ...]()
        command: NumberedCommand
        if dice < 0.30 and held:
            command = self._release(random.choice(held))
        elif dice < 0.38 and held:
            command = Renew(random.choice(held).hold_id)
        elif dice < 0.46 and waiting:
            command = EndWait(random.choice(waiting))
        elif dice < 0.47:
            command = EndWait(random.randint(1, number + 1))
        elif dice < 0.52 and held:
            command, before = self._convert(random.choice(held))
        elif dice < 0.60:
            command = self._on_cells(session.session_id)
        elif dice < 0.66:
            command = self._commands.fence([one.token for one in held])
        else:
            command = self._acquire(session.session_id)
        command = msgspec.structs.replace(command, request_id="") if command.request_id else command
        if not isinstance(command, MayWait):
            return Wish(command, 0)
        if len(waiting) >= WAITING_MAX:
            command = msgspec.structs.replace(command, wait_ms=0)
        return Wish(command, self._holdings.asks(command), before)

    def _acquire(self, session_id: SessionId) -> NumberedCommand:
        """Ask for a lock, in some worlds also for permits, or to be a leader."""
        commands, dice = self._commands, self._random.random()
        if self._random.random() >= self._vocabulary_share:
            return commands.lock([session_id])
        if dice < 0.2:
            return commands.permits([session_id])
        if dice < 0.3:
            return commands.campaign(session_id)
        return commands.rich_lock([session_id])

    def _release(self, held: Held) -> Release:
        self._holdings.give_up(held.hold_id)
        return Release(held.hold_id)

    def _convert(self, held: Held) -> tuple[NumberedCommand, tuple[Wanted, ...]]:
        """Change a mode; until it is known what came of it, rely on the weaker one."""
        if held.kind is not HoldKind.LOCK or held.is_converting or held.is_of_kinds:
            return Renew(held.hold_id), ()
        command, before, held.is_converting = self._commands.convert(held.hold_id), held.locks, True
        self._holdings.change(held, weaker(before, command.mode))
        return command, before

    def _on_cells(self, session_id: SessionId) -> NumberedCommand:
        random = self._random
        key, value = random.choice(KEYS), b"%d" % random.randint(1, 99)
        dice = random.random()
        if dice < 0.5:
            return PutCell(key, value, session_id)
        if dice < 0.8:
            return TransactCells((), (PutOperation(key, value), GetOperation(key)), ())
        return DeleteCells(key, random.random() < 0.3)

    def told(self, wish: Wish, asked_us: int, result: Result) -> None:
        """Take what became of a wish, asked for at this moment of the client's own clock."""
        command, holdings = wish.command, self._holdings
        match command:
            case Convert():
                self._converted(wish, command, asked_us, result)
            case Renew():
                held = holdings.held.get(command.hold_id)
                if held is not None and isinstance(result, Renewed):
                    holdings.believe(held, asked_us, result.expires_in_ms)
                elif held is not None and isinstance(result, Refused):
                    holdings.give_up(command.hold_id)
            case _:
                if isinstance(command, MayWait) and isinstance(result, Granted):
                    holdings.take(command, asked_us, result, wish.since_us)

    def _converted(self, wish: Wish, command: Convert, asked_us: int, result: Result) -> None:
        """Rely on another mode, on what was before, or on nothing if that may still change."""
        holdings, held = self._holdings, self._holdings.held.get(command.hold_id)
        if held is None:
            return
        held.is_converting = False
        if isinstance(result, Granted):
            held.token = result.token
            locks = tuple([Wanted(item.name, command.mode, item.scope) for item in wish.before])
            holdings.change(held, locks)
            holdings.believe(held, asked_us, result.expires_in_ms)
        elif isinstance(result, Refused) and result.reason not in {*NO_OUTCOME, Reason.LEASE_EXPIRED}:
            holdings.change(held, wish.before)
        else:
            holdings.give_up(held.hold_id)
