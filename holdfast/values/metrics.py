"""What a client tells a program's metrics: how long it waits and holds, how renewals go, what is lost."""

import logging
from collections.abc import Callable
from typing import Protocol

_log = logging.getLogger("holdfast")


class Metrics(Protocol):
    """Receives measurements of a client. Give an object with these methods to `Client` or `SyncClient`.

    Its methods are called at once, on the event loop (of a SyncClient: in its own thread), so they must not
    wait. Exceptions are logged, and change nothing. `kind` is lock, semaphore, election or session; there may
    be many names: think before you make labels of them. Times are seconds.
    """

    def waited(self, kind: str, names: tuple[str, ...], seconds: float, outcome: str) -> None:
        """Hear that an acquire has ended: `granted`, `held` (by somebody else), `cancelled` or `failed`."""

    def held(self, kind: str, names: tuple[str, ...], seconds: float, reason: str) -> None:
        """Hear that a hold has ended; `reason` is `released`, or the reason of its loss."""

    def renewed(self, kind: str, seconds: float, outcome: str) -> None:
        """Hear that a renewal in the background has ended: `renewed`, `over` or `failed`."""


class Reporter:
    """Tells metrics."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def waited(self, kind: str, names: tuple[str, ...], seconds: float, outcome: str) -> None:
        """Report the end of an acquire."""
        _tell(lambda: self._metrics.waited(kind, names, seconds, outcome))

    def held(self, kind: str, names: tuple[str, ...], seconds: float, reason: str) -> None:
        """Report the end of a hold."""
        _tell(lambda: self._metrics.held(kind, names, seconds, reason))

    def renewed(self, kind: str, seconds: float, outcome: str) -> None:
        """Report the end of a renewal."""
        _tell(lambda: self._metrics.renewed(kind, seconds, outcome))


def _tell(call: Callable[[], None]) -> None:
    """Call somebody else's code, whose mistakes must not cost a lock."""
    try:
        call()
    except Exception:  # noqa: BLE001 - see above
        _log.exception("metrics have failed")
