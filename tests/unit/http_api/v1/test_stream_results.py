"""What the state machine says is what the client of a stream reads."""

from typing import Any, get_args

import msgspec
import pytest

from holdfast.wire import results as told
from http_api.v1.stream_results import AS_THEY_ARE, all_told, one_told
from lockstate.words import results as log
from lockstate.words.ids import HoldId, OwnerName
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from lockstate.words.refusals import CycleView, QuotaExceeded, Reason, Refused, RefusedInNamespace
from lockstate.words.views import CellView, HolderView
from lockstate.words.wanted import Wanted

_HELD = (Wanted("b", Mode.UPDATE, Scope.SUBTREE),)
_GRANT = (HoldId("h"), 7, "a", Mode.SHARED, None, OwnerName("o"), Scope.SUBTREE, _HELD, 2, 3)
_HOLDER = HolderView(OwnerName("o"), Mode.SHARED, 7, None, "n", "a", Scope.SUBTREE, HoldKind.SEMAPHORE, 2)
_CYCLE = CycleView(OwnerName("o"), "a", HoldKind.ELECTION)
_REFUSAL = (Reason.LOCK_HELD, "held", (_HOLDER,), 3, 4, (_CYCLE,), {"limit": 5})
_CELL = CellView(b"k", b"v", 1, 2, 3, OwnerName("o"), 4)

PLAIN: list[log.Result] = [
    log.Granted(*_GRANT),
    log.Queued(HoldId("h"), 2),
    log.Renewed(7, None),
    log.Renewed(7, 30),
    log.Released(_HELD),
    log.Done(),
    Refused(*_REFUSAL),
    log.Proclaimed(7),
    log.RateTaken(True, 1, 2, 3, 4, 5),
    log.FenceAdvanced(7),
    log.CellWritten(1, 2, 3),
    log.CellsDeleted(1, 2, is_more=True),
    log.Transacted(
        succeeded=True,
        revision=9,
        results=(log.CellWritten(1, 2, 3), log.CellsDeleted(1, 2), log.CellRead(_CELL), log.CellRead(None)),
    ),
]
"""Of each class that is told as it is in the log, one with something in every field."""


def read(result: Any) -> Any:
    """Return what a client reads of what a node says of a result."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(one_told(result)), type=told.Result)


def _plain(value: Any) -> Any:
    """Return a value without the classes that it is made of."""
    if isinstance(value, msgspec.Struct):
        return [_plain(getattr(value, field)) for field in value.__struct_fields__]
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _names(kind: Any) -> list[str]:
    return ["code" if name == "reason" else name for name in kind.__struct_fields__]


@pytest.mark.parametrize("result", PLAIN, ids=lambda result: type(result).__name__)
def test_what_is_told_as_it_is_has_the_layout_of_the_wire(result: log.Result) -> None:
    """The same tag, and the same fields with the same values at the same places."""
    kind = AS_THEY_ARE[type(result)]
    seen = read(result)
    assert type(seen) is kind
    names = _names(type(result))
    assert kind.__struct_fields__[: len(names)] == tuple(names)
    assert _plain(seen)[: len(names)] == _plain(result)


def test_all_that_is_told_as_it_is_is_compared() -> None:
    """None is forgotten, neither of the log nor of the wire."""
    assert {type(result) for result in PLAIN} == set(AS_THEY_ARE)
    assert set(AS_THEY_ARE.values()) == set(get_args(told.Result))


_QUOTA = {"facts": {"limit": 5}, "quota": "holds"}

OTHERS: list[tuple[log.Result, told.Result]] = [
    (
        QuotaExceeded(Reason.QUOTA_EXCEEDED, "full", facts={"limit": 5}, quota="holds"),
        told.StreamRefused("quota-exceeded", "full", **_QUOTA),  # type: ignore[arg-type]
    ),
    (
        RefusedInNamespace(
            Reason.QUOTA_EXCEEDED, "full", facts={"limit": 5}, namespace="jobs", quota="holds"
        ),
        told.StreamRefused("quota-exceeded", "full", namespace="jobs", **_QUOTA),  # type: ignore[arg-type]
    ),
]


@pytest.mark.parametrize(("result", "expected"), OTHERS, ids=lambda each: type(each).__name__)
def test_what_only_some_have_is_told_in_the_same_words(result: log.Result, expected: told.Result) -> None:
    """A client knows one class for each thing that may become of a command."""
    assert read(result) == expected


def test_results_of_a_message_stay_in_order() -> None:
    """Also where only some of them are said in other words."""
    (in_full, said), *_ = OTHERS
    assert all_told([log.Done(), in_full, log.Proclaimed(7)]) == [log.Done(), said, log.Proclaimed(7)]
    assert all_told(PLAIN) is PLAIN
