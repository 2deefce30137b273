"""Elections: to campaign and lead, and to observe who leads."""

import contextlib
from collections.abc import AsyncGenerator
from dataclasses import replace

from holdfast.client.acquiring import Acquirable
from holdfast.client.hold import Claim, Leadership, Session
from holdfast.client.watch import Watch
from holdfast.operations import primitive_operations
from holdfast.operations.hold_operations import Grant, open_session
from holdfast.operations.operation import Operation
from holdfast.operations.terms import Terms
from holdfast.operations.wanted import HoldRequest
from holdfast.transport.transport import Transport
from holdfast.values.durations import to_ms
from holdfast.values.errors import Compacted
from holdfast.wire.held import ElectionInfo, Leader


class Election(Acquirable[Leadership]):
    """An election. `async with` campaigns, and leads while the block runs; anybody may observe.

    Without a session from the caller each campaign opens one of its own, which ends with it.
    """

    kind = "election"

    def __init__(
        self,
        transport: Transport,
        name: str,
        terms: Terms,
        *,
        value: str,
        session_ttl_s: float,
    ) -> None:
        super().__init__(transport, (name,), terms)
        self._value = value
        self._session_ttl_s = session_ttl_s

    @property
    def claim(self) -> Claim:
        """A session that leads already is told so when it campaigns again."""
        return ("election", *self._names)

    def _operation(self, wanted: HoldRequest) -> Operation[Grant]:
        return primitive_operations.campaign(self._names[0], self._value, wanted)

    def _hold(self, granted: Grant, session: Session | None) -> Leadership:
        return Leadership(self._transport, granted, session)

    async def _acquire(self, terms: Terms) -> Leadership:
        """Campaign, in a session that is kept from now on unless the caller has brought one."""
        if terms.session is not None:
            return await super()._acquire(terms)
        opening = open_session(to_ms(self._session_ttl_s, "ttl"), {})
        session = Session(self._transport, await self._transport.call(opening))
        session.keep(tied_to=terms.tied_to)
        if terms.is_pushed:
            session.hear_losses()
        try:
            leadership = await super()._acquire(replace(terms, session=session))
        except BaseException:
            await session.give_up()
            raise
        leadership.own(session)
        return leadership

    async def locked(self) -> bool:
        """Ask the cluster whether anybody leads."""
        return await self.leader() is not None

    async def leader(self) -> Leader | None:
        """Return the present leader, None if nobody leads."""
        return (await self._read()).leader

    async def _read(self) -> ElectionInfo:
        operation = primitive_operations.get_election(self._names[0], is_stale=False)
        return await self._transport.call(operation)

    async def observe(self) -> AsyncGenerator[Leader | None]:
        """Yield the leader, None while nobody leads: at once, and again with every change."""
        name = self._names[0]
        while True:
            async with Watch(self._transport, name) as watch:
                # First the watch, then the look: nothing can change unseen in between.
                await watch.begin()
                last = await self.leader()
                yield last
                with contextlib.suppress(Compacted):
                    async for event in watch:
                        if (event.kind, event.name) != ("election", name):
                            continue
                        now = await self.leader()
                        if _said(now) != _said(last):
                            last = now
                            yield now


def _said(leader: Leader | None) -> tuple[int, str] | None:
    """Return what makes a leader another one for those who observe: who leads, and what it tells."""
    return None if leader is None else (leader.token, leader.value)
