"""What clients do with cells: write, count, write only while they hold something, delete, read.

And in one transaction with them: take, renew and release locks.
"""

from random import Random
from typing import Final, Protocol

import msgspec

from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    DeleteOperation,
    EndOperation,
    GetOperation,
    HoldCompare,
    LockCompare,
    Operation,
    PutOperation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import Acquire
from lockstate.words.ids import NO_SESSION, AttemptId, OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode
from lockstate.words.results import CellRead, Granted, LockTaken, Renewed, Transacted
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.client_commands import ClientCommands
from tests.simulation.workload.client_holds import ClientHolds, Held
from tests.simulation.workload.history import ReadCell, ReadCells

KEYS: Final = (b"c", b"c/a", b"c/b")
COUNTER: Final = b"n"


class CellActor(Protocol):
    """The client that acts."""

    random: Random
    caller: Caller
    holdings: ClientHolds
    commands: ClientCommands


class CellActs:
    """The acts of one client."""

    def __init__(self, actor: CellActor) -> None:
        self._actor = actor

    async def act(self) -> None:
        """Do one thing."""
        actor, random = self._actor, self._actor.random
        dice, key = random.random(), random.choice(KEYS)
        if dice < 0.30:
            put = self._put(key)
            await self._ask(PutCell(put.key, put.value, put.session_id, put.ttl_ms, self._request_id()))
        elif dice < 0.55:
            await self._count()
        elif dice < 0.65:
            await self._write_guarded(key)
        elif dice < 0.75:
            await (self._renew(key) if random.random() < 0.3 else self._change_locks(key))
        elif dice < 0.85:
            await self._ask(DeleteCells(key, random.random() < 0.3, self._request_id()))
        elif dice < 0.95:
            await actor.caller.read(ReadCell(random.choice((*KEYS, COUNTER))))
        else:
            await actor.caller.read(ReadCells(b"c", limit=random.choice((1, 10))))

    def _request_id(self) -> str:
        return self._actor.caller.request_id()

    async def _ask(self, command: Command) -> None:
        await self._actor.caller.insist(command)

    def _put(self, key: bytes) -> PutOperation:
        random, sessions = self._actor.random, list(self._actor.holdings.sessions)
        session_id: SessionId = NO_SESSION
        ttl_ms, dice = 0, random.random()
        if dice < 0.3 and sessions:
            session_id = random.choice(sessions)
        elif dice < 0.6:
            ttl_ms = self._actor.commands.pick_ttl()
        return PutOperation(key, b"%d" % random.randint(1, 99), session_id, ttl_ms)

    async def _change_locks(self, key: bytes) -> None:
        """Take a lock that is free, or release one and take it again, and write a cell with that."""
        actor, random = self._actor, self._actor.random
        held = self._locks_with_leases()
        take = TakeOperation(
            actor.commands.pick_name(),
            actor.caller.new_hold_id(),
            owner=OwnerName(random.choice(("", "ann"))),
            ttl_ms=actor.commands.pick_ttl(),
        )
        compares: tuple[LockCompare, ...] = (LockCompare(take.name),)
        then: tuple[Operation, ...] = (take, self._put(key))
        if held and random.random() < 0.6:
            one = random.choice(held)
            take = msgspec.structs.replace(take, name=random.choice((one.places[0][1], take.name)))
            compares = (LockCompare(one.places[0][1], one.hold_id),)
            then = (EndOperation(one.hold_id, random.choice(("", "by hand"))), take, GetOperation(key))
            actor.holdings.give_up(one.hold_id)
        since_us = actor.holdings.asks(asked := _acquire_of(take))
        command = TransactCells(compares, then, (GetOperation(key),), self._request_id())
        asked_us, result = await actor.caller.insist(command)
        for taken in result.results if isinstance(result, Transacted) else ():
            if isinstance(taken, LockTaken):
                granted = Granted(take.hold_id, taken.token, take.name, asked.mode, taken.expires_in_ms)
                actor.holdings.take(asked, asked_us, granted, since_us)

    def _locks_with_leases(self) -> list[Held]:
        """Return the locks of this client that have a lease of their own and do not change just now."""
        return [
            one
            for one in self._actor.holdings.held.values()
            if one.kind is HoldKind.LOCK and not (one.session_id or one.is_converting or one.is_renewing)
        ]

    async def _renew(self, key: bytes) -> None:
        """Give a lock another lease, while nobody else has it, and write a cell with that."""
        actor, locks = self._actor, self._locks_with_leases()
        if not locks:
            return
        one, ttl_ms = actor.random.choice(locks), actor.commands.pick_ttl()
        one.is_renewing = True
        actor.holdings.shorten(one, ttl_ms)
        compares = (LockCompare(one.places[0][1], one.hold_id),)
        then = (RenewOperation(one.hold_id, ttl_ms), self._put(key))
        asked_us, result = await actor.caller.insist(TransactCells(compares, then, (), self._request_id()))
        if isinstance(result, Transacted) and result.succeeded:
            renewed = result.results[0]
            assert isinstance(renewed, Renewed), renewed
            if one.hold_id in actor.holdings.held:
                actor.holdings.believe(one, asked_us, renewed.expires_in_ms)
        else:
            # Another lease of which nobody knows whether and when it begins is none to rely on.
            actor.holdings.give_up(one.hold_id)
        one.is_renewing = False

    async def _count(self) -> None:
        """Add one, unless somebody else was faster."""
        caller = self._actor.caller
        _, seen = await caller.insist(TransactCells((), (GetOperation(COUNTER),), (), self._request_id()))
        if not isinstance(seen, Transacted) or not isinstance(seen.results[0], CellRead):
            return
        cell = seen.results[0].cell
        number, revision = (int(cell.value), cell.mod_revision) if cell is not None else (0, 0)
        compare = CellCompare(COUNTER, CellField.MOD_REVISION, number=revision)
        put = PutOperation(COUNTER, b"%d" % (number + 1))
        await self._ask(TransactCells((compare,), (put, GetOperation(COUNTER)), (), self._request_id()))

    async def _write_guarded(self, key: bytes) -> None:
        """Write only while a hold is there; another client's is never taken for it."""
        actor, random = self._actor, self._actor.random
        held = list(actor.holdings.held.values())
        compares: tuple[HoldCompare, ...] = ()
        if held:
            one = random.choice(held)
            compares = (HoldCompare(one.hold_id, random.choice((0, one.token))),)
        await self._ask(
            TransactCells(
                compares, (self._put(key), GetOperation(key)), (DeleteOperation(key),), self._request_id()
            )
        )


def _acquire_of(take: TakeOperation) -> Acquire:
    """Return the acquire that asks for what a transaction takes."""
    attempt_id = AttemptId(take.hold_id)
    return Acquire(take.name, Mode.EXCLUSIVE, take.hold_id, attempt_id, ttl_ms=take.ttl_ms, owner=take.owner)
