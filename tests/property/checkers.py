"""A referee who knows no state, only commands, results and events, and what a lock promises."""

from dataclasses import dataclass, field

from lockstate.commands import Acquire, Command, Entry, Undecodable
from lockstate.modes import Mode
from lockstate.results import Event, EventKind, Outcome, Queued, Result

ENDS = frozenset({EventKind.RELEASED, EventKind.EXPIRED, EventKind.FORCED})


@dataclass
class Referee:
    """Follows the outcomes of one machine and objects when a promise is broken."""

    revision: int = 0
    now_ms: int = 0
    last_token: int = 0
    holders: dict[str, dict[int, Mode]] = field(default_factory=dict)
    """By name, then by token."""
    waiting: dict[str, dict[str, Mode]] = field(default_factory=dict)
    """By name, then by hold id, in order of arrival."""

    def watch(self, entry: Entry, outcome: Outcome) -> None:
        """Check one outcome against everything seen before."""
        assert outcome.revision == self.revision + 1, "revisions count entries"
        assert outcome.now_ms == max(self.now_ms, entry.now_ms), "cluster time never goes back"
        self.revision, self.now_ms = outcome.revision, outcome.now_ms
        answers = _answers(entry, outcome)
        queued = iter(_queued_hold_ids(answers))
        for event in outcome.events:
            assert (event.revision, event.now_ms) == (self.revision, self.now_ms)
            if event.kind is EventKind.QUEUED:
                assert event.mode is not None
                self.waiting.setdefault(event.name, {})[next(queued)] = event.mode
            else:
                self._watch_event(event)
        assert not list(queued), "who is queued is told about"
        for name, held in self.holders.items():
            assert _are_compatible(list(held.values())), f"{name} has incompatible holders: {held}"

    def _watch_event(self, event: Event) -> None:
        held = self.holders.setdefault(event.name, {})
        waiting = self.waiting.setdefault(event.name, {})
        if event.kind is EventKind.GRANTED:
            assert event.token > self.last_token, "tokens strictly rise"
            assert event.mode is not None
            self.last_token = event.token
            for hold_id, mode in waiting.items():
                if hold_id == event.hold_id:
                    break
                assert _are_compatible([mode, event.mode]), f"{event} overtakes the waiter {hold_id}"
            waiting.pop(event.hold_id, None)
            held[event.token] = event.mode
        elif event.kind is EventKind.WAIT_ENDED:
            assert event.hold_id in waiting, f"{event} ends a wait that never began"
            del waiting[event.hold_id]
        elif event.kind in ENDS:
            assert event.token in held, f"{event} ends a hold that nobody has"
            del held[event.token]


def _are_compatible(modes: list[Mode]) -> bool:
    return len(modes) < 2 or all(mode is Mode.SHARED for mode in modes)


def _answers(entry: Entry, outcome: Outcome) -> list[tuple[Command | Undecodable, Result]]:
    """Return the commands that had an effect, each with its result."""
    results = {
        (batch.origin, seq): result
        for batch in outcome.batches
        for seq, result in zip(batch.seqs, batch.results, strict=True)
    }
    return [
        (command, results[batch.origin, seq])
        for batch in entry.batches
        for seq, command in zip(batch.seqs, batch.commands, strict=True)
        if (batch.origin, seq) in results
    ]


def _queued_hold_ids(answers: list[tuple[Command | Undecodable, Result]]) -> list[str]:
    """Return the tickets that were made, in order; a repeated request is told of its first one."""
    return [
        result.hold_id
        for command, result in answers
        if isinstance(command, Acquire) and isinstance(result, Queued) and result.hold_id == command.hold_id
    ]
