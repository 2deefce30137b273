"""Transactions for threads: the twin of `transaction.py`."""

from holdfast.client.hold import Hold
from holdfast.client.portal import Call
from holdfast.client.transaction import Transaction, TransactionContext
from holdfast.operations.terms import Wait
from holdfast.threads.sync_holds import SyncHold, SyncOpenable, SyncSession
from holdfast.values.cells import CellOperation, CellResult
from holdfast.values.names import Name
from holdfast.values.words import Mode, Scope


class SyncTransaction(SyncSession):
    """A session that acquires what its block needs, and releases all of it at once. See `Transaction`.

    A loss does not stop the block: look at `lost`, or call `ensure`.
    """

    def __init__(self, transaction: Transaction) -> None:
        super().__init__(transaction)
        self._transaction = transaction
        self._twins: dict[Hold, SyncHold] = {}

    @property
    def holds(self) -> tuple[SyncHold, ...]:
        """Its holds; at its end, the holds it had."""
        return tuple(self._twins[hold] for hold in self._transaction.holds if hold in self._twins)

    def acquire(
        self,
        *names: Name,
        mode: Mode = "exclusive",
        scope: Scope = "node",
        wait: Wait = ...,
        note: str = "",
    ) -> SyncHold:
        """Acquire a lock, or several, all or none, and hold them until the end. See `Transaction.acquire`."""
        # Looks for blocks of this thread that would wait for themselves.
        self._transaction._lock(*names, mode=mode, scope=scope, wait=wait, note=note)  # noqa: SLF001 - its twin

        async def work() -> SyncHold:
            return self._twin_of(
                await self._transaction.acquire(*names, mode=mode, scope=scope, wait=wait, note=note)
            )

        return Call(work).run()

    def acquire_permits(
        self,
        name: Name,
        *,
        limit: int | None = None,
        permits: int = 1,
        strict: bool = False,
        wait: Wait = ...,
        note: str = "",
    ) -> SyncHold:
        """Acquire permits of a semaphore, new ones each time, and hold them until the end."""

        async def work() -> SyncHold:
            return self._twin_of(
                await self._transaction.acquire_permits(
                    name, limit=limit, permits=permits, strict=strict, wait=wait, note=note
                )
            )

        return Call(work).run()

    def write(self, *operations: CellOperation) -> tuple[CellResult, ...]:
        """Do all these operations on cells in one step, if everything is still held. Raises LeaseLost."""
        return Call(lambda: self._transaction.write(*operations)).run()

    def _twin_of(self, hold: Hold) -> SyncHold:
        return self._twins.setdefault(hold, SyncHold(hold))


class SyncTransactionContext(SyncOpenable[SyncTransaction]):
    """A transaction to begin: `with` begins it, and releases all that it holds at the end."""

    def __init__(self, context: TransactionContext) -> None:
        super().__init__(context, SyncTransaction)
