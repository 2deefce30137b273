"""The losses of a session, or of a hold without one, as the cluster tells them: as they happen."""

import asyncio
import logging
import random
import weakref
from collections.abc import Callable
from typing import Any, Final, Protocol

from holdfast.client.watch import SESSION_ENDS, Watch
from holdfast.values.answers import Event
from holdfast.values.clock import Clock
from holdfast.values.errors import Compacted, LockError, SessionExpired, refusal
from holdfast.values.lease import LEASE_EXPIRED
from holdfast.values.words import Reason

_log = logging.getLogger("holdfast")

_LOSSES: Final = frozenset({"expired", "forced", "handed-over"})
"""The events with which a hold ends that this client has not released, unless it hands it over itself."""
PATIENCE_S: Final = 1.0
"""Seconds for which nodes are asked in one go: meanwhile renewals tell."""
AGAIN_S: Final = 5.0
"""Seconds before they are asked again: none tells, or events are gone. It is twice as long each time."""
AGAIN_S_MAX: Final = 60.0


class Loser(Protocol):
    """A session or a hold, as far as its losses are concerned."""

    clock: Clock
    over: Reason
    """The reason with which it ends when the cluster says that it is over."""

    @property
    def has_ended(self) -> bool:
        """Whether it is over, as far as we know."""
        ...

    def watch(self, *, since: str | int | None = None) -> Watch:
        """Return an iterator of what happens to it behind `since`, or from now on."""
        ...

    async def look(self) -> None:
        """End what it holds no longer. Raises LockError."""
        ...

    def end(self, reason: Reason, cause: BaseException | None = None) -> None:
        """Make it invalid for good."""
        ...

    def end_hold(self, token: int, cause: LockError) -> None:
        """End what it holds with this token, if it does, or will be told that it does."""
        ...

    def when_ended(self, hear: Callable[[Any], object]) -> None:
        """Call `hear` with it once it is over, whatever the reason."""
        ...


def begin(loser: Loser, began: int | None) -> None:
    """Hear of its losses from now on, in a task of its own, until it is over. See hear_losses."""
    task = asyncio.create_task(hear_losses(weakref.ref(loser), began))
    loser.when_ended(lambda _: task.cancel())


async def hear_losses(this: "weakref.ref[Loser]", began: int | None) -> None:
    """End what the cluster says is over, as long as the loser lives. Where it cannot say so, nothing fails.

    Nothing here keeps the loser from being collected: when it is, the cluster ends it soon, and this as well.

    A node may refuse to tell, have no room for more that listen, or be too old to know how; another one, or
    the same one later, may do it.

    It begins at the revision at which the loser `began`, and goes on where it was. When events are gone, or
    that revision is not known, it begins now, and with a look at what the loser still holds.
    """
    since: str | int | None = began
    again_s, tries = AGAIN_S, 0
    while (loser := this()) is not None and not loser.has_ended:
        watch, clock = loser.watch(since=since), loser.clock
        del loser
        watch.patience_s = PATIENCE_S
        watch.skip(tries)
        try:
            async with watch:
                if since is None:
                    await watch.begin()
                    await _look(this)
                async for event in watch:
                    _tell(this(), event)
            _end(this())  # and with that the loop
        except SessionExpired as error:
            _end(this(), error)
        except Compacted:
            since = None
        except LockError as error:
            _log.debug("losses are not pushed for now: %s", error)
            since = watch.last_id or since
        tries += 1
        if watch.last_id:  # a node has told
            again_s, tries = AGAIN_S, 0
        await clock.sleep(again_s * (1 - random.random() / 2))  # noqa: S311 - spreads load
        again_s = min(again_s * 2, AGAIN_S_MAX)


async def _look(this: "weakref.ref[Loser]") -> None:
    loser = this()
    if loser is not None:
        await loser.look()


def _end(loser: Loser | None, error: SessionExpired | None = None) -> None:
    if loser is not None:
        loser.end(loser.over, error)


def _tell(loser: Loser | None, event: Event) -> None:
    if loser is None:
        return
    by, why = event.by and f" by {event.by}", event.reason and f": {event.reason}"
    how = f"{event.event}{by}{why}"
    if event.event in SESSION_ENDS:
        loser.end(loser.over, refusal(loser.over, how, {}))
    elif event.event in _LOSSES:
        loser.end_hold(event.token, refusal(LEASE_EXPIRED, how, {}))
