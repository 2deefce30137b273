"""Principals: to whom sessions and holds belong, how much each has, and how much each may have.

A principal is somebody whom a node knows by a token or a certificate. Its name comes with the command
(`OnBehalf`) and stays with what that command makes: a session, or a hold or a wait without one. What lives in
a session belongs to whom the session belongs to. Nodes that were told of no principals send no name, and what
they make belongs to nobody: anybody who knows its id may use it.

Cells and fences belong to nobody: who may use them depends on their names. But each counts for a principal,
if it is known who made it.

A quota bounds what one principal has at a time. It is part of the state, so all nodes together keep to it.
"""

from collections.abc import Collection, Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from lockstate.tables import marks
from lockstate.tables.ledger import Ledger
from lockstate.tables.records import Claimant, Hold, Session, Ticket, names_of
from lockstate.words import limits
from lockstate.words.refusals import QuotaExceeded, Reason, Refused
from lockstate.words.settings import Quota

NOBODY: Final = ""
"""In the place of a principal: of what nodes without principals have made."""
EVERYBODY: Final = "*"
"""In the place of a principal: the quota of each one that has none of its own."""


Counted: TypeAlias = Literal["sessions", "holds", "waits", "cells", "fences", "rate_limits", "bytes"]
"""What there are quotas of."""


class Usage(msgspec.Struct, gc=False):
    """How much one principal has: `holds` are the names that it holds, waits for, or has left delayed.

    `waits` are for holds, for changes of holds, and for the places of rate limits whose moments are to come.
    `rate_limits` are those that it began and that are not whole.

    `bytes` are those of all these names, of the keys and values of its cells, of the notes and values of its
    holds and of what it waits for, and of the labels of its sessions. A wait for a change of a hold has no
    note and no value of its own.
    """

    sessions: int = 0
    holds: int = 0
    waits: int = 0
    cells: int = 0
    fences: int = 0
    rate_limits: int = 0
    bytes: int = 0


NOTHING_USED: Final = Usage()


