"""Runs a node that keeps something of every entry for ever: the words before its command are `WRAPPER`."""

import sys
from typing import Final

from cluster.observing.event_log import Block, EventLog
from http_api import __main__ as http_api
from lab.chaos.defective_node import node_arguments

WRAPPER: Final = [sys.executable, "-m", "tests.process.leaking_node"]
"""The words before the command of a node that leaks."""
LEAK_BYTES: Final = 256 * 1024
"""What it keeps of each entry."""

_append = EventLog.append
_kept: Final[list[bytes]] = []


def _leak(self: EventLog, events: Block) -> None:
    """Take the events of an entry, and keep what nobody will ever look at."""
    _kept.append(b"x" * LEAK_BYTES)
    _append(self, events)


if __name__ == "__main__":
    EventLog.append = _leak  # type: ignore[method-assign]
    sys.exit(http_api.main(node_arguments(sys.argv[1:])))
