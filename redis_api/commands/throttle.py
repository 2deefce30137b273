"""CL.THROTTLE of redis-cell: a rate limit of the service, by the generic cell rate algorithm.

redis-cell is told a burst and a rate, the service how much there may be in a window: a window that is so long
that a burst flows off in it is the same. It is rounded up to whole milliseconds, as are the seconds that are
answered to whole seconds: whoever waits for them does not come too early.
"""

from collections.abc import Sequence
from typing import Final

from holdfast.token_lines import Right
from lockapi import rights_needed
from lockapi.problems import refusal
from lockapi.requests.primitives import even_rate
from lockstate.words.refusals import Refused
from lockstate.words.results import RateTaken
from redis_api.commands import holds
from redis_api.protocol.arguments import integer
from redis_api.protocol.errors import CommandRefused, wrong_arity
from redis_api.protocol.resp import Reply
from redis_api.shared.client import Client

_ARGS_COUNT_MAX: Final = 5


async def throttle(client: Client, args: list[bytes]) -> Reply:
    """CL.THROTTLE key max_burst count period [quantity].

    Whether it is limited, the limit, what remains, and two times in seconds: after which to ask again, -1 if
    it is not limited or never will fit, and until the limit is whole.
    """
    if len(args) > _ARGS_COUNT_MAX:
        raise wrong_arity("cl.throttle")
    key, *numbers = args
    limit, window_ms, quantity = _asked([integer(number) for number in numbers])
    name = holds.name_of(client, key)
    is_look = not 1 <= quantity <= limit
    command = even_rate(name, limit, window_ms, 1 if is_look else quantity)
    if not is_look:
        done = await client.gateway.submit(command, RateTaken, client.timeout_s)
        return _shown(done.result)
    rights_needed.check_name(client.gateway.rights, Right.ACQUIRE, name)
    found = await client.gateway.read(lambda machine: machine.peek_rate(command), client.timeout_s)
    if isinstance(found, Refused):
        raise refusal(found)
    return [int(quantity > 0), found.limit, found.remaining, -1, _seconds(found.reset_in_ms)]


def _asked(numbers: Sequence[int]) -> tuple[int, int, int]:
    """Return the limit, its window and what is taken. Raises CommandRefused."""
    max_burst, count, period_s, *rest = numbers
    quantity = rest[0] if rest else 1
    if max_burst < 0 or quantity < 0:
        raise CommandRefused("max_burst and quantity must not be negative")
    if count < 1 or period_s < 1:
        raise CommandRefused("count and period must be positive")
    limit = max_burst + 1
    return limit, -(-limit * period_s * 1000 // count), quantity


def _shown(taken: RateTaken) -> Reply:
    retry_s = -1 if taken.allowed else _seconds(taken.retry_after_ms)
    return [int(not taken.allowed), taken.limit, taken.remaining, retry_s, _seconds(taken.reset_in_ms)]


def _seconds(ms: int) -> int:
    return -(-ms // 1000)
