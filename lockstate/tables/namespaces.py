"""Namespaces: prefixes of names, each with rules and quotas of its own for what lies at or below it.

A prefix covers a name by whole parts: `jobs` covers `jobs` and `jobs/7`, and not `jobs2`. What a hold has,
what a wait wants, a cell and a fence lie in the namespaces that cover their names. Of several that cover a
name, the longest one alone decides what may be asked for there (`namespace_rules`). Quotas count in each of
them: what lies in an inner one lies in the outer ones as well.

Nothing is looked for when a namespace is set: it counts what is made from then on. What was made before is
told by a number that it has anyway and that only rises: the token of a hold, the order of a wait, the
revision at which a cell was created. A hold that gets a new token, by a conversion or an addition, is new in
this sense, and so is the lock-delay that a hold leaves. A fence has no such number, so one that is made in a
namespace gets one here.

A lock of scope subtree lies in the namespaces of its own name, not in those below it.
"""

from collections.abc import Collection, Iterable
from typing import Literal, TypeAlias

import msgspec

from lockstate.tables import marks
from lockstate.tables.cells import Cell, size_of
from lockstate.tables.ledger import Ledger
from lockstate.tables.principals import bytes_of_names, bytes_of_one, bytes_of_texts, bytes_said
from lockstate.tables.records import Hold, Ticket, names_of
from lockstate.words import limits
from lockstate.words.cell_operations import PutOperation
from lockstate.words.commands.cells import PutCell
from lockstate.words.refusals import Reason, Refused, RefusedInNamespace
from lockstate.words.settings import NamespaceSettings

Counted: TypeAlias = Literal["holds", "waits", "cells", "fences", "rate_limits", "bytes"]
"""What namespaces have quotas of."""


