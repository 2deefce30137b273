"""One attempt of commands on one state of the node: what they read, and what they would change.

A key of Redis is a cell or a lock, never both: a cell is only made while nobody holds the name, and a lock is
only taken while there is no cell. Commands see the state as it was when the attempt began, with what those
before them in the attempt changed. Nothing is applied here: `transact.py` makes one transaction of the log of
it, in which all that was read is compared.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec

from holdfast.token_lines import Right
from lockapi import rights_needed, sight
from lockapi.needs import forbidden
from lockapi.requests.fields import check_name
from lockapi.requests.ids import new_hold_ids
from lockstate.machine import LockMachine
from lockstate.words import limits
from lockstate.words.cell_operations import (
    CellCompare,
    CellField,
    Compare,
    DeleteOperation,
    EndOperation,
    LockCompare,
    Operation,
    PutOperation,
    RenewOperation,
    TakeOperation,
)
from lockstate.words.ids import NO_HOLD, HoldId
from lockstate.words.views import CellView, HoldView
from redis_api.keys import cell_values
from redis_api.keys.cell_values import Value
from redis_api.protocol import spelled
from redis_api.protocol.arguments import fits_arity
from redis_api.protocol.errors import (
    MANUAL,
    CommandRefused,
    TooMuch,
    failure_of,
    not_supported,
    unknown_command,
    wrong_arity,
)
from redis_api.protocol.resp import Reply
from redis_api.shared.client import Client

Act = Callable[["Overlay", Sequence[bytes]], Reply]
"""Carries out a command on an overlay, given the words behind its name. If it raises, nothing has changed."""


class DataCommand(NamedTuple):
    """A command about keys. What `arity` means: `fits_arity`."""

    name: str
    arity: int
    act: Act
    summary: str
    keys: tuple[int, int, int] = (1, 1, 1)
    """The places of the first and the last key, and the step between two."""
    writes: bool = True


@dataclass(slots=True, eq=False)
class Slot:
    """One key in an attempt: what it was in the state, and what it is now."""

    name: str
    cell: CellView | None
    holds: tuple[HoldView, ...]
    """Who holds the name in the state, or a subtree that it is in."""
    hold_id: HoldId = NO_HOLD
    """The hold that alone is its lock in the state."""
    value: Value | None = None
    """What its cell holds now."""
    left_ms: int | None = None
    """What is left of its time; None without an end."""
    is_lock: bool = False
    """Whether it is a lock that is held now."""
    is_delayed: bool = False
    """Whether nobody holds the lock in the state, and a lock-delay keeps it."""
    is_compared: bool = False
    """Whether a command depends on what it was."""
    is_changed: bool = False
    keeps_time: bool = True
    """Whether its cell ends when it would have ended in the state."""
    lock_part: EndOperation | RenewOperation | None = None
    """What becomes of the hold of the state."""
    taken: TakeOperation | None = None
    """The hold that is taken."""

    @property
    def exists(self) -> bool:
        """Whether there is anything."""
        return self.is_lock or self.value is not None


FORCED: Final = "deleted by a client of Redis"
"""The reason that the audit has of a hold that somebody else ended."""
KEEP: Final = -1
"""The time of a key that ends when it would have ended."""
WRONG_TYPE: Final = ("Operation against a key holding the wrong kind of value", "WRONGTYPE")


class Overlay:
    """One attempt on one state. Synchronous: the state does not change meanwhile."""

    def __init__(
        self,
        client: Client,
        machine: LockMachine,
        commands: Mapping[bytes, DataCommand],
        known: Collection[bytes] = (),
    ) -> None:
        """`known` are values that the client itself has sent: a hold that has one of them is its own."""
        self.client, self.known = client, known
        self.database = client.database
        self._machine, self._commands = machine, commands
        self._slots: dict[str, Slot] = {}
        self.needs_new_state = False
        """Whether something was looked at that no compare can tell: a time that is left, several holders,
        why a free lock cannot be taken."""
        self.scripts_s = 0.0
        """Seconds of processor time that scripts have taken."""

    def row(self, name: bytes) -> DataCommand | None:
        """Return the command that has a name in capitals."""
        return self._commands.get(name)

    @contextmanager
    def all_or_nothing(self, known: Collection[bytes]) -> Iterator[None]:
        """Let the block change nothing if it raises. The client has also sent the values that are `known`."""
        slots, before = {name: copy(slot) for name, slot in self._slots.items()}, self.known
        self.known = (*before, *known)
        try:
            yield
        except BaseException:
            self._slots = slots
            raise
        finally:
            self.known = before

    def call(self, words: Sequence[bytes]) -> Reply:
        """Carry out one command on keys; an error is a Failure, and has changed nothing. Raises TooMuch."""
        name = words[0].upper()
        row = self._commands.get(name)
        try:
            return self._act(row, name, words)
        except TooMuch:
            raise
        except Exception as error:  # noqa: BLE001 - what is unforeseen ends the connection
            self.client.note(error, name.decode(errors="replace"))
            return failure_of(error)

    def _act(self, row: DataCommand | None, name: bytes, words: Sequence[bytes]) -> Reply:
        if row is None:
            raise unknown_command(name)
        if not fits_arity(row.arity, len(words)):
            raise wrong_arity(row.name)
        return row.act(self, words[1:])

    # -- keys -----------------------------------------------------------------------------------------------

    def slot(self, key: bytes, database: int | None = None) -> Slot:
        """Return a key without regard to rights, for a write that does not depend on what it was."""
        name = spelled.name_of(self.database if database is None else database, key)
        found = self._slots.get(name)
        if found is not None:
            return found
        check_name("key", name)
        cell = self._machine.cell(name.encode())
        hold_ids = self._machine.hold_ids(name)
        holds, is_delayed = self._machine.holders(name), self._machine.is_delayed(name)
        slot = Slot(name, cell, holds, is_delayed=is_delayed and not holds)
        if len(slot.holds) == len(hold_ids) == 1:
            slot.hold_id = hold_ids[0]
        if cell is not None:
            slot.value, slot.left_ms = cell_values.decode(cell.value), cell.expires_in_ms
        elif slot.holds:
            slot.is_lock, slot.left_ms = True, slot.holds[0].expires_in_ms
        self._slots[name] = slot
        return slot

    def look(self, key: bytes, database: int | None = None) -> Slot:
        """Return a key that may be read, and depend on what it is. Raises ProblemError."""
        slot = self.slot(key, database)
        rights_needed.check_name(self.client.gateway.rights, Right.READ, slot.name)
        slot.is_compared = True
        self.needs_new_state |= slot.is_lock and not (slot.hold_id or slot.taken)
        return slot

    def left_ms(self, slot: Slot) -> int | None:
        """Return what is left of the time of a key, None without an end."""
        self.needs_new_state = True
        return slot.left_ms

    def text(self, slot: Slot) -> bytes | None:
        """Return the string that a key is, or the value of the lock; None if there is none.

        Raises CommandRefused.
        """
        if isinstance(slot.value, tuple):
            raise CommandRefused(*WRONG_TYPE)
        if slot.taken is not None:
            return spelled.value_of(slot.taken.value)
        if slot.is_lock:
            shown = sight.seen(self.client.gateway.rights, slot.holds)
            return spelled.value_of(shown[0].value) if shown else None
        return slot.value

    def items(self, slot: Slot) -> tuple[bytes, ...]:
        """Return the list that a key is, an empty one if there is none. Raises CommandRefused."""
        if slot.is_lock or isinstance(slot.value, bytes):
            raise CommandRefused(*WRONG_TYPE)
        return slot.value or ()

    def read_text(self, key: bytes) -> bytes | None:
        """Return the string that a key is, for a command that depends on it. Raises as `look` and `text`."""
        return self.text(self.look(key))

    def read_items(self, key: bytes) -> tuple[bytes, ...]:
        """Return the list that a key is, for a command that depends on it. Raises as `look` and `items`."""
        return self.items(self.look(key))

    # -- changes --------------------------------------------------------------------------------------------

    def may_change(self, key: bytes) -> Slot:
        """Return a key that may be changed. Raises ProblemError."""
        slot = self.slot(key)
        rights_needed.check_name(self.client.gateway.rights, Right.ACQUIRE, slot.name)
        return slot

    def check_put(
        self,
        slot: Slot,
        value: bytes | Sequence[bytes],
        ttl_ms: int | None = None,
        said: bytes | None = None,
    ) -> None:
        """Refuse what a key cannot hold, or not for so long. Raises ProblemError, CommandRefused."""
        cell_values.encode(value)
        if ttl_ms not in (None, KEEP):
            _check_ttl(lasting_ms(ttl_ms))
        if slot.is_lock:
            self._check_end(slot, said)
        elif slot.is_delayed and slot.cell is None:
            # No compare could tell that the lock is not taken before the cell is made.
            raise CommandRefused("a lock-delay keeps the name, and nothing is made of it before", "TRYAGAIN")

    def put(
        self,
        slot: Slot,
        value: bytes | Sequence[bytes],
        ttl_ms: int | None = KEEP,
        said: bytes | None = None,
    ) -> None:
        """Let a key hold something: for so long, None without an end, KEEP until it would have ended.

        A list without elements ends the key. `said` is the value that it has, as the client has said it.
        Raises ProblemError, CommandRefused.
        """
        if not isinstance(value, bytes) and not value:
            self.remove(slot)
            return
        self.check_put(slot, value, ttl_ms, said)
        ttl_ms = None if ttl_ms is None else lasting_ms(ttl_ms)
        if slot.is_lock:
            left_ms = self.left_ms(slot) if ttl_ms == KEEP else ttl_ms
            ttl_ms = left_ms if left_ms is None else lasting_ms(max(left_ms, 1))
            self._end_lock(slot, said)
        slot.value = value if isinstance(value, bytes) else tuple(value)
        slot.is_changed = True
        if ttl_ms != KEEP:
            slot.left_ms, slot.keeps_time = ttl_ms, False

    def expire(self, slot: Slot, ttl_ms: int | None, said: bytes | None = None) -> None:
        """Let a key that is there last so long from now on, None without an end; end it if that is over.

        `said` is as for `put`.
        Raises ProblemError, CommandRefused.
        """
        if ttl_ms is not None and ttl_ms <= 0:
            self.remove(slot, said)
            return
        ttl_ms = None if ttl_ms is None else lasting_ms(ttl_ms)
        _check_ttl(ttl_ms)
        if slot.is_lock:
            self._renew(slot, ttl_ms, said)
        slot.left_ms, slot.keeps_time, slot.is_changed = ttl_ms, False, True

    def remove(self, slot: Slot, said: bytes | None = None) -> bool:
        """End a key; return whether there was one. `said` is as for `put`.

        Raises ProblemError, CommandRefused.
        """
        slot.is_compared = True  # whether there was one is an answer
        if not slot.exists:
            return False
        self.check_remove(slot, said)
        if slot.is_lock:
            self._end_lock(slot, said)
        slot.value, slot.left_ms, slot.keeps_time = None, None, False
        slot.is_changed = True
        return True

    def check_remove(self, slot: Slot, said: bytes | None = None) -> None:
        """Refuse to end a key. Raises ProblemError, CommandRefused."""
        if slot.is_lock:
            self._check_end(slot, said)

    # -- locks ----------------------------------------------------------------------------------------------

    def may_take(self, slot: Slot) -> bool:
        """Whether the lock of a key can be taken: there is nothing, and nothing is in the way.

        Others may be before this client, and a delay or a freeze may keep the lock.
        """
        if slot.exists:
            return False
        end = slot.lock_part if isinstance(slot.lock_part, EndOperation) else EndOperation(NO_HOLD)
        is_left = bool(end.reason) and self._machine.leaves_delay(end.hold_id)
        if not is_left and self._machine.can_take(slot.name, end.hold_id):
            return True
        self.needs_new_state = True
        return False

    def take(self, slot: Slot, value: bytes, ttl_ms: int | None) -> None:
        """Take a lock, of a key that is not there. Raises CommandRefused."""
        ttl_ms = None if ttl_ms is None else lasting_ms(ttl_ms)
        _check_ttl(ttl_ms)
        hold_id, owner = new_hold_ids()[0], self.client.owner
        slot.taken = TakeOperation(slot.name, hold_id, spelled.value_text(value), owner, ttl_ms or 0)
        slot.is_lock, slot.left_ms, slot.is_changed = True, ttl_ms, True

    def owns(self, slot: Slot, said: bytes | None = None) -> bool:
        """Whether the hold of a key is this client's: it took it, or said its value. Raises ProblemError."""
        if slot.taken is not None:
            return True
        if not slot.hold_id:
            return False
        (hold,) = slot.holds
        if hold.principal not in ("", self.client.principal):
            return False  # the connection may have been another caller's before
        if self.client.own.get(slot.name) == slot.hold_id:
            return True
        values = (*self.known, *(() if said is None else (said,)))
        return bool(hold.value) and hold.value in map(spelled.value_text, values)

    def is_renewal(self, slot: Slot, value: bytes) -> bool:
        """Whether a string that is to be written is the value that a hold of this client has already."""
        return slot.is_lock and self.owns(slot, value) and self.text(slot) == value

    def _check_end(self, slot: Slot, said: bytes | None = None) -> None:
        """Refuse to end a hold of somebody else without the right to force that. Raises ProblemError."""
        if self.owns(slot, said):
            return
        rights = self.client.gateway.rights
        if not rights.covers(Right.FORCE, slot.name):
            refused = forbidden(Right.FORCE, slot.name)
            refused.detail += ", because the lock was not taken on this connection: compare its value first"
            raise refused
        if not slot.hold_id:
            raise CommandRefused("held in another way than clients of Redis do: end that by force", "NOPERM")

    def _end_lock(self, slot: Slot, said: bytes | None = None) -> None:
        """End the hold of a key."""
        if slot.taken is not None:
            slot.taken = None
        else:
            slot.lock_part = EndOperation(slot.hold_id, "" if self.owns(slot, said) else FORCED)
        slot.is_lock = False
        slot.left_ms, slot.keeps_time = None, False

    def _renew(self, slot: Slot, ttl_ms: int | None, said: bytes | None = None) -> None:
        """Let a hold of this client last so long from now on. Raises CommandRefused."""
        if not self.owns(slot, said):
            raise CommandRefused(
                "this lock was not taken on this connection, and only its holder changes its time: compare"
                f" its value first, as the scripts of lock clients do; see {MANUAL}",
                "NOPERM",
            )
        if slot.taken is not None:
            slot.taken = msgspec.structs.replace(slot.taken, ttl_ms=ttl_ms or 0)
            return
        if ttl_ms is None:
            raise not_supported("PERSIST", "the lease of a lock that is held cannot be made endless")
        if slot.left_ms is None:
            raise not_supported(
                "EXPIRE of a lock without a deadline",
                "give the time when it is taken: SET key value NX PX ms",
            )
        slot.lock_part = RenewOperation(slot.hold_id, ttl_ms)

    # -- what comes of it -----------------------------------------------------------------------------------

    @property
    def changed(self) -> list[str]:
        """Return the names of the keys that are to be changed."""
        return [slot.name for slot in self._slots.values() if slot.is_changed]

    def compares(self) -> tuple[Compare, ...]:
        """Return what must be as it was when what was changed is applied."""
        found: list[Compare] = []
        for slot in self._slots.values():
            if slot.is_compared or slot.is_changed:
                found += _compares_of(slot)
        return tuple(found)

    def operations(self) -> tuple[Operation, ...]:
        """Return what is to be done."""
        found: list[Operation] = []
        for slot in self._slots.values():
            key = slot.name.encode()
            if slot.lock_part is not None:
                found.append(slot.lock_part)
            if slot.value is None and slot.cell is not None:
                found.append(DeleteOperation(key))
            if slot.taken is not None:
                found.append(slot.taken)
            elif slot.value is not None and slot.is_changed:
                keeps = slot.keeps_time and slot.cell is not None
                ttl_ms = 0 if keeps else slot.left_ms or 0
                found.append(
                    PutOperation(key, cell_values.encode(slot.value), ttl_ms=ttl_ms, keeps_lease=keeps)
                )
        return tuple(found)

    def was_applied(self) -> None:
        """Record what the connection has taken and ended."""
        for slot in self._slots.values():
            if isinstance(slot.lock_part, EndOperation):
                self.client.own.pop(slot.name, None)
            if slot.taken is not None:
                self.client.took(slot.name, slot.taken.hold_id)


