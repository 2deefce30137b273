"""A process that speaks to the cluster and does not belong to it: a copy, a node of another cluster.

It runs on a machine of its own, which may have the address of a member. What it does is told to nobody who
checks the cluster. It must hear nothing of the cluster's log, and end only as its kind may.
"""

from collections.abc import Callable
from typing import Any

from cluster.assembly import Parts
from cluster.consensus.messages import Message
from lockstate.words.versions import RULES_FIRST
from tests.simulation.world.event_loop import NodeLoop
from tests.simulation.world.machine import Process
from tests.simulation.world.node_observer import NodeObserver


class StrangerFacts:
    """The facts of one stranger (machine.Facts), `name` for people."""

    def __init__(self, name: str, watch: NodeObserver) -> None:
        self.name = name
        self.exit_codes: list[int] = []
        """How its processes ended by themselves, one after the other."""
        self.starts_count = 0
        """How often it took part, as far as it knows."""
        self.may_start = True
        """Whether it may take part in anything, be it alone."""
        self.has_company = False
        """Whether copies of the other nodes run beside it: then it is let in by them, and must not lead."""
        self.is_dialed = False
        """Whether members dial it: then it takes itself for let in until they have said that it is not."""
        self.on_end: Callable[[int], None] = _nothing
        self.on_start: Callable[[str], None] = _nothing
        """Told of the disk id."""
        self._watch = watch

    def rules_known(self, node_id: str) -> int:  # noqa: ARG002 - as the others
        """Return the first rules: it is of this release."""
        return RULES_FIRST

    def made(self, node_id: str, parts: Parts) -> None:  # noqa: ARG002 - as the others
        """Record that it has recovered."""
        self._watch.add(self.name, "recovered", parts.journal.term, parts.journal.last_index)

    def applied(self, node_id: str, parts: Parts, index: int, entry: bytes) -> None:
        """What it applies is nobody's business."""

    def restored(self, node_id: str, parts: Parts) -> None:  # noqa: ARG002 - as the others
        """Object to a snapshot: it comes from the cluster."""
        self._watch.fail("stranger-heard", f"{self.name} is sent a snapshot")

    def connected(self, node_id: str, peer_id: str) -> None:  # noqa: ARG002 - as the others
        """Object to a node that lets it in, as far as that can be known from here."""
        if self.has_company or self.is_dialed:
            return
        self._watch.fail("stranger-let-in", f"{self.name} is let in by {peer_id}")

    def sent(self, node_id: str, parts: Parts, target: str, message: Message) -> None:
        """It may say what it likes: nobody shall take it."""

    def received(self, node_id: str, source: str, message: Message) -> None:  # noqa: ARG002 - as the others
        """Object to a message of the cluster's log: a node has let it in."""
        if self.has_company:
            return
        kind = type(message).__name__
        self._watch.fail("stranger-heard", f"{self.name} is let in by {source} and gets a {kind}")

    def faulted(self, node_id: str, source: str, reason: str) -> None:
        """It hears nothing, so there is nothing to find a fault with."""

    def members_changed(self, node_id: str, parts: Parts) -> None:
        """Its members are its own."""

    def stored(self, node_id: str, parts: Parts, term: int, voted_for: str | None) -> None:
        """Its disk is its own."""

    def led(self, node_id: str, parts: Parts) -> None:  # noqa: ARG002 - as the others
        """Record its role. Copies of all nodes must not be a second cluster."""
        role = parts.replica.role
        self._watch.add(self.name, "follows", role.term, role.is_leader)
        if self.has_company and role.is_leader:
            self._watch.fail("copy-leads", f"{self.name} leads in term {role.term} beside its original")

    def forked(self, node_id: str) -> None:
        """Its snapshots are its own."""

    def snapshot_placed(self, node_id: str, before: bytes | None, after: bytes) -> None:
        """So are the files."""

    def record_stored(self, node_id: str, identity: bytes, record: bytes) -> None:
        """And what they say of its cluster."""

    def started(self, process: Process) -> None:
        """Record that it takes part, as far as it knows."""
        self.starts_count += 1
        self._watch.add(self.name, "started")
        if not self.may_start:
            self._watch.fail("stranger-starts", f"{self.name} starts on a directory on which it must not")
        self.on_start(process.node._datadir.disk_id)

    def ended(self, process: Process, reason: str, exit_code: int) -> None:  # noqa: ARG002 - as the others
        """Record that it has ended by itself."""
        self.exit_codes.append(exit_code)
        self._watch.add(self.name, "exit", exit_code, reason)
        self.on_end(exit_code)

    def uncaught(self, loop: NodeLoop, context: dict[str, Any]) -> None:
        """Object to an exception that nobody caught: it runs our program."""
        self._watch.uncaught(loop, context)


def _nothing(_fact: object) -> None:
    """Do nothing."""