class Principals:
    """Whose everything is. `asking` is the principal of the command that is being applied."""

    def __init__(self, ledger: Ledger) -> None:
        self.asking = NOBODY
        self.rows: dict[str, str] = {}
        """Principals by the ids of their sessions, and of their holds and tickets without one. Others only
        look at it: with every command, whether there is anything."""
        self.cells: dict[bytes, str] = {}
        """For whom each cell counts, by its key, if it counts for anybody."""
        self.fences: dict[str, str] = {}
        """For whom each fence counts, by its resource, if it counts for anybody."""
        self.quotas: dict[str, Quota] = {}
        """What each may have, by its name."""
        self.usage: dict[str, Usage] = {}
        """What each has, by its name, of those that have anything. It is derived."""
        self._ledger = ledger

    @property
    def rows_count(self) -> int:
        """How many rows say whose something is, or for whom it counts."""
        return len(self.rows) + len(self.cells) + len(self.fences)

    # -- whose it is ----------------------------------------------------------------------------------------

    def of(self, record: Hold | Ticket) -> str:
        """Return the principal of a hold or a ticket."""
        return self.rows.get(lease_id_of(record), NOBODY)

    def is_foreign(self, lease_id: str) -> bool:
        """Whether an id is of something that belongs to another principal than the one that asks."""
        return bool(self.asking) and self.rows.get(lease_id, self.asking) != self.asking

    def is_own(self, lease_id: str) -> bool:
        """Whether an id is of something that belongs to the principal that asks; of anything if none does."""
        return not self.asking or self.rows.get(lease_id) == self.asking

    def put(self, lease_id: str, principal: str) -> None:
        """Say whose a session is that is about to be there, or a hold or a ticket without one."""
        self.rows[lease_id] = principal
        self._ledger.settled_sum += marks.of_content((lease_id, principal))

    def drop(self, lease_id: str) -> None:
        """Forget whose something was, because it is gone."""
        principal = self.rows.pop(lease_id, None)
        if principal is not None:
            self._ledger.settled_sum -= marks.of_content((lease_id, principal))

    # -- how much -------------------------------------------------------------------------------------------

    def count_session(self, session: Session, by: int) -> None:
        """Count a session that comes (1) or goes (-1)."""
        principal = self.rows.get(session.session_id)
        if principal is not None:
            usage = self._usage_of(principal)
            usage.sessions += by
            usage.bytes += by * bytes_of_labels(session.labels)
            self._forget_if_nothing(principal, usage)

    def count_hold(self, hold: Hold, by: int) -> None:
        """Count a hold that comes (1) or goes (-1)."""
        principal = self.rows.get(lease_id_of(hold))
        if principal is not None:
            usage = self._usage_of(principal)
            names = names_of(hold)
            usage.holds += by * len(names)
            usage.bytes += by * (bytes_of_names(names) + bytes_said(hold))
            self._forget_if_nothing(principal, usage)

    def count_plain(self, lease_id: str, name: str, by: int) -> str:
        """Do what `count_hold` does for a hold of one ASCII name that says nothing.

        Return whose it is, "" for nobody.
        """
        principal = self.rows.get(lease_id, NOBODY)
        if principal:
            usage = self._usage_of(principal)
            usage.holds += by
            usage.bytes += by * len(name)
            if not usage.holds:
                self._forget_if_nothing(principal, usage)
        return principal

    def count_ticket(self, ticket: Ticket, by: int) -> None:
        """Count a wait that comes (1) or goes (-1): the names that it is for count as held already."""
        principal = self.rows.get(lease_id_of(ticket))
        if principal is not None:
            usage = self._usage_of(principal)
            usage.waits += by
            if not ticket.is_conversion:
                names = names_of(ticket)
                usage.holds += by * len(names)
                usage.bytes += by * (bytes_of_names(names) + (0 if ticket.changes else bytes_said(ticket)))
            self._forget_if_nothing(principal, usage)

    def count_texts(self, hold: Hold, note: str, value: str) -> None:
        """Count that a hold is about to have another note or value."""
        principal = self.rows.get(lease_id_of(hold))
        if principal is not None:
            growth = bytes_of_texts(note, value) - bytes_said(hold)
            self._usage_of(principal).bytes += growth

    def share_of_write(self, key: bytes, had: int | None, has: int) -> tuple[int, int]:
        """Return how many cells and bytes more count for who asks, if it writes a cell.

        The cell will have `has` bytes, and had `had` before, None if it was not there. It counts for who made
        it, until somebody else makes it larger. So what is written is on nobody else's account, and who only
        counts something up in a cell of others needs no room.
        """
        is_own = self.cells.get(key, NOBODY) == self.asking
        if had is None or (has > had and not is_own):
            return 1, has
        return 0, has - had if is_own else 0

    def count_write(self, key: bytes, had: int | None, has: int) -> None:
        """Count a cell that is about to be written: see `share_of_write`."""
        if self.share_of_write(key, had, has)[0]:
            self.drop_cell(key, had or 0)
            if self.asking:
                self.put_cell(key, self.asking, has)
        elif had is not None and (principal := self.cells.get(key)) is not None:
            self.usage[principal].bytes += has - had

    def put_cell(self, key: bytes, principal: str, size_bytes: int) -> None:
        """Let a cell of this size count for a principal from now on."""
        self.cells[key] = principal
        self._ledger.settled_sum += marks.of_content((key, principal))
        usage = self._usage_of(principal)
        usage.cells += 1
        usage.bytes += size_bytes

    def drop_cell(self, key: bytes, size_bytes: int) -> None:
        """Let a cell of this size, which may be gone, count for nobody any more."""
        principal = self.cells.pop(key, None)
        if principal is not None:
            self._ledger.settled_sum -= marks.of_content((key, principal))
            usage = self.usage[principal]
            usage.cells -= 1
            usage.bytes -= size_bytes
            self._forget_if_nothing(principal, usage)

    def put_fence(self, resource: str, principal: str) -> None:
        """Let a fence count for a principal."""
        self.fences[resource] = principal
        self._ledger.settled_sum += _mark_of_fence(resource, principal)
        self.count(principal, "fences", resource, 1)

    def drop_fence(self, resource: str) -> None:
        """Let a fence that is gone count for nobody."""
        principal = self.fences.pop(resource, None)
        if principal is not None:
            self._ledger.settled_sum -= _mark_of_fence(resource, principal)
            self.count(principal, "fences", resource, -1)

    def count(self, principal: str, what: Counted, name: str, by: int) -> None:
        """Count that a principal has one more (1) or less (-1) of what has this name; nobody has anything."""
        if principal:
            usage = self._usage_of(principal)
            setattr(usage, what, getattr(usage, what) + by)
            usage.bytes += by * bytes_of_one(what, name)
            self._forget_if_nothing(principal, usage)

    def _usage_of(self, principal: str) -> Usage:
        """Return what a principal has, to be changed."""
        usage = self.usage.get(principal)
        if usage is None:
            usage = self.usage[principal] = Usage()
        return usage

    def _forget_if_nothing(self, principal: str, usage: Usage) -> None:
        if usage == NOTHING_USED:
            del self.usage[principal]

    def used_by(self, principal: str) -> Usage:
        """Return how much a principal has."""
        return self.usage.get(principal, NOTHING_USED)

    # -- how much may be ------------------------------------------------------------------------------------

    def quota_of(self, principal: str) -> Quota | None:
        """Return what a principal may have: its own quota or everybody's; None if there is neither."""
        quota = self.quotas.get(principal)
        return self.quotas.get(EVERYBODY) if quota is None else quota

    def set_quota(self, principal: str, quota: Quota | None) -> None:
        """Give a principal another quota; with None it has none of its own any more."""
        known = self.quotas.pop(principal, None)
        if known is not None:
            self._ledger.settled_sum -= marks.of_content((principal, known))
        if quota is not None:
            self.quotas[principal] = quota
            self._ledger.settled_sum += marks.of_content((principal, quota))

    def check(self, what: Counted, more: int = 1) -> Refused | None:
        """Refuse so many more of these to who asks, if its quota has no room for them."""
        return self.check_of(self.asking, what, more)

    def check_of(self, principal: str, what: Counted, more: int = 1) -> Refused | None:
        """Refuse so many more of these to a principal: who waited for them need not be the one that asks."""
        quota = self.quota_of(principal) if self.quotas and principal else None
        limit: int | None = None if quota is None else getattr(quota, what)
        used: int = getattr(self.used_by(principal), what)
        if limit is None or more <= 0 or used + more <= limit:
            return None
        detail = f"the quota of {limit} {what} is used up"
        if used < limit:
            detail = f"the quota of {limit} {what} has room for {limit - used} more, not for {more}"
        facts = {"limit": limit, "used": used}
        return QuotaExceeded(
            Reason.QUOTA_EXCEEDED, detail, retry_after_ms=limits.RETRY_MS, facts=facts, quota=what
        )

    def check_named(
        self, what: Counted, names: Collection[str], said_bytes: int = 0, *, of: str | None = None
    ) -> Refused | None:
        """Refuse one more of these for each name, if the quota of who asks, or `of` another, has no room.

        Beside the names there are `said_bytes`, of a note and a value.
        """
        if not self.quotas:
            return None
        principal = self.asking if of is None else of
        size_bytes = bytes_of_names(names) + said_bytes
        return self.check_of(principal, what, len(names)) or self.check_of(principal, "bytes", size_bytes)

    def check_texts(self, hold: Hold, note: str, value: str) -> Refused | None:
        """Refuse another note or value of a hold to who asks, if its quota has no room for it."""
        if not self.quotas:
            return None
        return self.check("bytes", bytes_of_texts(note, value) - bytes_said(hold))

    # -- snapshots ------------------------------------------------------------------------------------------

    def dump(self) -> list[tuple[str, str]]:
        """Return whose everything is, in order of the ids, for a snapshot."""
        return sorted(self.rows.items())

    def load(self, rows: list[tuple[str, str]]) -> None:
        """Add a part of what `dump` returned. The records are counted when they follow."""
        names: dict[str, str] = {}
        for lease_id, principal in rows:
            self.put(lease_id, names.setdefault(principal, principal))

    def dump_quotas(self) -> list[tuple[str, Quota]]:
        """Return all quotas in order of the names, for a snapshot."""
        return sorted(self.quotas.items(), key=lambda item: item[0])

    def load_quotas(self, rows: list[tuple[str, Quota]]) -> None:
        """Add a part of what `dump_quotas` returned."""
        for principal, quota in rows:
            self.set_quota(principal, quota)

    def recomputed_sum(self) -> int:
        """Return the sum of the marks of all of this (see `marks`)."""
        tables = (self.rows, self.cells, self.quotas)
        fences = sum([_mark_of_fence(*item) for item in self.fences.items()])
        return fences + sum([marks.of_content(item) for table in tables for item in table.items()])


