"""What a client may want of the whole vocabulary: commands made at random, from names that meet."""

from random import Random
from typing import Any, Final, TypeVar

import msgspec

from lockstate.words.commands.admin import HoldRules, PreferLeader, RecordAct, SetNamespace
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    AcquireSeveral,
    AddLocks,
    Campaign,
    Convert,
    HandOver,
    PutOff,
    ReleaseByValue,
    RenewByValue,
)
from lockstate.words.commands.overrides import (
    ForceCloseSession,
    ForceRelease,
    ForceWaits,
    ForgetFence,
    ForgetRates,
    Freeze,
    LiftDelay,
    Revoke,
    Thaw,
    WithdrawRevocation,
)
from lockstate.words.commands.primitives import AdvanceFence, ResizeSemaphore, TakeRate
from lockstate.words.ids import NO_OWNER, NO_SESSION, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm, ClusterAct, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.settings import NamespaceSettings
from lockstate.words.views import LockView, WaiterView
from lockstate.words.wanted import Asking, Uncommon, Wanted, WantedPermits, WantedRate
from tests.simulation.checks.conflicts import covers
from tests.simulation.workload.caller import Caller
from tests.simulation.workload.client_holds import Held
from tests.simulation.workload.client_settings import ClientSettings
from tests.simulation.workload.history import ReadLock

SEVERAL_MAX: Final = 4
SUBTREE_CHANCE: Final = 0.2
AGAIN_CHANCE: Final = 0.4
"""That a session asks for what it asked for last."""
PLAIN_CHANCE: Final = 0.3
"""That it does not say what it means by that."""
VALUE_CHANCE: Final = 0.4
"""That a hold is to carry a value."""
SECRET_CHANCE: Final = 0.4
ENDLESS_CHANCE: Final = 0.05
"""That a hold is to have no deadline."""
GUESS_CHANCE: Final = 0.3
"""That a value is named that nobody has, though it looks like one."""
THAW_CHANCE: Final = 0.4
"""That a prefix is thawed, which may not be frozen, and not frozen."""
PRIORITY_CHANCE: Final = 0.3
PRIORITIES: Final = (0, 4, 4, 6, 6, 9)
"""Of requests that have one: most are worth so little that a wait may make up for it."""
RATE_CHANCE: Final = 0.5
"""That an operator forgets rate limits, and not a fence."""
ASK_CHANCE: Final = 0.7
"""That a wait asks by itself, where it is known that it may."""
PREFIX_CHANCE: Final = 0.3
"""That all are meant whose names begin with the name."""
LIMIT: Final = 3
"""Of a semaphore that nobody has resized."""
LIMIT_MAX: Final = 6
RATE_WINDOW_MS: Final = 5_000
FORGOTTEN_RATE: Final = "r2"
"""A rate limit that is forgotten now and again."""
RATE_LIMITS: Final = {"r0": (3,), "r1": (2, 5), FORGOTTEN_RATE: (3,)}
"""What is asked of each rate limit."""
SEVERAL_RATES: Final = ("k0", "k1")
SEVERAL_WINDOW_MS: Final = 1_000
"""Rate limits that are only taken from together with other things."""
SEMAPHORES: Final = ("s0", "s1")
ELECTIONS: Final = ("e0", "e1")
RESOURCES: Final = ("f0", "f1")
NAMESPACES: Final = (
    NamespaceSettings(holds=6),
    NamespaceSettings(lock_delay_ms_min=200, holds=9, waits=2),
    NamespaceSettings(fences=1, waits=1),
    NamespaceSettings(ask_after_ms_min=0),
    NamespaceSettings(ask_after_ms_min=100, grace_ms_min=200, held_ms_max=3_000),
    NamespaceSettings(held_ms_max=1_000),
)
"""What namespaces may say: nothing that would make what clients ask for a mistake of theirs."""
FORGOTTEN: Final = "f2"
"""A resource whose fence is forgotten now and again."""


AskedT = TypeVar("AskedT", Acquire, AcquirePermits)


