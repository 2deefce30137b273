"""What clients do beyond single locks: the whole vocabulary, with the same care for what they rely on."""

import asyncio
from random import Random
from typing import Final, Protocol

from lockstate.words.commands.admin import SetQuota
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import AcquirePermits, MayWait, Proclaim, Release, Renew
from lockstate.words.commands.sessions import CloseSession, KeepAlive
from lockstate.words.ids import SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Granted, Resized, Result, SessionKept
from lockstate.words.settings import Quota
from lockstate.words.wanted import Wanted
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.client_commands import ELECTIONS, GUESS_CHANCE, SEMAPHORES, ClientCommands
from tests.simulation.workload.client_holds import ClientHolds, Held, Session, weaker
from tests.simulation.workload.history import CheckToken, Query, ReadElection, ReadLock, ReadSemaphore
from tests.support.vocabulary import NO_OUTCOME

LEAVE_CHANCE: Final = 0.15
FORCE_CHANCE: Final = 0.3
RIGHT_CHANCE: Final = 0.6
RENEW_CHANCE: Final = 0.5
REPEAT_CHANCE: Final = 0.3
"""That an operator asks again for what was answered."""
TTL_MS_MIN: Final = 1_000
"""Of a session, however often it is shortened."""
BURST_MAX: Final = 4
"""Requests to one rate limit at once."""


class Actor(Protocol):
    """The client that acts."""

    random: Random
    caller: Caller
    holdings: ClientHolds
    commands: ClientCommands

    async def open_session(self) -> None:
        """Open a session."""

    async def acquire(self, command: MayWait, *, leaves: bool = False) -> None:
        """Ask for a hold."""


