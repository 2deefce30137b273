"""Which command of the log each command of a stream is, and what a node fills in or refuses."""

from typing import Any, Final, get_args

import pytest

from holdfast.wire import commands as said
from holdfast.wire import words
from holdfast.wire.stream import Commands
from lockapi.problems import ProblemError
from lockapi.requests.stream import numbered
from lockstate.words import cell_operations as cells
from lockstate.words.commands import holds
from lockstate.words.commands.cells import DeleteCells
from lockstate.words.commands.streams import NumberedCommand
from lockstate.words.ids import NO_SESSION, HoldId, SessionId
from lockstate.words.kinds import Algorithm, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.wanted import PRIORITY_DEFAULT, Wanted

SESSION = SessionId("5" * 32)
OTHER = SessionId("6" * 32)
HOLD = HoldId("a" * 32)
ID_CHARACTERS = 32


def of_log(*commands: said.Command) -> tuple[Any, ...]:
    """Return commands as they go into the log."""
    return numbered(Commands(1, (), 0, commands), SESSION, 1).commands


def fields_of(command: Any) -> dict[str, Any]:
    """Return what a command says, without what the node has filled in."""
    filled = {"attempt_id", "ticket_id", "request_id", "priority_not_for", "endless_not_for"}
    return {field: getattr(command, field) for field in command.__struct_fields__ if field not in filled}


_LEASE: Final[dict[str, Any]] = {"ttl_ms": 2, "owner": "o", "wait_ms": 3, "lock_delay_ms": 4, "note": "n"}
_RARE: Final[dict[str, Any]] = {"value": "v", "is_secret": True, "priority": 7, "is_endless": True}
_PLACES: Final[dict[str, Any]] = {"hold_id": HOLD, "session_id": OTHER}

EXAMPLES: list[said.Command] = [
    said.StreamAcquire(
        "a",
        "shared",
        **_PLACES,
        **_LEASE,
        scope="subtree",
        locks=(said.StreamLock("b", "update", "subtree"),),
        if_held="count",
        **_RARE,
    ),
    said.StreamAcquirePermits("a", 8, 9, **_PLACES, **_LEASE, is_strict=True, **_RARE),
    said.StreamCampaign("a", "v", **_PLACES, owner="o", wait_ms=3, if_held="refuse"),
    said.StreamConvert("h", "update", 3),
    said.StreamRenew("h", 2, "semaphore", exact=True),
    said.StreamRelease("h", ("a", "b"), "election"),
    said.StreamRenewByValue("a", "v", 2_000, "semaphore", exact=True),
    said.StreamReleaseByValue("a", "v", "semaphore"),
    said.StreamProclaim("h", "v"),
    said.StreamTakeRate("a", 8, 9, "gcra", 3),
    said.StreamAdvanceFence("a", 7),
    said.StreamPutCell(b"k", b"v", OTHER, 2),
    said.StreamDeleteCells(b"", is_prefix=True, is_all=True),
    said.StreamTransactCells(
        (said.StreamCellCompare(b"k", "version", ">", 3, b"v"), said.StreamHoldCompare("h", 7)),
        (said.StreamCellPut(b"k", b"v", OTHER, 2), said.StreamCellGet(b"g")),
        (said.StreamCellDelete(b"d"),),
    ),
    said.StreamEndWait(7),
]
"""Each command of a stream with all that it can say, and nothing as it is by default."""


def test_the_examples_say_all_there_is() -> None:
    """Each command is there, and each field with something else than it has by default."""
    assert {type(example) for example in EXAMPLES} == set(get_args(said.Command))
    for example in EXAMPLES:
        kind = type(example)
        names = kind.__struct_fields__[-len(kind.__struct_defaults__) :] if kind.__struct_defaults__ else ()
        defaults = dict(zip(names, kind.__struct_defaults__, strict=True))
        same = [field for field, default in defaults.items() if getattr(example, field) == default]
        assert same == [], kind.__name__


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_a_command_says_the_same_in_the_log(example: said.Command) -> None:
    """Every field comes through under its name, whatever the log's layout is."""
    (command,) = of_log(example)
    told = fields_of(command)
    if isinstance(example, said.StreamDeleteCells):
        told["is_all"] = not command.key  # an empty prefix in the log: clients have to say so
    if "uncommon" in told:
        told |= fields_of(told.pop("uncommon"))
    for field in type(example).__struct_fields__:
        assert _plain(told.pop(field)) == _plain(getattr(example, field)), field
    left = {"wait_ms"} if isinstance(example, said.StreamTakeRate) else set()
    if isinstance(example, said.StreamAcquire | said.StreamAcquirePermits):
        left = {"asks"}  # a wait that asks by itself goes over HTTP
        assert told["asks"] is None
    elif isinstance(example, said.StreamRenewByValue):
        left = {"adds"}  # what adds to a lease is asked for by clients of Redis alone
        assert told["adds"] is False
    assert set(told) == left