def _compares_of(slot: Slot) -> list[Compare]:
    """Return what a key must be, so that what was read is true, and no key becomes a cell and a lock.

    A cell that is there stays one whatever the lock is: a hold beside it is given back by its taker
    (`holds.take`). What was not read may change, except that nobody may take the lock. One that a delay keeps
    is not free to any compare.
    """
    key = slot.name.encode()
    if slot.cell is not None and (slot.is_compared or slot.holds or slot.is_delayed):
        return [CellCompare(key, CellField.MOD_REVISION, number=slot.cell.mod_revision)]
    is_lock = slot.cell is None and bool(slot.holds)
    if is_lock and not slot.hold_id:
        return []
    found: list[Compare] = [] if slot.is_delayed else [LockCompare(slot.name, slot.hold_id)]
    if slot.is_compared and not is_lock:
        found.append(CellCompare(key, CellField.VERSION, number=0))
    return found


def lasting_ms(ttl_ms: int) -> int:
    """Return how long a key lasts that is to last so long: no less than the shortest lease.

    Nobody else gets a lock too early by that. Zero or less ends a key, and stays what it is.
    """
    return max(ttl_ms, limits.TTL_MS_MIN) if ttl_ms > 0 else ttl_ms


def _check_ttl(ttl_ms: int | None) -> None:
    """Refuse a time that no key can have. Raises CommandRefused."""
    refused = None if ttl_ms is None else limits.check_ttl(ttl_ms)
    if refused is not None:
        raise CommandRefused(f"{refused.reason.value}: {refused.detail.partition(': ')[2]} ms")
