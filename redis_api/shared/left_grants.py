"""Attempts to take a lock whose connection ended before the answer was written: nobody knows that it holds.

Clients send a command again when an answer is lost. The first one may have taken the lock: then the second
would be refused because of it, its client would believe that it has nothing, and nobody would have the lock
until its time is over. So what was left is given to whoever asks for the same name with the same value on
this node within a moment, which can only be the same client if the value is long enough to be nobody else's;
and after that moment it is given back. No answer was written, so nobody else can believe to hold it.

Only the node that was asked knows whether it wrote an answer. One that was killed cannot tell, and others
must not guess: what it granted last may stay until its time is over.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from cluster.errors import ClusterError
from lockapi.problems import ProblemError
from lockstate.words.ids import HoldId

VALUE_BYTES_MIN: Final = 16
"""Bytes of a value that may be taken for a mark of one client alone."""
ADOPTION_S: Final = 1.0
"""Seconds for which what was left waits for its client: the first retries come within it."""
RETRY_S: Final = 1.0
"""Seconds between two tries to give something back."""
TRIES_COUNT_MAX: Final = 60
"""Tries to give something back: a minute and more, after which most leases have ended by themselves."""
COUNT_MAX: Final = 10_000
"""Attempts that may be taken over at one time; further ones are given back when they are left. As many are
given back at one time."""

logger = logging.getLogger("redis_api")


class Key(NamedTuple):
    """By what an attempt is known."""

    principal: str
    name: str
    value: str
    is_endless: bool
    """Whether it asks for a hold without a deadline: who asks for one is not to get a lease for it."""


class Attempt:
    """One attempt to take a hold."""

    __slots__ = (
        "_give_back", "_grants", "_is_granted", "_told", "hold_id", "is_left", "is_taken", "key", "when_left",
    )  # fmt: skip

    def __init__(self, grants: "LeftGrants", key: Key, hold_id: HoldId, give_back: "GiveBack") -> None:
        self.key, self.hold_id = key, hold_id
        self._grants, self._give_back = grants, give_back
        self._is_granted: bool | None = None
        """How it ended, None as long as it has not."""
        self._told: asyncio.Future[bool] | None = None
        """The same for who waits for it: hardly anybody does."""
        self.is_left = self.is_taken = False
        self.when_left: Callable[[], object] | None = None
        """Called when the connection ends before there is an outcome."""

    def settle(self, *, is_granted: bool) -> None:
        """Say how it ended."""
        assert self._is_granted is None, "an attempt ends once"
        self._is_granted = is_granted
        if self._told is not None:
            self._told.set_result(is_granted)

    def answered(self) -> None:
        """Record that the answer was written."""
        self._grants.forget(self)

    def leave_early(self) -> None:
        """Record that the connection ended before there is an outcome: `leave` comes behind it."""
        self.is_left = True
        if self.when_left is not None:
            self.when_left()

    def leave(self) -> None:
        """Record that the connection ended before the answer, and find the hold another client or an end."""
        if self._is_granted is None:
            self.settle(is_granted=True)  # its command broke before it knew: perhaps there is a hold
        self.is_left = True
        if self.is_taken:
            return
        if not self._is_granted:
            self._grants.forget(self)
        elif self._grants.knows(self):
            asyncio.get_running_loop().call_later(ADOPTION_S, self._expire)
        else:
            self.give_back()

    def _expire(self) -> None:
        """Give it back, unless somebody has taken it over; also if another attempt has its place by now."""
        if not self.is_taken:
            self._grants.forget(self)
            self.give_back()

    def give_back(self) -> None:
        """Release the hold, whether it was granted or not."""
        self._grants.run(self._give_back, self.key.name)

    async def is_granted(self) -> bool:
        """Wait for the outcome, and return whether there is a hold."""
        if self._is_granted is not None:
            return self._is_granted
        self._told = self._told or asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._told)


GiveBack = Callable[[], Awaitable[object]]
"""Releases a hold. Raises ProblemError, ClusterError."""


class LeftGrants:
    """The attempts of one node."""

    def __init__(self) -> None:
        self._attempts: dict[Key, Attempt] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.adopted_count = self.given_back_count = 0

    def begin(self, key: Key, value: bytes, hold_id: HoldId, give_back: GiveBack) -> Attempt:
        """Follow an attempt that begins."""
        attempt = Attempt(self, key, hold_id, give_back)
        if len(value) >= VALUE_BYTES_MIN and len(self._attempts) < COUNT_MAX:
            self._attempts[key] = attempt
        return attempt

    def has_left(self, key: Key) -> bool:
        """Whether there is an attempt of which nobody was told."""
        attempt = self._attempts.get(key)
        return attempt is not None and attempt.is_left

    def take(self, key: Key) -> Attempt | None:
        """Return an attempt of which nobody was told, and let it be the caller's from now on."""
        attempt = self._attempts.get(key)
        if attempt is None or not attempt.is_left:
            return None
        del self._attempts[key]
        attempt.is_taken = True
        return attempt

    def knows(self, attempt: Attempt) -> bool:
        """Whether an attempt may still be taken over."""
        return self._attempts.get(attempt.key) is attempt

    def forget(self, attempt: Attempt) -> None:
        """Let an attempt be taken over no more."""
        if self.knows(attempt):
            del self._attempts[attempt.key]

    def run(self, give_back: GiveBack, name: str) -> None:
        """Give something back in the background.

        If too much of that is under way, what is left ends with its lease: while there is no leader, clients
        make more of it each second.
        """
        if len(self._tasks) >= COUNT_MAX:
            logger.warning("event=redis-not-given-back name=%r", name)
            return
        self.given_back_count += 1
        task = asyncio.ensure_future(_given_back(give_back, name))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _given_back(give_back: GiveBack, name: str) -> None:
    """Release a hold of which nobody knows; try again while the cluster has no leader."""
    for _ in range(TRIES_COUNT_MAX):
        try:
            await give_back()
        except ProblemError:
            return  # it has ended, or was never granted
        except ClusterError as error:
            if error.code == "shutting-down":
                break
            await asyncio.sleep(RETRY_S)
        else:
            return
    logger.warning("event=redis-not-given-back name=%r", name)
