"""A transaction: what is acquired one by one, and released at once, at the end of a block."""

import sys
from collections import Counter
from collections.abc import Mapping

from holdfast.client import cell_operations
from holdfast.client.acquiring import Acquirable, Lock, Openable, Semaphore
from holdfast.client.hold import Claim, Hold, Session
from holdfast.operations.hold_operations import Opened
from holdfast.operations.terms import LockTerms, Owner, Terms, Wait, terms_of, wait_s
from holdfast.transport.transport import Transport
from holdfast.values.cells import CellOperation, CellResult, StillHeld
from holdfast.values.durations import Seconds
from holdfast.values.errors import AlreadyHeld, LeaseLost
from holdfast.values.lease import LEASE_EXPIRED, RELEASED
from holdfast.values.names import Name, to_name
from holdfast.values.words import Mode, Reason, Scope


class Transaction(Session):
    """A session that acquires what its block needs, piece by piece, and releases all of it in one request.

    Everything is held until the end, so no other transaction changes in between what one has seen under its
    locks. A wait that would never end, because another transaction waits for this one, raises Deadlock: leave
    the block, and start over.

    Losing one hold means losing all: the block is cancelled, and its end raises LeaseLost. The end also
    raises LeaseLost if the cluster only then reports that something was no longer held.
    """

    def __init__(self, transport: Transport, opened: Opened, owner: str, wait: float | None) -> None:
        super().__init__(transport, opened)
        self._owner = owner
        self._wait_s = wait
        self._holds: dict[Claim, list[Hold]] = {}
        self._scopes: dict[Claim, str] = {}

    def __repr__(self) -> str:
        return f"<Transaction holds={len(self.holds)} remaining={self.remaining:.3f}>"

    @property
    def described(self) -> str:
        """A description for people."""
        return "the transaction"

    @property
    def holds(self) -> tuple[Hold, ...]:
        """Its holds; at its end, the holds it had."""
        return tuple(hold for holds in self._holds.values() for hold in holds)

    async def acquire(
        self,
        *names: Name,
        mode: Mode = "exclusive",
        scope: Scope = "node",
        wait: Wait = ...,
        note: str = "",
    ) -> Hold:
        """Acquire a lock, or several, all or none, and hold them until the end.

        Locks that it holds by the same names are returned again; raises AlreadyHeld if their mode is weaker
        than the new one: convert them. Waits up to `wait` (by default the transaction's), and then raises
        LockTimeout; the transaction goes on.
        """
        lock = self._lock(*names, mode=mode, scope=scope, wait=wait, note=note)
        if known := self._holds.get(lock.claim):
            self.ensure()
            hold = known[0]
            if hold.mode not in (mode, "exclusive") or self._scopes[lock.claim] not in (scope, "subtree"):
                raise AlreadyHeld("already-held", f"{hold.described} is held in another mode; convert it")
            return hold
        hold = await self._hold(lock, lock.claim)
        self._scopes[lock.claim] = scope
        return hold

    def _lock(self, *names: Name, mode: Mode, scope: Scope, wait: Wait, note: str) -> Lock:
        """Return the lock that `acquire` acquires. Raises RuntimeError for a wait for its own block."""
        if not names:
            raise ValueError("names: name at least one lock")
        texts = tuple(to_name(name) for name in names)
        lock = Lock(self._transport, texts, self._terms(wait, note), mode=mode, scope=scope)
        lock.counted_again(lock.terms, sys._getframe())  # noqa: SLF001 - see blocks.py
        return lock

    async def acquire_permits(
        self,
        name: Name,
        *,
        limit: int | None = None,
        permits: int = 1,
        strict: bool = False,
        wait: Wait = ...,
        note: str = "",
    ) -> Hold:
        """Acquire permits of a semaphore, new ones each time, and hold them until the end. See `acquire`."""
        text, terms = to_name(name), self._terms(wait, note)
        semaphore = Semaphore(self._transport, text, terms, limit=limit, permits=permits, strict=strict)
        return await self._hold(semaphore, ("semaphore", text))

    async def write(self, *operations: CellOperation) -> tuple[CellResult, ...]:
        """Do all these operations on cells in one step, if everything is still held.

        Otherwise nothing is done, and the transaction is lost: raises LeaseLost. Returns a result for each.
        """
        self.ensure()
        compare = [StillHeld(hold) for hold in self.holds]
        done = await self._transport.call(cell_operations.transact(compare, operations, ()))
        if not done.succeeded:
            self.end(LEASE_EXPIRED)
            raise self.loss(LEASE_EXPIRED)
        return done.results

    def _terms(self, wait: Wait, note: str) -> Terms:
        given = {"session": self, "wait": self._wait_s if wait is ... else wait, "note": note}
        return terms_of("acquire", self._owner, LockTerms, given)

    async def _hold(self, acquirable: Acquirable[Hold], claim: Claim) -> Hold:
        """Acquire something; it is the transaction's from the moment that it is granted."""
        hold = await acquirable.granted(acquirable.terms)
        holds = self._holds.setdefault(claim, [])
        holds.append(hold)
        hold.when_ended(lambda ended: self._forget(ended, claim))
        return hold

    def _forget(self, hold: Hold, claim: Claim) -> None:
        """Forget what was released before the end. What was lost takes all the rest along."""
        if self.has_ended:
            return
        holds = self._holds[claim]
        holds.remove(hold)
        if not holds:
            del self._holds[claim]
        if hold.reason != RELEASED:
            self.end(hold.reason, hold.cause)

    async def let_go(self, timeout_s: float | None) -> tuple[str, ...]:
        """Release everything. Raises LeaseLost if something was not held any longer."""
        released = await super().let_go(timeout_s)
        held = Counter(name for hold in self.holds for name in hold.names)
        if missing := held - Counter(released):
            names = ", ".join(missing)
            raise LeaseLost(f"{names!r} was lost before the transaction ended", LEASE_EXPIRED)
        return released

    def _end_late(self, reason: Reason) -> None:
        super()._end_late(reason)
        if reason == LEASE_EXPIRED:  # of one hold: the session, with all others, is still there
            self.run_aside(self.give_up())


class TransactionContext(Openable[Transaction]):
    """A transaction to begin: `async with` begins it, and releases all that it holds at the end."""

    def __init__(
        self,
        transport: Transport,
        ttl_ms: int,
        labels: Mapping[str, str],
        *,
        owner: str,
        wait: Seconds | None,
        tied_to: Owner | None = None,
    ) -> None:
        super().__init__(transport, ttl_ms, labels, tied_to=tied_to)
        self._owner = owner
        self._wait_s = wait_s(wait)

    def _opened(self, opened: Opened) -> Transaction:
        return Transaction(self._transport, opened, self._owner, self._wait_s)