def lease_id_of(record: Hold | Ticket) -> str:
    """Return the id under which stands whose a record is: its session's, else that of the hold."""
    return record.session_id or (record.changes if isinstance(record, Ticket) else "") or record.hold_id


def bytes_of_names(names: Iterable[str]) -> int:
    """Return how many bytes names are counted as."""
    return sum(
        [len(name) if name.isascii() else len(name.encode("utf-8", "surrogatepass")) for name in names]
    )


def bytes_of_one(what: Counted, name: str) -> int:
    """Return how many bytes the name of one thing is counted as.

    What is waited for has none: the name of a rate limit counts with the limit itself.
    """
    return 0 if what == "waits" else bytes_of_names((name,))


def bytes_of_texts(note: str, value: str) -> int:
    """Return how many bytes a note and a value are counted as."""
    return len(note.encode()) + len(value.encode())


def bytes_said(record: Claimant) -> int:
    """Return how many bytes the texts of a hold or a ticket are counted as."""
    rare = record.rare
    return 0 if rare is None else bytes_of_texts(rare.note, rare.value)


def bytes_of_labels(labels: dict[str, str]) -> int:
    """Return how many bytes the labels of a session are counted as."""
    return sum([len(key.encode()) + len(text.encode()) for key, text in labels.items()])


def _mark_of_fence(resource: str, principal: str) -> int:
    return marks.of_content(("fence", resource, principal))
