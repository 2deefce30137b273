"""Ending all that one principal has: found by listings, ended one by one, until nothing is left.

Each call ends one session, hold or wait, so that no node is busy with it for long, however much there is.
"""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from holdfast import wire
from holdfast.client.listings import Listing, pages
from holdfast.operations import override_operations
from holdfast.operations.operation import Operation
from holdfast.transport.transport import Transport
from holdfast.values.answers import PrincipalEnded
from holdfast.values.errors import Refused
from holdfast.wire.held import HoldRow, WaitRow
from holdfast.wire.listings import SessionRow

ROUNDS_MAX: Final = 10
"""How often to look for what is left. A principal that is still let in may always have made more."""
_AT_ONCE: Final = 16
"""Calls under way at a time."""
_GONE: Final = frozenset({"ticket-ended", "session-expired", "not-holder", "wrong-kind"})
"""The codes that say that something ended by itself after it was listed."""


async def end_all(transport: Transport, principal: str, reason: str, *, waits_only: bool) -> PrincipalEnded:
    """End what a principal has, in as many rounds as it takes, or in as many as there may be."""
    sessions = holds = waits = 0
    for _ in range(ROUNDS_MAX):
        # Waits come first: what the principal lets go of must not be granted to itself.
        ended_waits = await _end_waits(transport, principal, reason)
        ended_sessions = ended_holds = 0
        if not waits_only:
            ended_sessions = await _end_sessions(transport, principal, reason)
            ended_holds = await _end_holds(transport, principal, reason)
        if not (ended_waits or ended_sessions or ended_holds):
            return PrincipalEnded(sessions, holds, waits, is_finished=True)
        sessions, holds, waits = sessions + ended_sessions, holds + ended_holds, waits + ended_waits
    return PrincipalEnded(sessions, holds, waits, is_finished=False)


async def _end_waits(transport: Transport, principal: str, reason: str) -> int:
    """End each wait once, by the first of its names."""
    found = Listing(transport, pages(wire.HOLDS, "tickets", WaitRow, {"principal": principal}))
    rows = {row.ticket: row async for row in found}
    return await _carry_out(
        transport,
        [
            override_operations.force_waits(row.kind, row.name, reason, ticket=row.ticket)
            for row in rows.values()
        ],
    )


async def _end_sessions(transport: Transport, principal: str, reason: str) -> int:
    found = Listing(transport, pages(wire.SESSIONS, "sessions", SessionRow, {"principal": principal}))
    names = [row.session_name async for row in found]
    return await _carry_out(
        transport, [override_operations.force_close_session(name, reason) for name in names]
    )


async def _end_holds(transport: Transport, principal: str, reason: str) -> int:
    """End each hold once, by the first of its names."""
    found = Listing(transport, pages(wire.HOLDS, "holds", HoldRow, {"principal": principal}))
    rows = {row.token: row async for row in found}
    return await _carry_out(
        transport,
        [
            override_operations.force_release(row.kind, row.name, reason, 0, token=row.token)
            for row in rows.values()
        ],
    )


async def _carry_out(transport: Transport, operations: Iterable[Operation[Any]]) -> int:
    """Carry out operations, several at a time; return how many ended something."""
    count = 0
    for some in _batches(list(operations)):
        count += sum(await asyncio.gather(*[_end(transport, operation) for operation in some]))
    return count


def _batches(operations: list[Operation[Any]]) -> Iterable[list[Operation[Any]]]:
    return (operations[start : start + _AT_ONCE] for start in range(0, len(operations), _AT_ONCE))


async def _end(transport: Transport, operation: Operation[Any]) -> bool:
    """Carry out one operation; return whether there was still anything to end."""
    try:
        await transport.call(operation)
    except Refused as refused:
        if refused.code not in _GONE:
            raise
        return False
    return True
