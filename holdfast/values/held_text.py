"""Who has what was asked for, in a sentence: of the problem document of a lock or permits that are held."""

from collections.abc import Mapping, Sequence

import msgspec

HOLDERS_NAMED = 3
"""Holders that are named in a sentence; of more only the number is told."""


class _Holder(msgspec.Struct):
    owner: str = ""
    name: str = ""
    token: int = 0
    expires_in_ms: int | None = None
    no_deadline: bool = False


class _Facts(msgspec.Struct):
    """What we say, of what a problem document says."""

    holders: tuple[_Holder, ...] = ()
    waited_ms: int = 0
    position: int = 0


def held_text(detail: str, problem: Mapping[str, object]) -> str:
    """Return who has it, for how long, and where a wait for it ended; `detail` if nobody is named."""
    try:
        facts = msgspec.convert(problem, _Facts)
    except msgspec.ValidationError:
        facts = _Facts()
    text = _held_by(facts.holders) if facts.holders else detail
    waited = [f"waited {spoken_s(facts.waited_ms)}"] if facts.waited_ms else []
    waited += [f"{_ordinal(facts.position)} in the queue"] if facts.position else []
    return f"{text}; {', '.join(waited)}" if waited else text


def _held_by(holders: Sequence[_Holder]) -> str:
    named = [_named(holder) for holder in holders[:HOLDERS_NAMED]]
    more = [f"{len(holders) - HOLDERS_NAMED} more"] if len(holders) > HOLDERS_NAMED else []
    return f"{holders[0].name!r} is held by {', '.join(named + more)}"


def _named(holder: _Holder) -> str:
    known = [f"token {holder.token}"] if holder.token else []
    if holder.no_deadline:
        known.append("without a deadline")
    elif holder.expires_in_ms is not None:
        known.append(f"{spoken_s(holder.expires_in_ms)} of its lease left")
    return f"{holder.owner} ({', '.join(known)})" if known else holder.owner


def spoken_s(length_ms: int) -> str:
    """Return a length of time in seconds, as precise as people want it."""
    seconds = length_ms / 1000
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f}".removesuffix(".0") + " s"  # noqa: PLR2004


def _ordinal(number: int) -> str:
    teens = range(11, 14)
    suffix = "th" if number % 100 in teens else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
