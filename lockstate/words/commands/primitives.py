"""The commands of semaphores, rate limits and fences that ask for no hold."""

from lockstate.words.commands.base import WithRequestId
from lockstate.words.ids import NO_ATTEMPT, AttemptId
from lockstate.words.kinds import Algorithm


class ResizeSemaphore(WithRequestId, frozen=True, tag=13):
    """Give a semaphore another limit. Nobody loses permits: a smaller limit is reached as they return."""

    name: str
    limit: int
    request_id: str = ""
    reason: str = ""


class TakeRate(WithRequestId, frozen=True, tag=16):
    """Take `cost` from a rate limit of `limit` per `window_ms`, now or within the next `wait_ms`.

    What its namespace sets may be left out: 0 and None stand for that. An algorithm that nobody says is that
    of fixed windows.

    `attempt_id` is as for an acquire: a place whose moment is to come is given back when its last attempt is
    cancelled. One without an attempt id stays.
    """

    name: str
    limit: int = 0
    window_ms: int = 0
    algorithm: Algorithm | None = None
    cost: int = 1
    wait_ms: int = 0
    request_id: str = ""
    attempt_id: AttemptId = NO_ATTEMPT


class AdvanceFence(WithRequestId, frozen=True, tag=17):
    """Raise the highest token that a resource has seen; refused if `token` is below it."""

    name: str
    token: int
    request_id: str = ""