def _plain(value: Any) -> Any:
    """Return a value without the classes that it is made of."""
    if hasattr(value, "__struct_fields__"):
        fields = [
            field for field in value.__struct_fields__ if field != "keeps_lease"
        ]  # clients of Redis alone
        return [_plain(getattr(value, field)) for field in fields]
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize(
    ("of_wire", "of_machine"),
    [
        (words.Mode, Mode),
        (words.Scope, Scope),
        (words.HoldKind, HoldKind),
        (words.IfHeld, IfHeld),
        (words.Algorithm, Algorithm),
        (words.CellField, cells.CellField),
        (words.Relation, cells.Relation),
    ],
)
def test_words_are_those_of_the_state_machine(of_wire: Any, of_machine: Any) -> None:
    """A word that one of the two does not know could not be said, or would be no word of the log."""
    assert get_args(of_wire) == tuple(of_machine)


def test_the_usual_priority_is_that_of_the_state_machine() -> None:
    """What does not say one means the same everywhere."""
    assert words.PRIORITY_DEFAULT == PRIORITY_DEFAULT


def test_the_plainest_lock() -> None:
    """What is left out is as usual, the lock is held by the stream's session, and its ids are new."""
    one, two = of_log(said.StreamAcquire("a"), said.StreamAcquire("a"))
    assert type(one) is holds.Acquire
    assert (one.name, one.mode, one.scope, one.session_id) == ("a", Mode.EXCLUSIVE, Scope.NODE, SESSION)
    assert (one.attempt_id, two.attempt_id) == (str(one.hold_id), str(two.hold_id))
    assert one.hold_id != two.hold_id
    assert {len(each.hold_id) for each in (one, two)} == {ID_CHARACTERS}


def test_several_locks() -> None:
    """They are wanted each with its mode and scope."""
    (several,) = of_log(said.StreamAcquire("", locks=(said.StreamLock("b"), said.StreamLock("c", "shared"))))
    assert several.locks == (Wanted("b"), Wanted("c", Mode.SHARED))


def test_an_id_that_was_given_is_taken() -> None:
    """It may be given again in a later attempt: that of the attempt is new each time."""
    one, two = of_log(said.StreamAcquire("a", hold_id=HOLD), said.StreamAcquirePermits("a", 1, hold_id=HOLD))
    assert one.hold_id == two.hold_id == HOLD
    assert len({HOLD, one.attempt_id, two.attempt_id}) == 3


def test_a_lease_of_its_own_is_left_alone() -> None:
    """What says what it lives by does not live with the session of the stream."""
    asked = [said.StreamAcquire("a", ttl_ms=5_000), said.StreamAcquire("a", session_id=OTHER)]
    asked.append(said.StreamAcquire("a", is_endless=True))
    assert [each.session_id for each in of_log(*asked)] == [NO_SESSION, OTHER, NO_SESSION]


def test_a_campaign_lives_with_a_session_in_any_case() -> None:
    """That of the stream, or the one that it names."""
    campaign, other = of_log(said.StreamCampaign("e", "v"), said.StreamCampaign("e", "v", session_id=OTHER))
    assert (campaign.session_id, other.session_id) == (SESSION, OTHER)


@pytest.mark.parametrize(
    "asked",
    [
        said.StreamDeleteCells(b"", is_prefix=True),
        said.StreamDeleteCells(b"a", is_all=True),
        said.StreamDeleteCells(b"a" * 513, is_prefix=True),
    ],
)
def test_a_prefix_of_cells_is_not_empty_by_mistake(asked: said.Command) -> None:
    """That all are to be deleted has to be said, and then there is no prefix."""
    with pytest.raises(ProblemError, match="prefix: "):
        of_log(asked)
    assert of_log(said.StreamDeleteCells(b"", is_all=True)) == (DeleteCells(b"", is_prefix=True),)


def test_every_command_with_an_attempt_has_ids() -> None:
    """Without them it would be refused, or share one."""
    with_attempt = [each for each in of_log(*EXAMPLES) if isinstance(each, holds.MayWait)]
    assert {len(each.attempt_id) for each in with_attempt} == {ID_CHARACTERS}
    assert len(with_attempt) == 4


def test_every_command_of_a_stream_may_be_numbered() -> None:
    """The log reads no others in a frame."""
    assert {type(each) for each in of_log(*EXAMPLES)} <= set(get_args(NumberedCommand))


@pytest.mark.parametrize("hold_id", ["a", "g" * 32, "a" * 33, "a " * 16, "\u0661" * 32])
def test_an_id_that_others_could_guess_is_refused(hold_id: str) -> None:
    """Ids of holds are secrets: a client's own look as those that nodes make."""
    for asked in (said.StreamAcquire("a", hold_id=hold_id), said.StreamCampaign("e", "v", hold_id=hold_id)):
        with pytest.raises(ProblemError, match="hold_id"):
            of_log(asked)
