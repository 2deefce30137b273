"""A node as its faces see it. `cluster.node.Node` is one; tests may bring a smaller one."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from cluster.consensus.member_list import Members
from cluster.observing.event_log import EventLog
from cluster.observing.metrics import Sample
from cluster.observing.status import ClusterStatus
from lockstate.commands import Acquire, AcquirePermits, Campaign, Command, Convert
from lockstate.machine import LockMachine
from lockstate.results import Result

T = TypeVar("T")

Waiting = Acquire | AcquirePermits | Campaign | Convert
"""The commands that may wait in a queue."""


class Answer(Protocol):
    """The result of a command, and the revision at which it was applied."""

    @property
    def result(self) -> Result:
        """Return what the state machine said."""
        ...

    @property
    def revision(self) -> int:
        """Return how many entries had been applied then."""
        ...


class Metrics(Protocol):
    """The node's counters."""

    def samples(self) -> Iterable[Sample]:
        """Return every value, those of one name next to each other."""
        ...


class ServingNode(Protocol):
    """Takes commands and reads. A call that fails raises a ClusterError: it says whether it had effect."""

    @property
    def machine(self) -> LockMachine:
        """Return the state of this node, as far as it has heard. Read only."""
        ...

    @property
    def events(self) -> EventLog:
        """Return what happened lately, as this node applied it."""
        ...

    @property
    def metrics(self) -> Metrics:
        """Return the counters."""
        ...

    @property
    def is_shutting_down(self) -> bool:
        """Return whether the node takes no new work."""
        ...

    async def submit(self, command: Command, timeout_s: float) -> Answer:
        """Replicate one command and return its result."""
        ...

    async def acquire(self, command: Waiting, timeout_s: float) -> Answer:
        """Replicate a request and wait in the queue, if it has to. Cancelled with the calling task."""
        ...

    async def wait_shutdown(self) -> None:
        """Return once the node takes no new work."""
        ...

    async def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> T:
        """Answer from a state at least as new as every answer given anywhere before this call."""
        ...

    def status(self) -> ClusterStatus:
        """Return the cluster as this node sees it."""
        ...

    async def transfer_leadership(self, to: str | None, timeout_s: float) -> str:
        """Hand leadership over and return the new leader's id."""
        ...

    async def add_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Add a node and return the committed list; the node counts once it has caught up."""
        ...

    async def remove_member(self, node_id: str, timeout_s: float) -> Members:
        """Remove a node and return the committed list."""
        ...
