"""The leader's batches: whatever arrives while an entry is under way becomes the next one."""

from collections import deque
from typing import Final

from cluster.commands.encoded_command import FREE, EncodedCommand
from cluster.commands.forwarded import COMMAND_BYTES_MAX, node_of
from lockstate.words import codec

ENTRY_BYTES_MAX: Final = COMMAND_BYTES_MAX
"""Far below the size at which the library splits entries (H6), and small enough not to stall a heartbeat."""
ENTRY_COMMANDS_MAX: Final = 4096
"""Bounds the time that one apply takes, where `Pace` has not measured it."""
ENTRY_LOAD_MAX: Final = 2500
"""Bounds it as well: there is room for one command with as many names as a request may have."""

Commands = tuple[str, list[int], list[EncodedCommand]]
"""Origin, sequence numbers and commands."""


class Batcher:
    """Commands waiting to be proposed, in order of arrival. Only a leader's is in use."""

    def __init__(self) -> None:
        self._queue: deque[Commands] = deque()
        self._has_impatient = False
        self._tick_is_due = False
        self._advance_to = 0
        self._bytes_max = 0
        self.entry_load = 0
        """The load of the last entry, with what each of its commands has free."""
        self.entry_batches: list[tuple[str, list[int], list[bytes]]] = []
        """What the last entry has."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to propose now."""
        return not (self._queue or self._tick_is_due or self._advance_to or self._bytes_max)

    @property
    def is_urgent(self) -> bool:
        """Whether there is anything to propose that does not wait for company (`Patience`)."""
        return self._has_impatient or self._tick_is_due or bool(self._advance_to or self._bytes_max)

    def add(self, origin: str, seqs: list[int], commands: list[EncodedCommand]) -> None:
        """Queue commands of one origin; their numbers rise."""
        self._queue.append((origin, seqs, commands))
        self._has_impatient = self._has_impatient or not all(command.is_patient for command in commands)

    def add_tick(self) -> None:
        """Ask for an entry even if no command comes: time has to pass."""
        self._tick_is_due = True

    def add_advance(self, to: int) -> None:
        """Ask for an entry that moves the rules of the cluster up to version `to`."""
        self._advance_to = to

    def add_bytes_max(self, bytes_max: int) -> None:
        """Ask for an entry that bounds the memory that the state takes."""
        self._bytes_max = bytes_max

    def clear(self) -> None:
        """Drop everything: this node no longer leads. The origins send again what they still wait for."""
        self._queue.clear()
        self._has_impatient = self._tick_is_due = False
        self._advance_to = self._bytes_max = 0

    def drop_from(self, node_id: str) -> None:
        """Drop what a node forwarded whose connection broke: it sends everything again on the next one."""
        self._queue = deque(batch for batch in self._queue if node_of(batch[0]) != node_id)

    def next_entry(self, now_ms: int, load_max: int | None = None) -> bytes | None:
        """Return the next entry, stamped with `now_ms`, or None when there is nothing to propose.

        Its commands have `load_max` together, with what each has free; a single one may have more.
        """
        if self.is_empty:
            return None
        self._tick_is_due = False
        advance_to, self._advance_to = self._advance_to, 0
        bytes_max, self._bytes_max = self._bytes_max, 0
        batches = self.entry_batches = self._next_batches(_Room(load_max))
        return codec.encode_entry(now_ms, batches, advance_to=advance_to, bytes_max=bytes_max)

    def _next_batches(self, room: "_Room") -> list[tuple[str, list[int], list[bytes]]]:
        """Take out what fits an entry, in order of arrival.

        Where something does not fit, all behind it of the same origin waits for the next entry, in which it
        comes first; but not what others have sent.
        """
        batches = []
        left: deque[Commands] = deque()
        blocked: set[str] = set()
        while self._queue and room.is_there:
            origin, seqs, commands = self._queue.popleft()
            if origin in blocked:
                left.append((origin, seqs, commands))
                continue
            taken = room.take(commands)
            if taken:
                batches.append((origin, seqs[:taken], [command.data for command in commands[:taken]]))
            if taken < len(commands):
                left.append((origin, seqs[taken:], commands[taken:]))
                blocked.add(origin)
        self._queue.extendleft(reversed(left))
        self._has_impatient = bool(self._queue)
        self.entry_load = room.taken_load
        return batches


class _Room:
    """What still fits an entry. An empty one has room for any command, any other for what has no load."""

    def __init__(self, load_max: int | None) -> None:
        self._bytes, self._count, self._load = ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, ENTRY_LOAD_MAX
        self._load_max = load_max
        self.taken_load = 0
        self._is_empty = True

    @property
    def is_there(self) -> bool:
        """Whether anything could fit."""
        return self._bytes > 0 and self._count > 0

    def take(self, commands: list[EncodedCommand]) -> int:
        """Take as many of `commands`, in their order, as there is room for; return how many these are."""
        for taken, command in enumerate(commands):
            size_bytes, count, load = len(command.data), command.count, command.load
            with_free = self.taken_load + load + FREE * count
            fits = size_bytes <= self._bytes and count <= self._count and load <= max(self._load, 0)
            is_quick = self._load_max is None or with_free <= self._load_max
            if not (fits and is_quick) and not self._is_empty:
                return taken
            self.taken_load = with_free
            self._bytes -= size_bytes
            self._count -= count
            self._load -= load
            self._is_empty = False
        return len(commands)
