"""From which level on this process logs: that of its settings, or one that an operator has set."""

import asyncio
import logging

logger = logging.getLogger("http_api")


class LogLevel:
    """The level of the log of this process. One that was set for a time goes back by itself."""

    def __init__(self) -> None:
        """Take the present level for that of the settings."""
        self._usual = logging.getLogger().level
        self._back: asyncio.TimerHandle | None = None

    @property
    def now(self) -> str:
        """The level, in the word of the settings."""
        return _word(logging.getLogger().level)

    def ends_in_ms(self) -> int | None:
        """Return for how much longer it is another one than that of the settings, None if it is that one."""
        if self._back is None:
            return None
        return max(0, round((self._back.when() - asyncio.get_running_loop().time()) * 1000))

    def set(self, level: str, for_ms: int, by: str) -> str:
        """Log from `level` on for so long, as the principal `by` wants it; return the level before.

        The level of the settings is set for good: it ends what was set before.
        """
        before, number = self.now, logging.getLevelNamesMapping()[level.upper()]
        self._forget()
        if number != self._usual:
            self._back = asyncio.get_running_loop().call_later(for_ms / 1000, self._go_back)
        self._change(number, "event=log-level-set level=%s before=%s for_ms=%d by=%s", for_ms, by or "-")
        return before

    def _go_back(self) -> None:
        self._forget()
        self._change(self._usual, "event=log-level-back level=%s before=%s")

    def _forget(self) -> None:
        if self._back is not None:
            self._back.cancel()
            self._back = None

    def _change(self, number: int, line: str, *more: object) -> None:
        """Set the level, and say so while warnings are logged, before or after."""
        root = logging.getLogger()
        before = root.level
        root.setLevel(min(before, number))
        logger.warning(line, _word(number), _word(before), *more)
        root.setLevel(number)


def _word(number: int) -> str:
    return logging.getLevelName(number).lower()
