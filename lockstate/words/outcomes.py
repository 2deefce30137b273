"""What applying an entry did, as its node is told: results for those that asked, events, and ended waits."""

from collections.abc import Sequence

import msgspec

from lockstate.words.events import CellEvent, Event
from lockstate.words.ids import HoldId
from lockstate.words.refusals import Refused
from lockstate.words.results import Granted, Result
from lockstate.words.wanted import Wanted


class Settled(msgspec.Struct, frozen=True):
    """How a wait ended, for the node that keeps its client's connection. It waited under `hold_id`.

    `added` are the locks that an addition waited for: its grant tells of all that the hold has. `position` is
    the place in the queue of one whose time was over, 0 of any other, and where the queue was too long.
    """

    hold_id: HoldId
    result: Granted | Refused
    waited_ms: int
    added: tuple[Wanted, ...] = ()
    position: int = 0


class BatchOutcome(msgspec.Struct, frozen=True):
    """The results of one batch: `results[i]` is that of `seqs[i]`. Commands that came twice are left out.

    `repeated` are those of `seqs` that asked with a `request_id` for what was answered before.
    """

    origin: str
    seqs: tuple[int, ...]
    results: tuple[Result, ...]
    repeated: tuple[int, ...] = ()


class Outcome(msgspec.Struct, frozen=True):
    """What applying one entry did."""

    revision: int
    now_ms: int
    batches: tuple[BatchOutcome, ...]
    events: Sequence[Event]
    settled: tuple[Settled, ...] = ()
    cell_events: tuple[CellEvent, ...] = ()

    @property
    def all_events(self) -> Sequence[Event | CellEvent]:
        """The events, and those of cells behind them."""
        return (*self.events, *self.cell_events) if self.cell_events else self.events
