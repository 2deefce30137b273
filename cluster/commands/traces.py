"""The spans of commands: from who asked for one to its outcome, on the node that took it and on the leader.

A command is known by who numbered it and its number, as in the log. Nothing here decides anything. Where no
call is recorded there is nothing to look through.
"""

import asyncio
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from cluster.commands.forwarded import Forwarded, node_of
from cluster.commands.outbox import Answer, Pending
from cluster.tracing import Context, Span, Tracer, code_of
from lockstate.words.outcomes import BatchOutcome
from lockstate.words.refusals import Refused

LEAD: Final = "lead"
"""The name of the leader's part of a command that another node has sent."""
_NS_PER_S: Final = 1_000_000_000


class Traces:
    """What is recorded of commands that are under way."""

    def __init__(self, tracer: Tracer, origin: str) -> None:
        """Record commands that this run of the process, `origin`, has numbered, and those it leads."""
        self.tracer = tracer
        self._origin = origin
        self._own: dict[int, tuple[Pending, Span]] = {}
        """Those of clients of this node, by place in its outbox."""
        self._open: dict[tuple[str, int], Span] = {}
        """Those that may be in the next entries, by origin and number."""

    def watch(self, pending: Pending, name: str) -> None:
        """Record what was just submitted, if who asks for it is recorded; a shared one once."""
        span = self.tracer.child(name, "client") if pending.place not in self._own else None
        if span is not None:
            self._own[pending.place] = pending, span
            pending.future.add_done_callback(partial(self._ended, pending, span))

    def _ended(self, pending: Pending, span: Span, future: "asyncio.Future[Answer]") -> None:
        del self._own[pending.place]
        self._open.pop((self._origin, pending.seq), None)
        if future.cancelled():
            self.tracer.end(span, "cancelled")
        elif (error := future.exception()) is not None:
            self.tracer.end(span, code_of(error))
        else:
            answer = future.result()
            span.attributes["holdfast.revision"] = answer.revision
            if isinstance(answer.result, Refused):
                span.attributes["holdfast.refused"] = answer.result.reason.value
            self.tracer.end(span)

    def sent(self, seqs: Sequence[int], leader_id: str = "") -> dict[int, bytes]:
        """Hear that these were taken, for another node that leads or our own next entry.

        Return the contexts of those that are recorded.
        """
        if not self._own:
            return {}
        taken, contexts = frozenset(seqs), {}
        for pending, span in self._own.values():
            if pending.seq in taken:
                self._open[self._origin, pending.seq] = span
                span.attributes["holdfast.leader"] = leader_id or node_of(self._origin)
                if leader_id:
                    span.event("sent")
                contexts[pending.seq] = span.context.packed()
        return contexts

    def forwarded(self, batch: Forwarded, applied_seq: int) -> None:
        """Record the leader's part of commands that another node has sent.

        Of those up to `applied_seq` it has been recorded: they come again because that node has not heard of
        their outcomes yet, and no entry will tell of them once more.
        """
        numbered = frozenset(batch.seqs)
        for seq, packed in batch.traces.items():
            if seq in numbered and seq > applied_seq:
                before = self._open.pop((batch.origin, seq), None)
                if before is not None:
                    self.tracer.end(before, "sent-again")
                span = self.tracer.of_peer(Context.of_packed(packed), LEAD)
                span.attributes["holdfast.from"] = node_of(batch.origin)
                self._open[batch.origin, seq] = span

    def proposed(self, batches: Iterable[tuple[str, Sequence[int], Any]]) -> None:
        """Hear what the leader has just put into an entry."""
        for origin, seqs, _ in batches if self._open else ():
            for span in self._of(origin, seqs):
                span.event("proposed")

    def applied(self, batches: Iterable[BatchOutcome], took_s: float) -> None:
        """Hear what was committed, and applied in the last `took_s`. What is our own ends by its future."""
        committed_ns = time.time_ns() - int(took_s * _NS_PER_S)
        for batch in batches if self._open else ():
            for span in self._of(batch.origin, batch.seqs):
                span.event("committed", committed_ns)
            if batch.origin != self._origin:
                for seq in batch.seqs:
                    if (led := self._open.pop((batch.origin, seq), None)) is not None:
                        self.tracer.end(led)

    def _of(self, origin: str, seqs: Sequence[int]) -> list[Span]:
        opened = self._open
        return [opened[origin, seq] for seq in seqs if (origin, seq) in opened]

    def let_go(self, why: str, peer_id: str = "") -> None:
        """End the leader's part of what other nodes have sent, or this one: they send it again."""
        for origin, seq in [*self._open]:
            if origin != self._origin and peer_id in ("", node_of(origin)):
                self.tracer.end(self._open.pop((origin, seq)), why)
