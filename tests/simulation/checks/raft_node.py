"""What the replay of a Raft trace knows of one node, and of one entry."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple


class Entry(NamedTuple):
    """One place of a log. `voters` if it is a member list."""

    term: int
    digest: int
    voters: frozenset[str] | None


class NodeTold:
    """What the trace has told of one node."""

    def __init__(self) -> None:
        self.term = 0
        self.vote: str | None = None
        self.votes: dict[int, str] = {}
        self.stood: dict[int, tuple[int, int]] = {}
        """By term: place and term of the newest entry when the node stood for election."""
        self.asked: dict[str, tuple[int, int, int]] = {}
        """By candidate: its last request: term, and term and place of its newest entry."""
        self.log: dict[int, Entry] = {}
        self.first = self.last = 0
        self.base: frozenset[str] = frozenset()
        self.lists: list[int] = []
        """The places of the member lists in the log."""
        self.disk: tuple[int, str | None, int] = (0, None, 0)
        self.has_disk = False
        self.leads = False
        self.led: set[int] = set()
        """The terms that it led with this disk."""
        self.has_votes: set[str] = set()
        self.matched: dict[str, int] = {}
        self.commit = 0
        self.applied: int | None = None

    @property
    def voters(self) -> frozenset[str]:
        """Return the voters of the newest list in the log, or of the one below it."""
        return (self.log[self.lists[-1]].voters or frozenset()) if self.lists else self.base

    def told_votes(self) -> dict[int, str]:
        """Return the votes that others may know, by term: what was not synced was told to nobody."""
        synced = self.disk[0], self.disk[1] or ""
        return {term: given for term, given in self.votes.items() if (term, given) <= synced}

    def end(self) -> tuple[int, int]:
        """Return term and index of the newest entry."""
        return (self.log[self.last].term, self.last) if self.log else (0, 0)

    def put(self, index: int, entry: Entry) -> None:
        """Put an entry at the end of the log."""
        if not self.log:
            self.first = index
        self.log[index], self.last = entry, index
        if entry.voters is not None:
            self.lists.append(index)

    def cut(self, index: int) -> None:
        """Remove the entries from `index` on."""
        for each in range(index, self.last + 1):
            self.log.pop(each, None)
        self.last = index - 1
        self.lists = [each for each in self.lists if each < index]
        self.disk = (*self.disk[:2], min(self.disk[2], self.last))


def entry_of(facts: Sequence[Any]) -> Entry:
    """Return the entry of which an event says term, digest and voters."""
    term, digest, voters = facts
    return Entry(term, digest, None if voters is None else frozenset(voters))


def is_majority(those: Iterable[str], voters: Iterable[str]) -> bool:
    """Whether `those` are more than half of `voters`."""
    return 2 * len(set(those) & set(voters)) > len(set(voters))
