"""The leader's batches: whatever arrives while an entry is under way becomes the next one."""

from collections import deque
from typing import Final

from cluster.commands.outbox import COMMAND_BYTES_MAX, node_of
from lockstate import codec

ENTRY_BYTES_MAX: Final = COMMAND_BYTES_MAX
"""Far below the size at which the library splits entries (H6), and small enough not to stall a heartbeat."""
ENTRY_COMMANDS_MAX: Final = 4096
"""Bounds the time that one apply takes."""

Commands = tuple[str, list[int], list[bytes]]
"""Origin, sequence numbers and encoded commands."""


class Batcher:
    """Commands waiting to be proposed, in order of arrival. Only a leader's is in use."""

    def __init__(self) -> None:
        self._queue: deque[Commands] = deque()
        self._tick_is_due = False
        self._advance_to = 0
        self._bytes_max = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to propose."""
        return not self._queue and not (self._tick_is_due or self._advance_to or self._bytes_max)

    def add(self, origin: str, seqs: list[int], commands: list[bytes]) -> None:
        """Queue commands of one origin; their numbers rise."""
        self._queue.append((origin, seqs, commands))

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
        """Drop everything: this node leads no more. The origins send again what they still wait for."""
        self._queue.clear()
        self._tick_is_due = False
        self._advance_to = self._bytes_max = 0

    def drop_from(self, node_id: str) -> None:
        """Drop what a node forwarded whose connection broke: it sends everything again on the next one."""
        self._queue = deque(batch for batch in self._queue if node_of(batch[0]) != node_id)

    def next_entry(self, now_ms: int, rules: int) -> bytes | None:
        """Return the next entry, stamped with `now_ms`, or None when there is nothing to propose.

        `rules` are the active ones, which say what format an entry has.
        """
        if self.is_empty:
            return None
        self._tick_is_due = False
        advance_to, self._advance_to = self._advance_to, 0
        bytes_max, self._bytes_max = self._bytes_max, 0
        batches: list[Commands] = []
        room_bytes, room_count = ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX
        while self._queue and room_count > 0 and room_bytes > 0:
            origin, seqs, commands = self._queue.popleft()
            taken = _fitting(commands, room_bytes, room_count)
            if taken < len(commands):
                self._queue.appendleft((origin, seqs[taken:], commands[taken:]))
                if taken == 0:
                    break
            batches.append((origin, seqs[:taken], commands[:taken]))
            room_count -= sum(map(codec.commands_in, commands[:taken]))
            room_bytes -= sum(map(len, commands[:taken]))
            if taken < len(commands):
                break
        return codec.encode_entry(now_ms, batches, rules=rules, advance_to=advance_to, bytes_max=bytes_max)


def _fitting(commands: list[bytes], room_bytes: int, room_count: int) -> int:
    """Return how many of `commands` fit; a frame of a stream counts as those that are in it.

    An empty entry has room for any one: see COMMAND_BYTES_MAX, and limits.STREAM_KEPT_MAX.
    """
    if sum(map(codec.commands_in, commands)) <= room_count and sum(map(len, commands)) <= room_bytes:
        return len(commands)
    count = 0
    for command in commands:
        room_bytes -= len(command)
        room_count -= codec.commands_in(command)
        if room_bytes < 0 or room_count < 0:
            break
        count += 1
    return count
