"""What must be true of what clients relied on, whatever went wrong. Nothing here knows how a client works.

Each checker returns sentences about what must not be; none when all is well.
"""

import collections
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import holdfast
from tests.process.history_checkers import BROKEN


@dataclass(frozen=True, slots=True)
class Belief:
    """From when to when a call relied on what it was granted: `permits` of the `limit` that there are.

    `asked_s` is from before it asked. All times are seconds of one monotonic clock.
    """

    name: str
    call: str
    token: int
    permits: int
    limit: int
    asked_s: float
    from_s: float
    until_s: float


def too_many_believers(beliefs: Iterable[Belief]) -> list[str]:
    """At no time is more relied on than there is."""
    sensible = [belief for belief in beliefs if belief.from_s < belief.until_s]
    moments = [(belief.from_s, 1, belief) for belief in sensible]
    moments += [(belief.until_s, -1, belief) for belief in sensible]
    found: list[str] = []
    inside: dict[str, list[Belief]] = collections.defaultdict(list)
    for _, change, belief in sorted(moments, key=lambda moment: moment[:2]):
        now = inside[belief.name]
        if change < 0:
            now.remove(belief)
            continue
        now.append(belief)
        if sum(other.permits for other in now) > belief.limit:
            found.append(f"{BROKEN} too many at a time: {now}")
    return found


def wrong_tokens(beliefs: Sequence[Belief]) -> list[str]:
    """No two calls have one token, and what is asked for when a grant is known gets a larger one."""
    counts = collections.Counter(belief.token for belief in beliefs)
    found = [f"{BROKEN} one token for several: {belief}" for belief in beliefs if counts[belief.token] > 1]
    known = collections.deque(sorted(beliefs, key=lambda belief: belief.from_s))
    highest = 0
    for belief in sorted(beliefs, key=lambda belief: belief.asked_s):
        while known and known[0].from_s < belief.asked_s:
            highest = max(highest, known.popleft().token)
        if belief.token <= highest:
            found.append(f"{BROKEN} asked for when token {highest} was known: {belief}")
    return found


def wrong_grants(
    events: Iterable[holdfast.Event], tokens: Mapping[str, int], prompt: Iterable[str]
) -> list[str]:
    """The audit agrees with what callers were told; each call is the owner of what it was granted.

    `events` are those of one name after the other, each the oldest first; `tokens` are what calls were given.
    A call has one grant at a time, however often it was asked. Those that were told for sure what they have,
    or have not, before any lease can have ended (`prompt`), have given back whatever else they were granted.
    """
    found: list[str] = []
    alive: dict[str, int] = {}
    ends: dict[str, dict[int, str]] = collections.defaultdict(dict)
    for event in events:
        if event.event == "granted":
            if event.owner in alive:
                found.append(f"{BROKEN} {event.owner} was granted {event.token} beside {alive[event.owner]}")
            alive[event.owner] = event.token
            ends[event.owner][event.token] = ""
        elif alive.get(event.owner) == event.token:
            ends[event.owner][alive.pop(event.owner)] = event.event
    for call, token in tokens.items():
        if token not in ends[call]:
            found.append(f"{BROKEN} {call} was told of token {token}, which it was not granted")
    for call in prompt:
        untold = {token: end for token, end in ends[call].items() if token != tokens.get(call)}
        if left := [token for token, end in untold.items() if end != "released"]:
            found.append(f"{BROKEN} {call} was not told of {left}, and has not given it back")
    return found