class Namespace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A namespace as it is stored: it counts what has these numbers or higher ones."""

    prefix: str
    settings: NamespaceSettings
    since_token: int
    since_order: int
    since_cells_revision: int


class NamespaceUsage(msgspec.Struct, gc=False):
    """How much there is in a namespace of what it counts.

    `holds` are the names there that are held, waited for or delayed. `waits` are those for holds, for changes
    of a hold, and for the places of rate limits. `bytes` are those of the names there, of the keys and values
    of cells, and of the notes and values of holds and of what waits to be one.
    """

    holds: int = 0
    waits: int = 0
    cells: int = 0
    fences: int = 0
    rate_limits: int = 0
    bytes: int = 0


class Namespaces:
    """All namespaces, and what each has of what it counts."""

    def __init__(self, ledger: Ledger) -> None:
        self.rows: dict[str, Namespace] = {}
        """By prefix. Others only look at it: with every command, whether there is anything."""
        self.fences: dict[str, int] = {}
        """The creation numbers of fences that were made in a namespace, by resource."""
        self.usage: dict[str, NamespaceUsage] = {}
        """What each has, by prefix. It is derived."""
        self._ledger = ledger

    # -- which they are -------------------------------------------------------------------------------------

    def put(self, namespace: Namespace) -> None:
        """Set a namespace, or give the one of this prefix other settings: it goes on counting."""
        known = self.rows.get(namespace.prefix)
        if known is None:
            self.usage[namespace.prefix] = NamespaceUsage()
        else:
            namespace = msgspec.structs.replace(known, settings=namespace.settings)
            self._ledger.settled_sum -= marks.of_content(known)
        self.rows[namespace.prefix] = namespace
        self._ledger.settled_sum += marks.of_content(namespace)

    def remove(self, prefix: str) -> None:
        """Forget a namespace that there is, and what it counted."""
        known = self.rows.pop(prefix)
        del self.usage[prefix]
        self._ledger.settled_sum -= marks.of_content(known)

    def innermost(self, name: str) -> Namespace | None:
        """Return the longest namespace that covers a name."""
        end = len(name)
        while end > 0:
            namespace = self.rows.get(name[:end])
            if namespace is not None:
                return namespace
            end = name.rfind("/", 0, end)
        return None

    def over(self, names: Iterable[str]) -> list[Namespace]:
        """Return each namespace that covers any of the names: of each name the longest first."""
        return [self.rows[prefix] for prefix in self._inside(names)]

    def _inside(self, names: Iterable[str]) -> dict[str, list[str]]:
        """Return what of the names lies in each namespace, by prefix, in the order of `over`."""
        inside: dict[str, list[str]] = {}
        for name in names if self.rows else ():
            end = len(name)
            while end > 0:
                prefix = name[:end]
                if prefix in self.rows:
                    inside.setdefault(prefix, []).append(name)
                end = name.rfind("/", 0, end)
        return inside

    # -- how much there is ----------------------------------------------------------------------------------

    def count_hold(self, hold: Hold, by: int) -> None:
        """Count a hold that comes (1) or goes (-1), also if only its names or its token change in between."""
        for prefix, names in self._inside(names_of(hold)).items():
            if hold.token >= self.rows[prefix].since_token:
                usage = self.usage[prefix]
                usage.holds += by * len(names)
                usage.bytes += by * (bytes_of_names(names) + bytes_said(hold))

    def count_ticket(self, ticket: Ticket, hold: Hold | None, by: int) -> None:
        """Count a wait that comes (1) or goes (-1); `hold` is the one that it changes.

        More locks for a hold count with what it says, meanwhile, where it has nothing yet.
        """
        record = ticket if hold is None else hold
        has = self._counting(hold) if hold is not None else []
        for prefix, names in self._inside(names_of(ticket)).items():
            namespace, usage = self.rows[prefix], self.usage[prefix]
            if ticket.order >= namespace.since_order:
                usage.waits += by
                if not ticket.is_conversion:
                    said_bytes = 0 if namespace in has else bytes_said(record)
                    usage.holds += by * len(names)
                    usage.bytes += by * (bytes_of_names(names) + said_bytes)

    def count_texts(self, hold: Hold, change: Ticket | None, note: str, value: str) -> None:
        """Count that a hold, of which this change waits, is about to have another note or value."""
        growth = bytes_of_texts(note, value) - bytes_said(hold)
        for namespace in self._saying(hold, change):
            self.usage[namespace.prefix].bytes += growth

    def _saying(self, hold: Hold, change: Ticket | None) -> list[Namespace]:
        """Return the namespaces that count what a hold says: also those in which it waits for more locks."""
        has = self._counting(hold)
        if change is None or not change.is_addition:
            return has
        entered = [each for each in self.over(names_of(change)) if change.order >= each.since_order]
        return [*has, *[each for each in entered if each not in has]]

    def count_cell(self, cell: Cell, by: int) -> None:
        """Count a cell that comes (1) or goes (-1)."""
        for namespace in self._counting_cell(cell):
            usage = self.usage[namespace.prefix]
            usage.cells += by
            usage.bytes += by * size_of(cell)

    def count_rewrite(self, cell: Cell, had_bytes: int) -> None:
        """Count that a cell has been written again, which had so many bytes before."""
        for namespace in self._counting_cell(cell):
            self.usage[namespace.prefix].bytes += size_of(cell) - had_bytes

    def _counting_cell(self, cell: Cell) -> list[Namespace]:
        """Return the namespaces in which a cell counts."""
        covering = self.over((text_of_key(cell.key),))
        return [one for one in covering if cell.create_revision >= one.since_cells_revision]

    def put_fence(self, resource: str, order: int) -> None:
        """Count a fence that comes, which was made with this creation number."""
        self.fences[resource] = order
        self._ledger.settled_sum += _mark_of_fence(resource, order)
        self.count("fences", resource, order, 1)

    def drop_fence(self, resource: str) -> None:
        """Count a fence that goes, if it was made in a namespace."""
        order = self.fences.pop(resource, None)
        if order is not None:
            self._ledger.settled_sum -= _mark_of_fence(resource, order)
            self.count("fences", resource, order, -1)

    def count(self, what: Counted, name: str, order: int, by: int) -> None:
        """Count that there is one more (1) or less (-1) of what has this name and creation number."""
        for namespace in self.over((name,)):
            if order >= namespace.since_order:
                usage = self.usage[namespace.prefix]
                setattr(usage, what, getattr(usage, what) + by)
                usage.bytes += by * bytes_of_one(what, name)

    def _counting(self, hold: Hold) -> list[Namespace]:
        """Return the namespaces in which a hold counts."""
        return [each for each in self.over(names_of(hold)) if hold.token >= each.since_token]

    # -- how much may be ------------------------------------------------------------------------------------

    def check(self, what: Counted, names: Iterable[str]) -> Refused | None:
        """Refuse one more of these with such names, if a namespace that covers one of them has no room."""
        return next(filter(None, [self._check(each, what) for each in self.over(names)]), None)

    def check_named(
        self, what: Counted, names: Iterable[str], said_bytes: int = 0, has: Collection[Namespace] = ()
    ) -> Refused | None:
        """Refuse one more of these for each name, if a namespace has no room for all that lie in it.

        Beside the names there are `said_bytes`, of a note and a value, which those in `has` count already.
        """
        for prefix, inside in self._inside(names).items():
            namespace = self.rows[prefix]
            size_bytes = bytes_of_names(inside) + (0 if namespace in has else said_bytes)
            refused = self._check(namespace, what, len(inside)) or self._check(namespace, "bytes", size_bytes)
            if refused is not None:
                return refused
        return None

    def check_passed(self, giver: Hold) -> Refused | None:
        """Refuse another hold in the place of this one, if a namespace that does not count it has no room."""
        counting = self._counting(giver)
        for prefix, inside in self._inside(names_of(giver)).items():
            namespace = self.rows[prefix]
            if namespace not in counting:
                size_bytes = bytes_of_names(inside)
                refused = self._check(namespace, "holds", len(inside)) or self._check(
                    namespace, "bytes", size_bytes
                )
                if refused is not None:
                    return refused
        return None

    def check_added(self, hold: Hold, names: Iterable[str]) -> Refused | None:
        """Refuse more names to a hold, if a namespace has no room for them."""
        return self.check_named("holds", names, bytes_said(hold), self._counting(hold))

    def check_texts(self, hold: Hold, change: Ticket | None, note: str, value: str) -> Refused | None:
        """Refuse another note or value of a hold, of which this change waits, if there is no room for it."""
        growth = bytes_of_texts(note, value) - bytes_said(hold)
        checks = [self._check(each, "bytes", growth) for each in self._saying(hold, change)]
        return next(filter(None, checks), None)

    def check_cells(self, writes: Iterable[tuple[Cell | None, PutCell | PutOperation]]) -> Refused | None:
        """Refuse writes, each of a cell that there is or of a new one, if a namespace has no room for all."""
        cells: dict[str, int] = {}
        sizes: dict[str, int] = {}
        for cell, put in writes:
            covering = self.over((text_of_key(put.key),)) if cell is None else self._counting_cell(cell)
            growth = size_of(put) - (0 if cell is None else size_of(cell))
            for namespace in covering:
                prefix = namespace.prefix
                cells[prefix] = cells.get(prefix, 0) + (cell is None)
                sizes[prefix] = sizes.get(prefix, 0) + growth
        checks = [
            self._check(self.rows[prefix], "cells", count)
            or self._check(self.rows[prefix], "bytes", sizes[prefix])
            for prefix, count in cells.items()
        ]
        return next(filter(None, checks), None)

    def _check(self, namespace: Namespace, what: Counted, more: int = 1) -> Refused | None:
        limit: int | None = getattr(namespace.settings, what)
        used: int = getattr(self.usage[namespace.prefix], what)
        if limit is None or more <= 0 or used + more <= limit:
            return None
        detail = f"the namespace {namespace.prefix!r} has a quota of {limit} {what}, and {used} are used"
        if used < limit and more > 1:
            detail += f": there is no room for {more} more"
        return RefusedInNamespace(
            Reason.QUOTA_EXCEEDED,
            detail,
            retry_after_ms=limits.RETRY_MS,
            facts={"limit": limit, "used": used},
            namespace=namespace.prefix,
            quota=what,
        )

    # -- snapshots ------------------------------------------------------------------------------------------

    def dump(self) -> list[Namespace]:
        """Return all namespaces in order of their prefixes, for a snapshot."""
        return sorted(self.rows.values(), key=lambda namespace: namespace.prefix)

    def load(self, rows: list[Namespace]) -> None:
        """Add a part of what `dump` returned. What they count follows."""
        for namespace in rows:
            self.put(namespace)

    def recomputed_sum(self) -> int:
        """Return the sum of the marks of all of this (see `marks`)."""
        fences = sum([_mark_of_fence(*item) for item in self.fences.items()])
        return fences + sum([marks.of_content(namespace) for namespace in self.rows.values()])


def text_of_key(key: bytes) -> str:
    """Return the key of a cell as a name. One that is not text stays what it is."""
    return key.decode("utf-8", "surrogateescape")


def _mark_of_fence(resource: str, order: int) -> int:
    return marks.of_content(("fence", resource, order))
