"""What the audit tells, as states: who had what behind each record, and what no cluster may have done.

Knows the rules of docs/semantics.md for locks, subtrees, permits and leaders, and no client.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from lab.chaos.checkers.holds import BESIDE, conflict

FIELDS: Final = (
    "number", "revision", "event", "kind", "name", "mode", "scope", "permits", "owner", "token", "reason",
)  # fmt: skip
"""The fields of a record that are kept."""
BEGINS: Final = ("granted", "elected", "converted")
ENDS: Final = ("released", "resigned", "expired", "forced", "handed-over")

_BESIDE_ANY: Final = sorted({mode for modes in BESIDE for mode in modes})
"""The modes that any other one stands beside."""


class Part(NamedTuple):
    """One thing of a hold, which may have several."""

    kind: str
    name: str
    mode: str | None = None
    scope: str | None = None
    permits: int | None = None

    def as_lock(self) -> dict[str, str | None]:
        """Return what asks for this lock."""
        return {"name": self.name, "mode": self.mode, "scope": self.scope}

    def covers(self, name: str) -> bool:
        """Whether this lock is also one of another name."""
        return self.name == name or (self.scope == "subtree" and name.startswith(f"{self.name}/"))

    def excludes(self, other: "Part") -> bool:
        """Whether two holds may not have these at a time. Permits are counted elsewhere."""
        if self.kind != other.kind or self.kind == "semaphore":
            return False
        if self.kind == "election":
            return self.name == other.name
        is_common = self.covers(other.name) or other.covers(self.name)
        return is_common and conflict(self.mode or "", other.mode or "")


class Record(NamedTuple):
    """One line of the audit: see FIELDS."""

    number: int
    revision: int
    event: str
    kind: str
    name: str
    mode: str | None
    scope: str | None
    permits: int | None
    owner: str
    token: int
    reason: str

    @property
    def part(self) -> Part:
        """What it tells of."""
        return Part(self.kind, self.name, self.mode, self.scope, self.permits)


class Held(NamedTuple):
    """A part of a hold at one moment. Each owner has one hold."""

    owner: str
    token: int
    part: Part


class State(NamedTuple):
    """All that was held behind a record."""

    number: int
    held: frozenset[Held]


class Replay:
    """Plays records again, one step of the cluster at a time; `limits` are those of semaphores by name."""

    def __init__(self, records: Iterable[Record], limits: Mapping[str, int]) -> None:
        self.states = [State(0, frozenset())]
        """In order of their numbers. What changed in one step changed at once."""
        self.found: list[tuple[Record, str]] = []
        """What must not be, and the record that tells it."""
        self._limits = limits
        self._highest = 0
        for step in _steps(records):
            self._play(step)

    def _play(self, step: list[Record]) -> None:
        """Take what happened to one hold at one time."""
        held = {(one.owner, one.part.kind, one.part.name): one for one in self.states[-1].held}
        before = [one for one in held.values() if one.owner == step[0].owner]
        for record in step:
            if record.event in ENDS:
                known = held.pop((record.owner, record.kind, record.name), None)
                if known is None or (known.part, known.token) != (record.part, record.token):
                    self.found.append((record, "which nobody had"))
            elif record.event in BEGINS:
                place = (record.owner, record.kind, record.name)
                held[place] = Held(record.owner, record.token, record.part)
        now = frozenset(held.values())
        own = [one for one in now if one.owner == step[0].owner]
        self._look_at_tokens(step, before, own)
        self.found += [(step[-1], problem) for problem in self._conflicts(own, now)]
        self.states.append(State(step[-1].number, now))

    def _look_at_tokens(self, step: list[Record], before: list[Held], own: list[Held]) -> None:
        """Object unless a hold has one token, drawn when it got something that others may have had."""
        tokens = {one.token for one in own}
        if len(tokens) > 1:
            self.found.append((step[-1], f"in a hold with the tokens {sorted(tokens)}"))
        drawn = tokens - {one.token for one in before}
        if any(token <= self._highest for token in drawn):
            self.found.append((step[-1], f"with a token that is not above {self._highest}"))
        if step[-1].event in BEGINS and not drawn and self._must_draw(before, own):
            self.found.append((step[-1], "and should have drawn a token"))
        self._highest = max([self._highest, *drawn])

    def _must_draw(self, before: list[Held], own: list[Held]) -> bool:
        """Whether a hold got more, or a mode that excludes what its mode before did not."""
        modes = {one.part.name: one.part.mode for one in before}
        changes = [(modes[one.part.name], one.part.mode) for one in own if one.part.name in modes]
        return len(own) > len(before) or any(is_up(*change) for change in changes)

    def _conflicts(self, own: list[Held], now: frozenset[Held]) -> Iterator[str]:
        for one in own:
            for other in now:
                if other.owner != one.owner and one.part.excludes(other.part):
                    yield f"beside {other.part.name} of {other.owner}"
            if one.part.kind == "semaphore":
                used = sum([each.part.permits or 0 for each in now if each.part.name == one.part.name])
                if used > self._limits.get(one.part.name, used):
                    yield f"with {used} permits out"


def _steps(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield the records of each step: what happened to one hold at once.

    One entry may grant a hold and end it: somebody may have seen it between the two.
    """
    step: list[Record] = []
    for record in records:
        if step and not _is_of_step(step, record):
            yield step
            step = []
        step.append(record)
    if step:
        yield step


def _is_of_step(step: list[Record], record: Record) -> bool:
    """Whether a record belongs to the step of those before it: no name begins or ends twice in one."""
    last = step[-1]
    is_alike = (last.revision, last.owner, last.event in ENDS) == (
        record.revision,
        record.owner,
        record.event in ENDS,
    )
    return is_alike and (record.kind, record.name) not in {(one.kind, one.name) for one in step}


def is_up(before: str | None, after: str | None) -> bool:
    """Whether a change of mode draws a token: it excludes what it did not, and not only for a later write."""
    excludes_more = [
        mode for mode in _BESIDE_ANY if not conflict(before or "", mode) and conflict(after or "", mode)
    ]
    return bool(excludes_more) and (before, after) != ("shared", "update")
