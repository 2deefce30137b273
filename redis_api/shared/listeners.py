"""Who listens to which channels on one node, and what each of them is told."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from redis_api.protocol import spelled
from redis_api.protocol.resp import Push

PATTERNS_COUNT_MAX: Final = 1_000
"""Different patterns of all clients of a node: each message is compared with every one of them."""


Tell = Callable[[str, Push], bool]
"""Tells a client of a message on the channel with this name; returns whether it could be told."""


class _Pattern(NamedTuple):
    compiled: "re.Pattern[bytes]"
    listenings: "dict[Listening, None]"


class Listeners:
    """All of one node, by the names of channels, and by databases with patterns."""

    def __init__(self) -> None:
        self.of_names: dict[str, dict[Listening, None]] = {}
        self.of_patterns: dict[tuple[int, bytes], _Pattern] = {}
        self.told_count = 0

    def has_room_for(self, database: int, patterns: list[bytes]) -> bool:
        """Whether these patterns may be listened to as well."""
        new = {(database, pattern) for pattern in patterns} - self.of_patterns.keys()
        return len(self.of_patterns) + len(new) <= PATTERNS_COUNT_MAX

    def told(self, name: str, message: bytes) -> int:
        """Tell all that listen; return how many could be told."""
        found = spelled.channel_of(name)
        if found is None:
            return 0
        database, channel = found
        count = 0
        for listening in [*self.of_names.get(name, ())]:
            count += listening.tell(name, Push([b"message", channel, message]))
        for (where, pattern), (compiled, listenings) in [*self.of_patterns.items()]:
            if where == database and compiled.fullmatch(channel) is not None:
                for listening in [*listenings]:
                    count += listening.tell(name, Push([b"pmessage", pattern, channel, message]))
        self.told_count += count
        return count


class Listening:
    """What one client listens to."""

    def __init__(self, listeners: Listeners, tell: Tell) -> None:
        self._listeners, self.tell = listeners, tell
        self.channels: dict[str, bytes] = {}
        """By their names; a connection may have chosen another database since."""
        self.patterns: dict[tuple[int, bytes], None] = {}

    @property
    def count(self) -> int:
        """Return the number of channels and patterns."""
        return len(self.channels) + len(self.patterns)

    def begin(self, name: str, channel: bytes) -> None:
        """Listen to a channel."""
        self.channels[name] = channel
        self._listeners.of_names.setdefault(name, {})[self] = None

    def begin_pattern(self, database: int, pattern: bytes, compiled: "re.Pattern[bytes] | None") -> None:
        """Listen to all channels of a database that a pattern matches; None if this client does already."""
        key = database, pattern
        if compiled is None:
            assert key in self.patterns, "a pattern that is new has been compiled"
            return
        self.patterns[key] = None
        self._listeners.of_patterns.setdefault(key, _Pattern(compiled, {}))
        self._listeners.of_patterns[key].listenings[self] = None

    def end(self, name: str) -> None:
        """Listen to a channel no more, if it does."""
        if self.channels.pop(name, None) is None:
            return
        listenings = self._listeners.of_names[name]
        del listenings[self]
        if not listenings:
            del self._listeners.of_names[name]

    def end_pattern(self, database: int, pattern: bytes) -> None:
        """Listen by a pattern no more, if it does."""
        key = database, pattern
        if key not in self.patterns:
            return
        del self.patterns[key]
        listenings = self._listeners.of_patterns[key].listenings
        del listenings[self]
        if not listenings:
            del self._listeners.of_patterns[key]

    def end_all(self) -> None:
        """Listen to nothing more."""
        for name in [*self.channels]:
            self.end(name)
        for key in [*self.patterns]:
            self.end_pattern(*key)
