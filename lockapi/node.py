"""A node as its faces see it: what it shows of itself, and what `gateway.py` asks of it.

`cluster.node.Node` keeps both contracts; tests may bring a smaller one.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from cluster.consensus.member_list import Members
from cluster.observing.event_log import EventLog
from cluster.observing.samples import Sample
from cluster.observing.status import ClusterStatus
from lockstate.machine import LockMachine
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import MayWait
from lockstate.words.results import Result

T = TypeVar("T")


class Applied(Protocol):
    """The result of a command, the revision at which it was applied, and whether it was known already."""

    @property
    def result(self) -> Result:
        """Return what the state machine answered."""
        ...

    @property
    def revision(self) -> int:
        """Return how many entries had been applied by then."""
        ...

    @property
    def is_repeated(self) -> bool:
        """Return whether it is the outcome of an earlier attempt, with the same `request_id`."""
        ...

    @property
    def waited_ms(self) -> int:
        """Return how long a wait took that has ended on this node, 0 for anything else."""
        ...

    @property
    def position(self) -> int:
        """Return the place in the queue at which a wait was given up, 0 if that is not known."""
        ...

    @property
    def waits(self) -> Mapping[int, Any] | None:
        """Return the futures of the ends of waits, by their places in the results of a frame of a stream."""
        ...


class Begun(Protocol):
    """A command on its way: a future, seen from outside."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Call `fn` with this object, soon after there is an outcome."""
        ...

    def result(self) -> Applied:
        """Return the outcome. Raises ClusterError, if that is the outcome."""
        ...


class Counters(Protocol):
    """The node's metrics."""

    def samples(self) -> Iterable[Sample]:
        """Return every value; those of one name follow one another."""
        ...


class BackupBytes(Protocol):
    """The bytes of a backup, in pieces."""

    @property
    def size(self) -> int:
        """Return how many there are."""
        ...

    def read(self, size_bytes: int) -> bytes:
        """Return the next ones, at most `size_bytes`; none at the end. It may wait for the disk."""
        ...

    def close(self) -> None:
        """Let go of it. Idempotent."""
        ...


class Channels(Protocol):
    """What clients tell each other through their nodes: at once, at most once, outside the log."""

    def listen(self, listener: Callable[[str, bytes], int]) -> None:
        """Let a listener have all messages by the names of their channels; it returns how many it told."""

    def publish(self, name: str, message: bytes) -> int:
        """Tell everybody who listens to a channel; return how many clients of this node were told."""
        ...


class NodeState(Protocol):
    """What a node shows of itself. Looking at it changes nothing and never waits for other nodes."""

    @property
    def machine(self) -> LockMachine:
        """Return the state of this node, as far as it has heard. Read only."""
        ...

    @property
    def events(self) -> EventLog:
        """Return what happened lately, as this node applied it."""
        ...

    @property
    def channels(self) -> Channels:
        """Return what clients tell each other."""
        ...

    @property
    def metrics(self) -> Counters:
        """Return the counters."""
        ...

    @property
    def has_failed(self) -> bool:
        """Return whether the node broke: its state may be half-way between two revisions."""
        ...

    @property
    def is_shutting_down(self) -> bool:
        """Return whether the node refuses new work."""
        ...

    async def wait_shutdown(self) -> None:
        """Return once the node refuses new work."""
        ...

    def status(self) -> ClusterStatus:
        """Return the cluster as this node sees it."""
        ...

    def troubles(self) -> tuple[str, ...]:
        """Return what is wrong with this node although it runs, in sentences."""
        ...


class ServingNode(NodeState, Protocol):
    """A node that takes commands and reads. Only the gateway calls it.

    A call that fails raises a ClusterError, which says whether it had an effect.
    """

    async def submit(self, command: Command, timeout_s: float, principal: str = "") -> Applied:
        """Replicate one command of a principal, "" if it is not known, and return its result."""
        ...

    def begin(self, command: Command, timeout_s: float, principal: str = "", lane: str = "") -> Begun:
        """Replicate one command that does not wait in a queue, for a caller that has no task to wait in.

        What is begun in one lane is applied in this order.
        """
        ...

    def abandon(self, command: Command, begun: Begun, principal: str = "") -> None:
        """Leave what was begun for a client that went away, as when the task of an `acquire` is cancelled."""
        ...

    async def acquire(
        self, command: MayWait, timeout_s: float, principal: str = "", poll_s: float | None = None
    ) -> Applied:
        """Replicate a request and wait in the queue, if it has to: after `poll_s` the result is Queued.

        What is Queued, or whose task was cancelled, keeps its place for a grace if it has a `request_id`.
        """
        ...

    async def withdraw(self, scope: str, request_id: str, timeout_s: float, principal: str = "") -> bool:
        """Take back a request that waits, or what it was granted; return whether there was anything."""
        ...

    async def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> T:
        """Answer from a state at least as new as every answer given anywhere before this call."""
        ...

    async def transfer_leadership(self, to: str | None, timeout_s: float) -> str:
        """Hand leadership over and return the new leader's id."""
        ...

    async def members_if_made(
        self, node_id: str, peer: str, timeout_s: float, *, is_move: bool = False
    ) -> Members | None:
        """Return the committed list if a change is made already, None if it is still to be made.

        The change is to add a node at `peer`, to move it there, or, without a `peer`, to remove it. Nothing
        is changed.
        """
        ...

    async def add_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Add a node and return the committed list; the node votes once it has caught up."""
        ...

    async def move_member(self, node_id: str, peer: str, timeout_s: float) -> Members:
        """Change the address of a node and return the committed list."""
        ...

    async def remove_member(self, node_id: str, timeout_s: float) -> Members:
        """Remove a node and return the committed list."""
        ...

    async def backup(self, head: Callable[[Members, int, int, int], bytes]) -> BackupBytes:
        """Return a backup of the node's own state.

        `head` makes what stands before the state, of the members, of index and term of an entry of the log
        that is not older, and of the state's length in bytes.
        """
        ...
