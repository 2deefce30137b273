"""What clients say on a stream: messages decoded, and their commands as those of the log.

`holdfast.wire` has the messages and the commands (docs/stream.md); `_COMMANDS` says which command of the log
each of them is, so that either of the two can change without the other. The node fills in what clients leave
out: ids of new holds and attempts, and the session, which is that of the stream wherever no other lease is
asked for. What a command means, and its bounds, is checked where it is applied: a wrong one is refused under
its number. What nobody can mean is refused here, with all that came in the same message.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from holdfast import wire
from holdfast.wire import commands as said
from holdfast.wire.stream import Commands, StreamHello, ToNode
from holdfast.wire.words import PRIORITY_DEFAULT
from lockapi.problems import ProblemError
from lockapi.requests.cells import check_text_key, deletion
from lockapi.requests.fields import check, check_new_id
from lockapi.requests.ids import new_ids, new_session_id
from lockapi.requests.locks import check_if_held, checked_names
from lockstate.rules import elections
from lockstate.words import cell_operations, limits
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.holds import (
    Acquire,
    AcquirePermits,
    Campaign,
    Convert,
    Proclaim,
    Release,
    ReleaseByValue,
    Renew,
    RenewByValue,
)
from lockstate.words.commands.primitives import AdvanceFence, TakeRate
from lockstate.words.commands.sessions import CloseSession, OpenSession
from lockstate.words.commands.streams import EndWait, Numbered, NumberedCommand, ResumeStream
from lockstate.words.ids import AttemptId, HoldId, OwnerName, SessionId
from lockstate.words.kinds import Algorithm, HoldKind, IfHeld
from lockstate.words.modes import Mode, Scope
from lockstate.words.versions import GROUP
from lockstate.words.wanted import Uncommon, Wanted

COMMANDS_COUNT_MAX: Final = 1_024
"""Commands in one message, and numbers without an answer."""
PLACE: Final = (GROUP, 0)
"""The group of this node, and how often names were moved between groups."""

_text: Final = msgspec.json.Decoder(ToNode)
_encoder: Final = msgspec.msgpack.Encoder()

decode_binary: Final = msgspec.msgpack.Decoder(ToNode).decode
"""Returns a message that came as MessagePack. Raises DecodeError, RecursionError, UnicodeDecodeError."""


def decode_text(data: str | bytes) -> ToNode:
    """Return a message that came as JSON. Raises what `decode_binary` does.

    JSON has numbers that MessagePack has not, and the log is MessagePack.
    """
    message: ToNode = _text.decode(data)
    try:
        _encoder.encode(message)
    except OverflowError:
        raise msgspec.DecodeError("a number has more than 64 bits") from None
    return message


class WrongMessage(ProblemError):
    """A message that no client sends that does as docs/stream.md says."""

    def __init__(self, detail: str) -> None:
        super().__init__("invalid-request", detail)


def opening(hello: StreamHello) -> OpenSession:
    """Return the command that opens a session."""
    return OpenSession(new_session_id(), hello.ttl_ms, hello.labels)


def resuming(session_id: SessionId) -> ResumeStream:
    """Return the command that begins or resumes the stream of a session."""
    return ResumeStream(session_id)


def closing(session_id: SessionId) -> CloseSession:
    """Return the command that ends a session."""
    return CloseSession(session_id)


def numbered(message: Commands[said.Command], session_id: SessionId, epoch: int) -> Numbered:
    """Return the frame for the log. Raises ProblemError, of which WrongMessage ends the stream."""
    count = len(message.commands)
    if count > COMMANDS_COUNT_MAX:
        raise WrongMessage(f"commands: {count}; at most {COMMANDS_COUNT_MAX} are allowed")
    if not 1 <= message.first <= limits.TOKEN_MAX:
        raise WrongMessage(f"first: {message.first}; must be 1 to {limits.TOKEN_MAX}")
    if not 0 <= message.timeout_ms <= wire.TIMEOUT_MS_MAX:
        raise WrongMessage(f"timeout_ms: {message.timeout_ms}; must be 0 to {wire.TIMEOUT_MS_MAX}")
    if len(message.acked) > limits.STREAM_RANGES_MAX:
        raise WrongMessage(
            f"acked: {len(message.acked)} ranges; at most {limits.STREAM_RANGES_MAX} are allowed"
        )
    before = 0
    for first, last in message.acked:
        if not before < first <= last <= limits.TOKEN_MAX:
            raise WrongMessage(f"acked: {first} to {last} after {before}; ranges are [first, last], and rise")
        before = last
    commands = _of_log(message.commands, session_id)
    return Numbered(count, session_id, epoch, message.first, message.acked, commands)


def _of_log(commands: tuple[said.Command, ...], session_id: SessionId) -> tuple[NumberedCommand, ...]:
    """Return the commands of the log that clients mean. Raises ProblemError."""
    # One for each that needs it: so random bytes are asked for once, and not for each command.
    ids = iter(new_ids(sum(map(_WITH_IDS.__contains__, map(type, commands)))))
    return tuple([_COMMANDS[command.__class__](command, session_id, ids) for command in commands])


# -- what asks for a hold, or for a change of one ---------------------------------------------------------

_MODES: Final[dict[str, Mode]] = {each.value: each for each in Mode}
_SCOPES: Final[dict[str, Scope]] = {each.value: each for each in Scope}
_KINDS: Final[dict[str, HoldKind]] = {each.value: each for each in HoldKind}
"""The words of clients as those of the state machine: to look one up is quicker than to make it."""


def _acquire(asked: said.StreamAcquire, session_id: SessionId, ids: Iterator[str]) -> Acquire:
    hold_id, attempt_id = _ids(asked.hold_id, ids)
    if asked.session_id or asked.ttl_ms or asked.is_endless:
        session_id = _session_id(asked.session_id)
    if_held = None if asked.if_held is None else IfHeld(asked.if_held)
    check_if_held(if_held, session_id)
    return Acquire(
        asked.name,
        _MODES[asked.mode],
        hold_id,
        attempt_id,
        session_id,
        asked.ttl_ms,
        OwnerName(asked.owner),
        asked.wait_ms,
        "",
        _SCOPES[asked.scope],
        tuple([Wanted(lock.name, _MODES[lock.mode], _SCOPES[lock.scope]) for lock in asked.locks]),
        if_held,
        _uncommon(asked),
    )


def _uncommon(asked: said.StreamAcquire | said.StreamAcquirePermits) -> Uncommon | None:
    if (
        asked.lock_delay_ms
        or asked.note
        or asked.value
        or asked.is_secret
        or asked.is_endless
        or asked.priority != PRIORITY_DEFAULT
    ):
        return Uncommon(
            asked.lock_delay_ms, asked.note, asked.value, asked.is_secret, asked.priority, asked.is_endless
        )
    return None


def _acquire_permits(
    asked: said.StreamAcquirePermits, session_id: SessionId, ids: Iterator[str]
) -> AcquirePermits:
    hold_id, attempt_id = _ids(asked.hold_id, ids)
    if asked.session_id or asked.ttl_ms or asked.is_endless:
        session_id = _session_id(asked.session_id)
    return AcquirePermits(
        asked.name,
        asked.limit,
        asked.permits,
        hold_id,
        attempt_id,
        session_id,
        asked.ttl_ms,
        OwnerName(asked.owner),
        asked.wait_ms,
        "",
        asked.is_strict,
        _uncommon(asked),
    )


def _campaign(asked: said.StreamCampaign, session_id: SessionId, ids: Iterator[str]) -> Campaign:
    hold_id, attempt_id = _ids(asked.hold_id, ids)
    session_id = _session_id(asked.session_id) or session_id
    if_held = None if asked.if_held is None else IfHeld(asked.if_held)
    check(elections.check_uncounted(if_held))
    return Campaign(
        asked.name,
        session_id,
        asked.value,
        hold_id,
        attempt_id,
        OwnerName(asked.owner),
        asked.wait_ms,
        if_held=if_held,
    )


def _convert(asked: said.StreamConvert, _: SessionId, ids: Iterator[str]) -> Convert:
    ticket_id, attempt_id = _ids("", ids)
    return Convert(_hold_id(asked.hold_id), _MODES[asked.mode], ticket_id, attempt_id, asked.wait_ms)


def _ids(hold_id: str, ids: Iterator[str]) -> tuple[HoldId, AttemptId]:
    """Return the id of a hold, the client's own if it gave one, and that of the attempt at it.

    Whoever gives the id of its hold may give it again in a later attempt, whose own id is another then.
    Raises ProblemError for an id that is none.
    """
    made = next(ids)
    if not hold_id:
        return HoldId(made), AttemptId(made)
    check_new_id("hold_id", hold_id)
    return HoldId(hold_id), AttemptId(made)


def _hold_id(text: str) -> HoldId:
    """Return the id of a hold that exists, or did. Raises ProblemError."""
    check(limits.check_id("hold_id", text))
    return HoldId(text)


def _session_id(text: str) -> SessionId:
    """Return the id of a session, "" if none is named. Raises ProblemError."""
    if text:
        check(limits.check_id("session_id", text))
    return SessionId(text)


# -- all others -------------------------------------------------------------------------------------------


def _renew(asked: said.StreamRenew, _: SessionId, _ids: Iterator[str]) -> Renew:
    return Renew(_hold_id(asked.hold_id), asked.ttl_ms, "", _KINDS[asked.kind], asked.exact)


def _release(asked: said.StreamRelease, _: SessionId, _ids: Iterator[str]) -> Release:
    names = checked_names(asked.names) if asked.names else ()
    return Release(_hold_id(asked.hold_id), "", names, _KINDS[asked.kind])


def _renew_by_value(asked: said.StreamRenewByValue, _: SessionId, _ids: Iterator[str]) -> RenewByValue:
    if asked.ttl_ms:
        check(limits.check_ttl(asked.ttl_ms))
    return RenewByValue(asked.name, asked.value, asked.ttl_ms, _KINDS[asked.kind], "", asked.exact)


def _release_by_value(asked: said.StreamReleaseByValue, _: SessionId, _ids: Iterator[str]) -> ReleaseByValue:
    return ReleaseByValue(asked.name, asked.value, _KINDS[asked.kind])


def _proclaim(asked: said.StreamProclaim, _: SessionId, _ids: Iterator[str]) -> Proclaim:
    return Proclaim(_hold_id(asked.hold_id), asked.value)


def _take_rate(asked: said.StreamTakeRate, _: SessionId, _ids: Iterator[str]) -> TakeRate:
    algorithm = None if asked.algorithm is None else Algorithm(asked.algorithm)
    return TakeRate(asked.name, asked.limit, asked.window_ms, algorithm, asked.cost)


def _advance_fence(asked: said.StreamAdvanceFence, _: SessionId, _ids: Iterator[str]) -> AdvanceFence:
    return AdvanceFence(asked.name, asked.token)


def _put_cell(asked: said.StreamPutCell, _: SessionId, _ids: Iterator[str]) -> PutCell:
    check_text_key(asked.key)
    return PutCell(asked.key, asked.value, _session_id(asked.session_id), asked.ttl_ms)


def _delete_cells(asked: said.StreamDeleteCells, _: SessionId, _ids: Iterator[str]) -> DeleteCells:
    if asked.is_prefix or asked.is_all:
        return deletion(asked.key, is_all=asked.is_all)
    check_text_key(asked.key)
    return DeleteCells(asked.key)


def _transact_cells(asked: said.StreamTransactCells, _: SessionId, _ids: Iterator[str]) -> TransactCells:
    return TransactCells(
        tuple(map(_compare, asked.compares)),
        tuple(map(_operation, asked.then)),
        tuple(map(_operation, asked.otherwise)),
    )


def _compare(asked: said.Compare) -> cell_operations.Compare:
    if isinstance(asked, said.StreamHoldCompare):
        return cell_operations.HoldCompare(HoldId(asked.hold_id), asked.token)
    check_text_key(asked.key)
    of, relation = cell_operations.CellField(asked.of), cell_operations.Relation(asked.relation)
    return cell_operations.CellCompare(asked.key, of, relation, asked.number, asked.value)


def _operation(asked: said.CellOperation) -> cell_operations.CellOperation:
    check_text_key(asked.key)
    match asked:
        case said.StreamCellPut():
            return cell_operations.PutOperation(
                asked.key, asked.value, _session_id(asked.session_id), asked.ttl_ms
            )
        case said.StreamCellDelete():
            return cell_operations.DeleteOperation(asked.key)
        case said.StreamCellGet():
            return cell_operations.GetOperation(asked.key)


def _end_wait(asked: said.StreamEndWait, _: SessionId, _ids: Iterator[str]) -> EndWait:
    return EndWait(asked.number)


_COMMANDS: Final[dict[type[Any], Callable[[Any, SessionId, Iterator[str]], NumberedCommand]]] = {
    said.StreamAcquire: _acquire,
    said.StreamAcquirePermits: _acquire_permits,
    said.StreamCampaign: _campaign,
    said.StreamConvert: _convert,
    said.StreamRenew: _renew,
    said.StreamRelease: _release,
    said.StreamRenewByValue: _renew_by_value,
    said.StreamReleaseByValue: _release_by_value,
    said.StreamProclaim: _proclaim,
    said.StreamTakeRate: _take_rate,
    said.StreamAdvanceFence: _advance_fence,
    said.StreamPutCell: _put_cell,
    said.StreamDeleteCells: _delete_cells,
    said.StreamTransactCells: _transact_cells,
    said.StreamEndWait: _end_wait,
}
"""What makes the command of the log of one that a client says: of it, the stream's session, and new ids."""
_WITH_IDS: Final = frozenset(
    {said.StreamAcquire, said.StreamAcquirePermits, said.StreamCampaign, said.StreamConvert}
)
"""The commands that take a new id."""
