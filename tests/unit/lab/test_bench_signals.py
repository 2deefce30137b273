"""A terminated benchmark ends as an interrupted one does, wherever the signal finds it."""

import argparse
import asyncio
import signal
import socket
from collections.abc import Iterator

import pytest
import uvloop

from lab.bench import command as bench

DEADLINE_S = 10.0


class TerminatedProtocol(asyncio.Protocol):
    """A connection whose bytes arrive together with SIGTERM."""

    def data_received(self, data: bytes) -> None:
        """Get the signal inside a callback that the event loop makes from C."""
        assert data
        signal.raise_signal(signal.SIGTERM)


async def wait_for_bytes() -> None:
    """Receive bytes, and wait for ever; fail after a while."""
    near, far = socket.socketpair()
    near.setblocking(False)
    with far:
        await asyncio.get_running_loop().create_connection(TerminatedProtocol, sock=near)
        far.send(b"bytes")
        await asyncio.wait_for(asyncio.Event().wait(), DEADLINE_S)


def run(_arguments: argparse.Namespace) -> int:
    """Stand for a benchmark that runs an event loop."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(wait_for_bytes())
    return 0


@pytest.fixture
def _handlers() -> Iterator[None]:
    """Put the handlers of this process back."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    handlers = [signal.getsignal(number) for number in numbers]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("_handlers")
def test_sigterm_in_a_callback_of_the_loop_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGTERM while bytes are received ends the run, although the loop catches what callbacks raise."""
    monkeypatch.setitem(
        bench._WITHOUT_CLUSTER, "machine", bench._WITHOUT_CLUSTER["machine"]._replace(run=run)
    )
    assert bench.main(["machine"]) == 130