def _delayed(lock_delay_ms: int) -> Uncommon | None:
    """Return what is uncommon of an acquire with this lock-delay."""
    return Uncommon(lock_delay_ms) if lock_delay_ms else None


def _namespace_of(name: str) -> str:
    """Return the prefix of the only namespace that there may be around a name."""
    return name.partition("/")[0]


class ClientCommands:
    """Makes the commands of one client."""

    def __init__(self, name: str, caller: Caller, settings: ClientSettings, random: Random) -> None:
        self._name = OwnerName(name)
        self._caller = caller
        self._settings = settings
        self._random = random
        self._last: Acquire | None = None
        """What was asked for last in a session."""
        self._values_made = 0
        self.limits: dict[str, int] = {}
        """What this client was told of semaphores."""

    def pick_name(self) -> str:
        """Return the name of a lock."""
        return self._random.choice(self._settings.names)

    def pick_ttl(self) -> int:
        """Return the length of a lease."""
        low, high = self._settings.ttl_ms
        return int(low * (high / low) ** self._random.random())

    def pick_wait(self) -> int:
        """Return how long to wait, which may be not at all."""
        return self._random.randint(*self._settings.wait_ms) if self._random.random() < 0.6 else 0

    def lock(self, sessions: list[SessionId], wait_ms: int | None = None) -> Acquire:
        """Return an acquire of one name, exclusive or shared."""
        random = self._random
        session_id, ttl_ms = NO_SESSION, self.pick_ttl()
        if sessions and random.random() < 0.5:
            session_id, ttl_ms = random.choice(sessions), 0
        if wait_ms is None:
            wait_ms = self.pick_wait()
        return Acquire(
            name=random.choice(self._settings.names),
            mode=Mode.SHARED if random.random() < 0.3 else Mode.EXCLUSIVE,
            hold_id=self._caller.new_hold_id(),
            attempt_id=self._caller.new_attempt_id(),
            session_id=session_id,
            ttl_ms=ttl_ms,
            owner=self._name,
            wait_ms=wait_ms,
            request_id=self._caller.request_id(),
            uncommon=_delayed(random.choice([0, 0, 0, 0, 500, 3000])),
        )

    def rich_lock(self, sessions: list[SessionId]) -> Acquire:
        """Return an acquire of any mode and scope, or of several locks, or of the same again."""
        random = self._random
        last = self._last
        if last is not None and last.session_id in sessions and random.random() < AGAIN_CHANCE:
            delay_ms = random.choice([0, 500, 3000])
            again = msgspec.structs.replace(last, uncommon=_delayed(delay_ms), **self._new_ids())
            return self._meant(again)
        session_id, ttl_ms = self._lease(sessions)
        locks = self._several() if random.random() < 0.35 else ()
        one = self._wanted(random.choice(self._settings.names))
        acquire = Acquire(
            name="" if locks else one.name,
            mode=one.mode,
            hold_id=self._caller.new_hold_id(),
            attempt_id=self._caller.new_attempt_id(),
            session_id=session_id,
            ttl_ms=ttl_ms,
            owner=self._owner(),
            wait_ms=self.pick_wait(),
            request_id=self._caller.request_id(),
            scope=one.scope,
            locks=locks,
            uncommon=_delayed(random.choice([0, 0, 0, 0, 0, 0, 500, 3000])),
        )
        self._last = acquire if session_id else None
        return self._meant(acquire)

    def _meant(self, acquire: Acquire) -> Acquire:
        """Return an acquire that mostly says, in a session, what it means if that is held already."""
        random = self._random
        acquire = self._uncommon(acquire)
        if acquire.session_id and random.random() >= PLAIN_CHANCE:
            return msgspec.structs.replace(acquire, if_held=random.choice(list(IfHeld)))
        return acquire

    def _uncommon(self, asked: AskedT) -> AskedT:
        """Add what few have or want: a value that no other request gives, no deadline, a priority, an ask."""
        random = self._random
        rare: dict[str, Any] = {}
        if random.random() < VALUE_CHANCE:
            self._values_made += 1
            is_secret = random.random() < SECRET_CHANCE
            rare |= {"value": f"{self._name}'s {self._values_made}.", "is_secret": is_secret}
        if random.random() < ENDLESS_CHANCE:
            rare["is_endless"] = True
            asked = msgspec.structs.replace(asked, session_id=NO_SESSION, ttl_ms=0)
        if random.random() < PRIORITY_CHANCE:
            rare["priority"] = random.choice(PRIORITIES)
        asks = self._asks(asked)
        if asks is not None:
            rare["asks"] = asks
        if not rare:
            return asked
        return msgspec.structs.replace(
            asked, uncommon=msgspec.structs.replace(asked.uncommon or Uncommon(), **rare)
        )

    def _asks(self, asked: Acquire | AcquirePermits) -> Asking | None:
        """Return when a wait asks by itself, if all its names are known to lie where it may."""
        random, locks = self._random, asked.locks if isinstance(asked, Acquire) else ()
        names = [lock.name for lock in locks] or [asked.name]
        known = [self._caller.namespaces.get(_namespace_of(name)) for name in names]
        lets = [one for one in known if one is not None and one.ask_after_ms_min is not None]
        after_ms = max([one.ask_after_ms_min or 0 for one in lets], default=0)
        if len(lets) < len(names) or after_ms >= asked.wait_ms or random.random() >= ASK_CHANCE:
            return None
        grace_ms = max([one.grace_ms_min or 0 for one in lets])
        after_ms = min(after_ms + random.choice([0, 100, 500]), asked.wait_ms - 1)
        return Asking(after_ms, grace_ms + random.choice([0, 100, 1000]))

    def release_by_value(self, held: Held) -> ReleaseByValue:
        """Return a release of a hold by its value."""
        return ReleaseByValue(held.locks[0].name, held.value, held.kind, self._caller.request_id())

    def guess_a_value(self, held: Held) -> ReleaseByValue | RenewByValue:
        """Return what names a hold by something that is not quite its name, its value or its kind.

        Of a list of locks all of them may be right: it is not found by that either.
        """
        random, name, request_id = self._random, held.locks[0].name, self._caller.request_id()
        wrong = random.choice(["value", "name", "kind", "nothing" if len(held.locks) > 1 else "value"])
        value = held.value[:-1] if wrong == "value" else held.value
        if wrong == "name":
            name = random.choice(
                [other for other in self._settings.names if other != name] or [f"{name}/other"]
            )
        kinds = [kind for kind in HoldKind if kind is not held.kind]
        kind = random.choice(kinds) if wrong == "kind" else held.kind
        if random.random() < 0.5:
            return RenewByValue(name, value, 0, kind, request_id)
        return ReleaseByValue(name, value, kind, request_id)

    def renew_by_value(self, held: Held) -> RenewByValue:
        """Return a renewal of a hold by its value."""
        return RenewByValue(held.locks[0].name, held.value, 0, held.kind, self._caller.request_id())

    def _new_ids(self) -> dict[str, str]:
        return {
            "hold_id": self._caller.new_hold_id(),
            "attempt_id": self._caller.new_attempt_id(),
            "request_id": self._caller.request_id(),
        }

    def _lease(self, sessions: list[SessionId]) -> tuple[SessionId, int]:
        if sessions and self._random.random() < 0.5:
            return self._random.choice(sessions), 0
        return NO_SESSION, self.pick_ttl()

    def _owner(self) -> OwnerName:
        numbered = OwnerName(f"{self._name}-{self._random.randint(1, 9)}")
        return self._random.choice([NO_OWNER, self._name, self._name, numbered])

    def _wanted(self, name: str) -> Wanted:
        random = self._random
        scope = Scope.SUBTREE if random.random() < SUBTREE_CHANCE else Scope.NODE
        return Wanted(name, random.choice(list(Mode)), scope)

    def _several(self) -> tuple[Wanted, ...]:
        """Return a few locks of which none lies within another one."""
        random = self._random
        locks: list[Wanted] = []
        for _ in range(random.randint(2, SEVERAL_MAX)):
            lock = self._wanted(random.choice(self._settings.names))
            if not any(covers(lock, other.name) or covers(other, lock.name) for other in locks):
                locks.append(lock)
        return tuple(locks)

    def convert(self, hold_id: HoldId) -> Convert:
        """Return a conversion to any mode."""
        return Convert(
            hold_id,
            self._random.choice(list(Mode)),
            ticket_id=self._caller.new_hold_id(),
            attempt_id=self._caller.new_attempt_id(),
            wait_ms=self.pick_wait(),
            request_id=self._caller.request_id(),
        )

    def add(self, hold_id: HoldId, held: tuple[Wanted, ...]) -> AddLocks | None:
        """Return an addition to what is held: another lock that lies beside it; None if none was found."""
        random = self._random
        more: list[Wanted] = []
        for _ in range(random.randint(1, 2)):
            lock = self._wanted(random.choice(self._settings.names))
            if not any(covers(lock, other.name) or covers(other, lock.name) for other in (*held, *more)):
                more.append(lock)
        if not more:
            return None
        return AddLocks(
            hold_id,
            tuple(more),
            ticket_id=self._caller.new_hold_id(),
            attempt_id=self._caller.new_attempt_id(),
            wait_ms=self.pick_wait(),
            request_id=self._caller.request_id(),
        )

    def permits(self, sessions: list[SessionId]) -> AcquirePermits:
        """Return an acquire of permits, with the limit that this client believes in."""
        random = self._random
        name = random.choice(SEMAPHORES)
        limit = self.limits.get(name, LIMIT)
        session_id, ttl_ms = self._lease(sessions)
        acquire = AcquirePermits(
            name,
            limit,
            random.randint(1, random.choice([1, limit])),
            hold_id=self._caller.new_hold_id(),
            attempt_id=self._caller.new_attempt_id(),
            session_id=session_id,
            ttl_ms=ttl_ms,
            owner=self._owner(),
            wait_ms=self.pick_wait(),
            request_id=self._caller.request_id(),
            is_strict=True,
            uncommon=_delayed(random.choice([0, 0, 0, 0, 0, 0, 500, 3000])),
        )
        return self._uncommon(acquire)

    def as_many_again(self, asked: AcquirePermits) -> AcquirePermits | None:
        """Return an acquire of as many permits for the same session; None if there is to be none."""
        share = self._settings.permits_again_share
        if not share or self._random.random() >= share:
            return None
        return msgspec.structs.replace(asked, **self._new_ids())

    def several_kinds(self, sessions: list[SessionId]) -> AcquireSeveral:
        """Return an acquire of locks and permits that others want too, and sometimes of rates."""
        random = self._random
        asked = self.rich_lock(sessions)
        fields = {name: getattr(asked, name) for name in Acquire.__struct_fields__} | self._new_ids()
        if not asked.session_id:
            fields["ttl_ms"] = asked.ttl_ms or self.pick_ttl()  # none of them is without a deadline
        locks = asked.locks or (Wanted(asked.name, asked.mode, asked.scope),)
        names = random.sample(SEMAPHORES, random.choice([0, 1, 1, 2]))
        permits = [
            WantedPermits(name, self.limits.get(name, LIMIT), random.choice([1, 1, 2])) for name in names
        ]
        rates = [
            WantedRate(name, random.choice([1, 2]), SEVERAL_WINDOW_MS, random.choice(list(Algorithm)))
            for name in random.sample(SEVERAL_RATES, random.choice([0, 0, 1, 2]) if names else 2)
        ]
        if len(permits) + len(rates) > 1 and permits and random.random() < 0.3:
            locks = ()
        fields |= {"name": "", "mode": Mode.EXCLUSIVE, "scope": Scope.NODE, "locks": locks}
        if asked.uncommon is not None:
            fields["uncommon"] = _delayed(asked.uncommon.lock_delay_ms)
        return AcquireSeveral(**fields, permits=tuple(permits), rates=tuple(rates))

    def resize(self) -> ResizeSemaphore:
        """Return another limit for a semaphore."""
        random = self._random
        return ResizeSemaphore(
            random.choice(SEMAPHORES), random.randint(1, LIMIT_MAX), self._caller.request_id(), "by hand"
        )

    def force(self, held: list[Held]) -> ForceRelease:
        """Return a force for something that is held, for all of a name, or for what nobody may have."""
        random = self._random
        kind, delay_ms, token = random.choice(list(HoldKind)), random.choice([0, 1000]), 0
        if held and random.random() < 0.6:
            one = random.choice(held)
            kind, name = random.choice(one.places)
            token = random.choice([0, one.token])
        else:
            name = random.choice((*self._settings.names, *SEMAPHORES, *ELECTIONS))
            token = random.choice([0, *[one.token for one in held]])
        if kind is HoldKind.ELECTION:
            delay_ms = 0
        return ForceRelease(name, "by hand", delay_ms, self._caller.request_id(), kind, token)

    def revoke(self, held: list[Held]) -> Revoke:
        """Return a revocation of something that is held, for all of a name, or of what nobody may have."""
        meant, random = self.force(held), self._random
        grace_ms = random.choice([0, 200, 1000, 5000])
        return Revoke(meant.name, "please", grace_ms, meant.kind, meant.token, 0, meant.request_id)

    def revoke_for(self, waiter: WaiterView) -> Revoke:
        """Return a revocation of what somebody waits for, for this wait."""
        grace_ms, request_id = self._random.choice([200, 1000, 5000]), self._caller.request_id()
        return Revoke(waiter.name, "my turn", grace_ms, waiter.kind, 0, waiter.ticket, request_id)

    def withdraw_revocation(self, held: list[Held]) -> WithdrawRevocation:
        """Return a command to take back what may have been asked, of all holders of a name or of one."""
        meant = self.force(held)
        return WithdrawRevocation(meant.name, "not now", meant.kind, meant.token, 0, meant.request_id)

    def put_off(self, held: Held) -> PutOff:
        """Return the answer "not yet" to a revocation that may have been made."""
        return PutOff(held.hold_id, held.kind, self._caller.request_id())

    def hand_over(self, held: Held, seen: LockView | None) -> HandOver:
        """Return a hand-over to a wait or a session that was seen with a lock, or to one that may not be."""
        random, request_id = self._random, self._caller.request_id()
        tickets = [waiter.ticket for waiter in seen.queue] if seen else []
        if tickets and random.random() < 0.7:
            return HandOver(held.hold_id, random.choice(tickets), request_id=request_id)
        shown = [holder.session_name for holder in seen.holders] if seen else []
        shown += [waiter.session_name for waiter in seen.queue] if seen else []
        names = sorted({name for name in shown if name}) or ["s-1"]
        return HandOver(held.hold_id, 0, random.choice(names), self._caller.new_hold_id(), request_id)

    def lift(self) -> LiftDelay:
        """Return a command to lift the delays of what may have some."""
        kind, names = self._random.choice(
            [(HoldKind.LOCK, self._settings.names), (HoldKind.SEMAPHORE, SEMAPHORES)]
        )
        return LiftDelay(self._random.choice(names), "by hand", kind, self._caller.request_id())

    def freeze(self) -> Freeze | Thaw:
        """Return a command that freezes what has names for a moment, or thaws it."""
        random = self._random
        name = random.choice((*self._settings.names, *SEMAPHORES, *ELECTIONS))
        prefix = random.choice([name, name.partition("/")[0]])
        if random.random() < THAW_CHANCE:
            return Thaw(prefix, "by hand", self._caller.request_id())
        return Freeze(prefix, "by hand", random.choice([100, 1000, 5000]), self._caller.request_id())

    def namespace(self) -> SetNamespace:
        """Return a command that sets a namespace, or ends one, around what has names."""
        name = self._random.choice((*self._settings.names, *SEMAPHORES, *ELECTIONS, *RESOURCES))
        settings = self._random.choice([None] * len(NAMESPACES) + list(NAMESPACES))
        return SetNamespace(_namespace_of(name), settings, self._caller.request_id(), "by hand")

    def force_close(self, session_name: str) -> ForceCloseSession:
        """Return a command to end somebody's session."""
        return ForceCloseSession(session_name, "by hand", self._caller.request_id())

    def force_waits(self, queue: list[WaiterView]) -> ForceWaits:
        """Return a command to end one of these waits, or all for a name."""
        random, request_id = self._random, self._caller.request_id()
        if queue and random.random() < 0.6:
            waiter = random.choice(queue)
            return ForceWaits(waiter.name, "by hand", waiter.kind, waiter.ticket, request_id)
        kind, names = random.choice(
            [
                (HoldKind.LOCK, self._settings.names),
                (HoldKind.SEMAPHORE, SEMAPHORES),
                (HoldKind.ELECTION, ELECTIONS),
            ]
        )
        return ForceWaits(random.choice(names), "by hand", kind, 0, request_id)

    def record_act(self) -> RecordAct:
        """Return what is said of a change of the members or the leader before it is made."""
        random = self._random
        act, node_id = random.choice(list(ClusterAct)), random.choice(self._caller.node_ids)
        peer = f"{node_id}:7800" if act in {ClusterAct.ADD, ClusterAct.MOVE} else ""
        return RecordAct(act, node_id, peer, "by hand", self._caller.request_id())

    def hold_rules(self) -> HoldRules:
        """Return a command that holds the rules of the cluster, or more often lets go of them."""
        return HoldRules(self._random.random() < 0.4, "by hand", self._caller.request_id())

    def prefer_leader(self) -> PreferLeader:
        """Return a command that says who should lead, or less often that nobody should."""
        node_id = self._random.choice([*self._caller.node_ids, ""])
        return PreferLeader(node_id, "by hand", self._caller.request_id())

    def look_around(self) -> ReadLock:
        """Return a read that may show who holds a lock, in which session, and who waits for it."""
        return ReadLock(self._random.choice(self._settings.names))

    def forget(self) -> ForgetFence | ForgetRates:
        """Return a command to forget a fence or rate limits."""
        random, request_id = self._random, self._caller.request_id()
        if random.random() < RATE_CHANCE:
            return ForgetRates(FORGOTTEN_RATE, "by hand", random.random() < PREFIX_CHANCE, request_id)
        return ForgetFence(FORGOTTEN, "by hand", request_id)

    def campaign(self, session_id: SessionId) -> Campaign:
        """Return a candidacy."""
        random = self._random
        return Campaign(
            random.choice(ELECTIONS),
            session_id,
            f"{self._name} at {random.randint(1, 9)}",
            hold_id=self._caller.new_hold_id(),
            attempt_id=self._caller.new_attempt_id(),
            owner=self._owner(),
            wait_ms=self.pick_wait(),
            request_id=self._caller.request_id(),
            if_held=random.choice((None, None, None, IfHeld.REFUSE)),
        )

    def rate(self) -> TakeRate:
        """Return a request that is allowed only so often."""
        random = self._random
        name = random.choice(list(RATE_LIMITS))
        limit = random.choice(RATE_LIMITS[name])
        return TakeRate(
            name,
            limit,
            RATE_WINDOW_MS,
            random.choice(list(Algorithm)),
            cost=random.choice([1, 1, 2]),
            wait_ms=random.choice([0, 0, 0, 1_000, 8_000]),
            request_id=self._caller.request_id(),
        )

    def fence(self, tokens: list[int]) -> AdvanceFence:
        """Return what a resource does with one of these tokens, new or old."""
        random = self._random
        token = max(0, random.choice(tokens or [0]) - random.choice([0, 0, 1, 5]))
        return AdvanceFence(random.choice((*RESOURCES, FORGOTTEN)), token, self._caller.request_id())
