"""What a node answers while it starts: that it is alive, and to all else how far it is."""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from holdfast import wire
from holdfast.wire.operators import HealthJson
from http_api.server.call import Call, Reply
from lockapi.problems import ProblemError

RETRY_MS: Final = 1_000
"""After which, in ms, a client may ask a node again that was still starting."""


class StartGate:
    """Lets no call through to a node that has not read its state yet."""

    def __init__(self, how_far: Callable[[], object] | None = None) -> None:
        """Be closed until `open`, if there is anything to wait for: `how_far` says that for people."""
        self._how_far = how_far
        self.pages: Mapping[str, Callable[[str], Reply]] = {}
        """What a browser is shown meanwhile at these paths, made of how far the node is."""
        self.on_open: Callable[[], None] = lambda: None
        """Called when it opens."""

    @property
    def is_closed(self) -> bool:
        """Whether the node is still starting."""
        return self._how_far is not None

    def open(self) -> None:
        """Let every call through from now on."""
        self._how_far = None
        self.on_open()

    def answer(self, path: str, call: Call) -> Reply | None:
        """Return what to answer to a call of a route's path, None if the node answers. Raises ProblemError.

        The connection ends with it: those of a node that serves are quicker.
        """
        if self._how_far is None:
            return None
        if path in self.pages and call.is_of_browser:
            return self.pages[path](str(self._how_far()))
        if path != wire.LIVEZ:
            raise ProblemError("not-ready", str(self._how_far()), retry_after_ms=RETRY_MS)
        return Reply(msgspec.json.encode(HealthJson(ok=True, troubles=(str(self._how_far()),))))