class FullVocabulary:
    """The acts of one client."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor

    async def act(self) -> None:
        """Do one thing."""
        actor, dice = self._actor, self._actor.random.random()
        sessions = list(actor.holdings.sessions)
        if dice < 0.30:
            await self._wish(actor.commands.rich_lock(sessions))
        elif dice < 0.45:
            await (self._convert() if dice < 0.39 else self._add())
        elif dice < 0.50:
            await self._give_back(dice)
        elif dice < 0.65:
            await (
                self._ask_for_permits(sessions)
                if dice < 0.57
                else self._wish(actor.commands.several_kinds(sessions))
            )
        elif dice < 0.68:
            await self._resize()
        elif dice < 0.82:
            await (self._campaign(sessions) if dice < 0.78 else self._proclaim())
        elif dice < 0.90:
            await self._take_rates()
        elif dice < 0.95:
            await (self._name_a_kind() if dice < 0.915 else self.override())
        elif dice < 0.98:
            tokens = [held.token for held in actor.holdings.held.values()]
            await actor.caller.insist(actor.commands.fence(tokens))
        else:
            await self._read()

    async def _give_back(self, dice: float) -> None:
        """Give back some of a hold, all of it by its value, or to somebody."""
        if dice < 0.465:
            await self._release_part()
        elif dice < 0.48:
            await self._name_a_value()
        else:
            await self.hand_over()

    async def hand_over(self) -> None:
        """Give a lock to another client, and rely on it no more, whatever comes of that."""
        actor = self._actor
        held = self._any(HoldKind.LOCK, only_one=actor.random.random() < RIGHT_CHANCE)
        if held is None or held.is_converting:
            return
        # Who waits for another name may be seen, too: that is refused.
        name = held.locks[0].name
        look = ReadLock(name) if actor.random.random() < RIGHT_CHANCE else actor.commands.look_around()
        seen = await actor.caller.read(look)
        if actor.random.random() < FORCE_CHANCE:
            await actor.caller.insist(actor.commands.revoke([held]), patience_s=5)
        actor.holdings.give_up(held.hold_id)
        await actor.caller.insist(actor.commands.hand_over(held, seen), patience_s=5)

    async def _name_a_kind(self) -> None:
        """Release or renew what is mostly of the kind that is named, or force what others have."""
        actor, random = self._actor, self._actor.random
        held = list(actor.holdings.held.values())
        if not held or random.random() < FORCE_CHANCE:
            await actor.caller.insist(actor.commands.force(held))
            return
        one = random.choice(held)
        kind = one.kind if random.random() < RIGHT_CHANCE else random.choice(list(HoldKind))
        request_id = actor.caller.request_id()
        if kind is not one.kind or random.random() < RENEW_CHANCE:
            # Of another kind nothing may come of it: the client goes on relying on its hold.
            make = Renew if random.random() < RENEW_CHANCE or kind is one.kind else Release
            command = make(one.hold_id, request_id=request_id, kind=kind)
            await actor.caller.insist(command, patience_s=5)
            return
        actor.holdings.give_up(one.hold_id)
        await actor.caller.insist(Release(one.hold_id, request_id, (), kind), patience_s=5)

    async def _name_a_value(self) -> None:
        """Release or renew a hold by its value, or by something that looks like it."""
        actor, random = self._actor, self._actor.random
        marked = [held for held in actor.holdings.held.values() if held.value and not held.is_converting]
        if not marked:
            return
        one = random.choice(marked)
        if len(one.locks) > 1 or random.random() < GUESS_CHANCE:  # a list of locks is not found by its value
            await actor.caller.insist(actor.commands.guess_a_value(one), patience_s=5)
        elif random.random() < RENEW_CHANCE:
            await actor.caller.insist(actor.commands.renew_by_value(one), patience_s=5)
        else:
            actor.holdings.give_up(one.hold_id)
            await actor.caller.insist(actor.commands.release_by_value(one), patience_s=5)

    async def override(self) -> None:
        """Do what operators do to what others have, or live by another ttl from now on."""
        actor, dice = self._actor, self._actor.random.random()
        if dice < 0.08:
            await (self._reach_for_others() if dice < 0.06 else self._set_a_quota())
        elif dice < 0.24:
            await self._ask_back()
        elif dice < 0.34:
            await self._end_waits()
        elif dice < 0.48:
            await self._end_a_session()
        elif dice < 0.61:
            if actor.holdings.sessions:
                await self._change_a_ttl(actor.random.choice(list(actor.holdings.sessions.values())))
        else:
            makes = actor.commands
            each = (
                makes.namespace,
                makes.namespace,
                makes.freeze,
                makes.lift,
                makes.forget,
                makes.record_act,
                makes.hold_rules,
                makes.prefer_leader,
            )
            command = actor.random.choice(each)()
            for _ in range(2 if command.request_id and actor.random.random() < REPEAT_CHANCE else 1):
                await actor.caller.insist(command)

    async def _set_a_quota(self) -> None:
        """Bound what a principal may have, or more often end that."""
        actor, random = self._actor, self._actor.random
        quota = random.choice(
            [None, None, None, Quota(holds=8), Quota(4, 12, 3), Quota(cells=2, fences=1, bytes=90)]
        )
        command = SetQuota(random.choice(["ann", "bob", "*"]), quota, actor.caller.request_id(), "by hand")
        await actor.caller.insist(command)

    async def _reach_for_others(self) -> None:
        """Use what belongs to another principal: nothing may come of it."""
        actor, random = self._actor, self._actor.random
        caller = actor.caller
        if not caller.principal:
            return
        sessions = caller.owned.sessions_of_others(caller.principal)
        holds = caller.owned.holds_of_others(caller.principal)
        commands: list[Command] = []
        if sessions:
            commands += [KeepAlive(random.choice(sessions)), CloseSession(random.choice(sessions))]
        if holds:
            commands += [Renew(random.choice(holds)), Release(random.choice(holds))]
        if commands:
            await caller.insist(random.choice(commands), patience_s=3)

    async def _ask_back(self) -> None:
        """Ask for what may be our own, perhaps again or for waits; say "not yet", perhaps take it back."""
        actor, random = self._actor, self._actor.random
        held = list(actor.holdings.held.values())
        one = random.choice(held) if held else None
        if random.random() < 0.5:
            seen = await actor.caller.read(actor.commands.look_around())
            for waiter in random.sample(seen.queue, min(len(seen.queue), 2)) if seen else []:
                await actor.caller.insist(actor.commands.revoke_for(waiter), patience_s=5)
        for _ in range(random.randint(1, 2)):
            await actor.caller.insist(actor.commands.revoke([one] if one is not None else []), patience_s=5)
        for _ in range(random.randint(0, 2)):
            if one is not None and one.hold_id in actor.holdings.held:
                await actor.caller.insist(actor.commands.put_off(one), patience_s=5)
        if random.random() < 0.3:
            command = actor.commands.withdraw_revocation([one] if one is not None else [])
            await actor.caller.insist(command, patience_s=5)

    async def _end_waits(self) -> None:
        """End somebody's wait, or all for one name."""
        seen = await self._actor.caller.read(self._actor.commands.look_around())
        command = self._actor.commands.force_waits(list(seen.queue) if seen else [])
        await self._actor.caller.insist(command, patience_s=5)

    async def _end_a_session(self) -> None:
        """End the session of somebody who holds a lock, whoever it is."""
        actor = self._actor
        seen = await actor.caller.read(actor.commands.look_around())
        names = [holder.session_name for holder in seen.holders if holder.session_name] if seen else []
        if names:
            await actor.caller.insist(actor.commands.force_close(actor.random.choice(names)))

    async def _change_a_ttl(self, session: Session) -> None:
        """Live by another ttl from now on. Until it is known what came of it, keep to the shorter one."""
        ttl_ms = max(TTL_MS_MIN, session.ttl_ms + self._actor.random.randint(-1_000, 3_000))
        session.ttl_ms = min(session.ttl_ms, ttl_ms)
        command = KeepAlive(session.session_id, ttl_ms)
        asked_us, result = await self._actor.caller.insist(command, patience_s=5)
        if isinstance(result, SessionKept):
            self._actor.holdings.session_kept(session, asked_us, result.expires_in_ms)

    def told(self, command: Command, result: Result | None) -> None:
        """Record what a semaphore's limit really is."""
        is_mismatch = isinstance(result, Refused) and result.reason is Reason.LIMIT_MISMATCH
        if isinstance(command, AcquirePermits) and isinstance(result, Refused) and is_mismatch:
            self._actor.commands.limits[command.name] = result.facts["limit"]

    async def _wish(self, command: MayWait) -> None:
        leaves = command.wait_ms > 0 and self._actor.random.random() < LEAVE_CHANCE
        await self._actor.acquire(command, leaves=leaves)

    def _any(self, kind: HoldKind, *, only_one: bool = False) -> Held | None:
        """Return some hold of a kind, if there is one: of any number of names, or of one."""
        every = self._actor.holdings.held.values()
        held = [item for item in every if item.kind is kind and not item.is_of_kinds]
        held = [item for item in held if len(item.locks) == 1 or not only_one]
        return self._actor.random.choice(held) if held else None

    # -- locks ----------------------------------------------------------------------------------------------

    async def _convert(self) -> None:
        """Change the mode of a hold. Until it is known what came of it, rely on the weaker mode."""
        actor, held = self._actor, self._any(HoldKind.LOCK)
        if held is None or held.is_converting:
            return
        holdings, command = actor.holdings, actor.commands.convert(held.hold_id)
        before, held.is_converting = held.locks, True
        holdings.change(held, weaker(before, command.mode))
        leaves = command.wait_ms > 0 and actor.random.random() < LEAVE_CHANCE
        asked_us, result = await self._ask(command, leaves=leaves)
        held.is_converting = False
        if held.hold_id not in holdings.held:
            return
        if isinstance(result, Granted):
            held.token = result.token
            holdings.change(held, tuple([Wanted(item.name, command.mode, item.scope) for item in before]))
            holdings.believe(held, asked_us, result.expires_in_ms)
        elif isinstance(result, Refused) and result.reason not in {*NO_OUTCOME, Reason.LEASE_EXPIRED}:
            holdings.change(held, before)
        else:
            # What may still come about later leaves nothing to rely on.
            holdings.give_up(held.hold_id)

    async def _add(self) -> None:
        """Ask for more locks for a hold. What it has is sure meanwhile, its token is not."""
        actor, held = self._actor, self._any(HoldKind.LOCK)
        if held is None or held.is_converting:
            return
        holdings, command = actor.holdings, actor.commands.add(held.hold_id, held.locks)
        if command is None:
            return
        before, held.is_converting = held.locks, True
        holdings.change(held, before)
        leaves = command.wait_ms > 0 and actor.random.random() < LEAVE_CHANCE
        asked_us, result = await self._ask(command, leaves=leaves)
        held.is_converting = False
        if held.hold_id not in holdings.held:
            return
        if isinstance(result, Granted):
            held.token = result.token
            holdings.change(held, (*before, *command.locks))
            holdings.believe(held, asked_us, result.expires_in_ms)
            if result.expires_in_ms is not None and not held.session_id:
                # What was added may be bound to end before its lease does.
                holdings.shorten(held, result.expires_in_ms, asked_us)
        elif not isinstance(result, Refused) or result.reason in {*NO_OUTCOME, Reason.LEASE_EXPIRED}:
            # It may still be granted later, and would have another token then.
            holdings.give_up(held.hold_id)

    async def _ask(self, command: MayWait, *, leaves: bool) -> tuple[int, Result | None]:
        """Ask until there is an outcome, or leave before."""
        caller = self._actor.caller
        asking = asyncio.ensure_future(caller.insist(command, patience_s=command.wait_ms / 1000 + 10))
        leave_s = self._actor.random.uniform(0, command.wait_ms / 1000) if leaves else None
        await asyncio.wait({asking}, timeout=leave_s)
        if asking.done():
            return asking.result()
        asking.cancel()
        await asyncio.wait({asking})
        return 0, None

    async def _release_part(self) -> None:
        """Give some of several locks back."""
        actor, held = self._actor, self._any(HoldKind.LOCK)
        if held is None or held.is_converting:
            return
        gone = actor.random.sample(held.locks, actor.random.randint(1, len(held.locks)))
        kept = tuple([lock for lock in held.locks if lock not in gone])
        if kept:
            actor.holdings.change(held, kept)
        else:
            actor.holdings.give_up(held.hold_id)
        names = tuple([lock.name for lock in gone])
        await actor.caller.insist(Release(held.hold_id, actor.caller.request_id(), names), patience_s=5)

    # -- semaphores and elections ---------------------------------------------------------------------------

    async def _ask_for_permits(self, sessions: list[SessionId]) -> None:
        """Ask for permits; in some worlds the session asks for as many others while it waits for these."""
        commands = self._actor.commands
        asked = commands.permits(sessions)
        more = commands.as_many_again(asked) if asked.session_id else None
        if more is None:
            await self._wish(asked)
        else:
            await asyncio.gather(self._wish(asked), self._wish(more))

    async def _resize(self) -> None:
        command = self._actor.commands.resize()
        _, result = await self._actor.caller.insist(command)
        if isinstance(result, Resized):
            self._actor.commands.limits[command.name] = command.limit

    async def _campaign(self, sessions: list[SessionId]) -> None:
        if sessions:
            await self._wish(self._actor.commands.campaign(self._actor.random.choice(sessions)))
        else:
            await self._actor.open_session()

    async def _proclaim(self) -> None:
        actor, held = self._actor, self._any(HoldKind.ELECTION)
        if held is not None:
            value = f"again at {actor.random.randint(1, 9)}"
            await actor.caller.insist(Proclaim(held.hold_id, value, actor.caller.request_id()))

    # -- rates and reads ------------------------------------------------------------------------------------

    async def _take_rates(self) -> None:
        """Ask several times at once."""
        actor = self._actor
        count = actor.random.randint(1, BURST_MAX)
        await asyncio.gather(*[actor.caller.insist(actor.commands.rate()) for _ in range(count)])

    async def _read(self) -> None:
        actor, random = self._actor, self._actor.random
        queries: list[Query] = [
            ReadSemaphore(random.choice(SEMAPHORES)),
            ReadElection(random.choice(ELECTIONS)),
        ]
        held = self._any(HoldKind.LOCK)
        if held is not None:
            names = [lock.name for lock in held.locks] + [name for name, _ in held.beside]
            queries.append(CheckToken(random.choice(names), held.token))
        await actor.caller.read(random.choice(queries))
