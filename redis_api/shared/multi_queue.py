"""What a connection keeps of a transaction that has begun: its commands, and the keys that it watches."""

from typing import Final, NamedTuple

from redis_api.protocol.errors import CommandRefused, not_supported

QUEUED_COUNT_MAX: Final = 1_000
"""Commands of one transaction: the node does nothing else while it runs them."""
QUEUED_BYTES_MAX: Final = 256 * 1024
"""Bytes of the commands of one transaction, with those beside each word."""
_WORD_BYTES: Final = 16
"""What a word counts beside its own bytes: also an empty one is looked at."""


class Watched(NamedTuple):
    """A key as it was when it was watched."""

    database: int
    key: bytes
    mod_revision: int
    """That of its cell, 0 if there was none."""
    tokens: tuple[int, ...]
    """Those of the holds of its lock."""


class Queue:
    """What a connection has said between MULTI and EXEC."""

    def __init__(self) -> None:
        self.commands: list[list[bytes]] = []
        self._bytes_count = 0
        self.has_failed = False
        """Whether a command was refused, with which EXEC is refused as well."""

    def add(self, words: list[bytes], *, is_possible: bool) -> None:
        """Take a command, if a transaction may have it. Raises CommandRefused."""
        if not is_possible:
            raise not_supported(f"{words[0].decode().upper()} in a transaction")
        self._bytes_count += sum(map(len, words)) + _WORD_BYTES * len(words)
        if len(self.commands) >= QUEUED_COUNT_MAX or self._bytes_count > QUEUED_BYTES_MAX:
            raise CommandRefused(
                f"a transaction has at most {QUEUED_COUNT_MAX} commands of {QUEUED_BYTES_MAX} bytes together,"
                f" with {_WORD_BYTES} for each word"
            )
        self.commands.append(words)
