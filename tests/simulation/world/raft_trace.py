"""Writes the Raft trace of a run, from the outside of our code: journal, wire, what is committed and applied.

The events are those that checks/raft_replay.py describes. They go to a listener as they happen, and to a file
if one is given: one event in JSON on each line.
"""

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TextIO

import msgspec

from cluster.assembly import Parts
from cluster.consensus import member_list
from cluster.consensus.engine import Engine
from cluster.consensus.member_list import Members
from cluster.storage.journal import Journal
from tests.simulation.checks.logs import LogEntry, digest

_CHANGES: Final = ("add", "clear", "remove_from", "remove_before", "set_vote", "record_commit")
"""The operations of a journal after which its log, vote or commit index may be others."""


class RaftTrace:
    """Tells `listener`, and writes to `file`."""

    def __init__(self, listener: Callable[[Sequence[Any]], None], file: TextIO | None = None) -> None:
        self._listener = listener
        self._file = file

    def add(self, *event: Any) -> None:
        """Add an event."""
        if self._file is not None:
            self._file.write(msgspec.json.encode(event, order="sorted").decode() + "\n")
        self._listener(event)

    # -- journals -------------------------------------------------------------------------------------------

    def recovered(self, node_id: str, parts: Parts) -> None:
        """Record what a node read from its disk, and follow its journal from now on."""
        journal, replica = parts.journal, parts.replica
        self.add(
            "recovers",
            node_id,
            journal.term,
            journal.voted_for,
            [[entry[1], *_facts(entry)] for entry in journal[:]],
            _voters(replica.membership._lists._base),
            replica.engine.applied_index,
            replica.engine.commit_index,
        )
        self._counted(node_id, parts)
        _Tap(node_id, journal, self)

    def stored(self, node_id: str, term: int, voted_for: str | None, synced_index: int) -> None:
        """Record a sync."""
        self.add("syncs", node_id, term, voted_for, synced_index)

    def restored(self, node_id: str, parts: Parts) -> None:
        """Record that a snapshot was taken over."""
        replica = parts.replica
        self.add("restores", node_id, replica.engine.applied_index, _voters(replica.membership._lists._base))
        self._counted(node_id, parts)

    def applied(self, node_id: str, index: int, term: int, entry: bytes) -> None:
        """Record that a committed entry was applied."""
        self.add("applies", node_id, index, term, digest(entry))

    def counted(self, node_id: str, parts: Parts) -> None:
        """Record who counts for a majority now, as the Raft library sees it."""
        self._counted(node_id, parts)

    def _counted(self, node_id: str, parts: Parts) -> None:
        self.add("counts", node_id, parts.replica.engine.library.voter_ids)

    # -- the wire -------------------------------------------------------------------------------------------

    def sent(self, node_id: str, target: str, told: dict[str, Any], entries: Iterable[LogEntry]) -> None:
        """Record a message that leaves."""
        self.add("sends", node_id, target, {**told, "entries": [(index, term) for _, index, term in entries]})

    def received(self, node_id: str, source: str, told: dict[str, Any]) -> None:
        """Record a message that arrives, before anything looks at it."""
        self.add("receives", node_id, source, told)


class _Tap:
    """Follows one journal: compares it before and after each operation."""

    def __init__(self, node_id: str, journal: Journal, trace: RaftTrace) -> None:
        self._node_id = node_id
        self._journal = journal
        self._trace = trace
        self._depth = 0
        self._commit = 0
        for name in _CHANGES:
            setattr(journal, name, functools.partial(self._do, name, getattr(journal, name)))

    def _do(self, name: str, work: Callable[..., Any], *args: Any) -> Any:
        journal = self._journal
        first, last = journal.first_index, journal.last_index
        vote = (journal.term, journal.voted_for)
        self._depth += 1
        try:
            result = work(*args)
        finally:
            self._depth -= 1
        if self._depth == 0:
            self._tell(name, args, (first, last), vote)
        return result

    def _tell(
        self, name: str, args: tuple[Any, ...], ends: tuple[int, int], vote: tuple[int, str | None]
    ) -> None:
        add, node_id, journal = self._trace.add, self._node_id, self._journal
        if name == "record_commit":
            if args[0] != self._commit:
                self._commit = args[0]
                add("commits", node_id, args[0])
        elif name == "set_vote":
            if vote != (journal.term, journal.voted_for):
                add("votes", node_id, journal.term, journal.voted_for)
        elif name == "add":
            # A sync that the journal does by itself in the middle of it comes first in the trace: harmless.
            add("appends", node_id, journal.last_index, *_facts(journal[-1]))
        elif ends != (0, 0) and not len(journal):
            add("clears", node_id)
        elif journal.last_index < ends[1]:
            add("cuts", node_id, journal.last_index + 1)
        elif journal.first_index > ends[0]:
            add("compacts", node_id, journal.first_index)


def _facts(entry: LogEntry) -> tuple[int, int, list[str] | None]:
    """Return what the trace says of an entry: term, digest, the voters if it is a member list."""
    command, _, term = entry
    encoded = Engine.members_in(command)
    return term, digest(command), None if encoded is None else _voters(member_list.decode(encoded))


def _voters(members: Members) -> list[str]:
    return sorted(node_id for node_id, member in members.nodes.items() if member.is_voter)
