"""What clients tell each other through their nodes: outside the log, at once, at most once, and kept nowhere.

A message reaches who listens on this node, and on every node that this one is connected with and that keeps
up. Nobody is told what was missed.
"""

from collections.abc import Callable

import msgspec


class Published(msgspec.Struct, frozen=True, array_like=True):
    """A message on the channel that has this name."""

    name: str
    message: bytes


def _to_nobody(published: Published) -> None:
    """Pass on nothing: there are no other nodes."""


def _nobody(name: str, message: bytes) -> int:
    del name, message
    return 0


class Channels:
    """The channels of one node."""

    def __init__(self, pass_on: Callable[[Published], None] = _to_nobody) -> None:
        """`pass_on` tells the other nodes."""
        self._pass_on = pass_on
        self._listener: Callable[[str, bytes], int] = _nobody

    def listen(self, listener: Callable[[str, bytes], int]) -> None:
        """Let a listener have all messages; it returns how many clients it has told."""
        self._listener = listener

    def publish(self, name: str, message: bytes) -> int:
        """Tell everybody; return how many clients of this node were told."""
        self._pass_on(Published(name, message))
        return self._listener(name, message)

    def heard(self, published: Published) -> None:
        """Tell the clients of this node what another one passes on."""
        self._listener(published.name, published.message)
