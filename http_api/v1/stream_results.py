"""Results of the log as streams tell them: `holdfast.wire.results`, which clients read.

Those of the log in AS_THEY_ARE have the layout of what clients read, so nothing is made of them but bytes; a
test compares the two. All others are said in the words of the former.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.wire import results as told
from lockstate.words import results
from lockstate.words.refusals import QuotaExceeded, Refused, RefusedInNamespace
from lockstate.words.results import Result

AS_THEY_ARE: Final[Mapping[type[Any], type[Any]]] = {
    results.Granted: told.StreamGranted,
    results.Queued: told.StreamQueued,
    results.Renewed: told.StreamRenewed,
    results.Released: told.StreamReleased,
    results.Done: told.StreamDone,
    Refused: told.StreamRefused,
    results.Proclaimed: told.StreamProclaimed,
    results.RateTaken: told.StreamRateTaken,
    results.FenceAdvanced: told.StreamFenceAdvanced,
    results.CellWritten: told.StreamCellWritten,
    results.CellsDeleted: told.StreamCellsDeleted,
    results.Transacted: told.StreamTransacted,
}
"""By class of the log, the class of the wire with its tag, of whose fields it has the first ones."""
_SAME: Final = frozenset(AS_THEY_ARE)


def all_told(done: Sequence[Result]) -> Sequence[Any]:
    """Return what the client of a stream is told of results."""
    if _SAME.issuperset(map(type, done)):
        return done
    return [one_told(each) for each in done]


def one_told(result: Result) -> Any:
    """Return what the client of a stream is told of one result."""
    kind = type(result)
    return result if kind in _SAME else _OTHERS[kind](result)


def _refused(result: QuotaExceeded | RefusedInNamespace) -> told.StreamRefused:
    """Return the refusal of a quota or a namespace: nobody is in the way."""
    return told.StreamRefused(
        result.reason,
        result.detail,
        queue_length=result.queue_length,
        retry_after_ms=result.retry_after_ms,
        facts=result.facts,
        namespace=result.namespace if isinstance(result, RefusedInNamespace) else "",
        quota=result.quota,
    )


_OTHERS: Final[dict[type[Any], Callable[[Any], Any]]] = {
    QuotaExceeded: _refused,
    RefusedInNamespace: _refused,
}
"""What says a result of the log that has more than its like."""
