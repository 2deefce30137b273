"""What `scripts/fuzz` feeds with bytes: each decoder of what comes from outside, and how it may refuse them.

A target returns, or raises one of the errors by which its decoder refuses. Anything else is a finding: it
would end a connection with a traceback, or a node.
"""

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from cluster import config_secrets
from cluster.consensus import member_list, messages
from cluster.consensus.member_list import Members
from cluster.errors import DataDirError
from cluster.peers import handshake
from cluster.storage import journal_format, recovery, snapshot_format
from cluster.storage.snapshot_format import Snapshot, SnapshotDamaged
from holdfast import token_lines
from holdfast.wire.stream import Commands, ToNode
from lockapi.problems import ProblemError
from lockapi.requests.stream import decode_binary, decode_text, numbered
from lockstate.machine import LockMachine
from lockstate.stored import snapshot
from lockstate.words import codec
from lockstate.words.ids import SessionId
from lockstate.words.versions import UnknownVersionError
from redis_api.protocol.resp import CommandParser, ProtocolError
from tests.support.stream_client import acquire
from tests.unit.cluster.storage.crash_disk import CrashDisk

STORED: Final = Path(__file__).resolve().parents[2] / "tests" / "compat" / "stored"
"""What releases have written: good bytes to begin with."""
EXAMPLES_MAX: Final = 20
"""Entries of each release: a fuzzer tries all examples before it makes anything of them."""
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What whoever calls a decoder of msgspec has to expect."""
_DIRECTORY: Final = Path("/data")
_QUIET: Final = logging.getLogger("fuzz.journal")
_QUIET.setLevel(logging.CRITICAL)
_SALT: Final = b"s" * journal_format.SALT_BYTES
_HEADER: Final = journal_format.segment_header(1, _SALT, journal_format.NO_SALT)


class Target(NamedTuple):
    """A decoder, as it is fed."""

    take: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    """The errors by which it may refuse what it is given."""
    examples: Callable[[], Iterable[bytes]]
    """Good bytes, from which a fuzzer goes on."""

    def feed(self, data: bytes) -> bool:
        """Return whether the decoder took the bytes. Raises what it must not raise."""
        try:
            self.take(data)
        except self.refusals:
            return False
        return True


def _redis(data: bytes) -> None:
    """Read commands, whose bytes come in two pieces."""
    parser = CommandParser()
    for piece in (data[: len(data) // 2], data[len(data) // 2 :]):
        parser.feed(piece)
        while (words := parser.next_command()) is not None:
            assert words, "a command has a name"


def _handshake(data: bytes) -> None:
    message = handshake.decode(data)
    if isinstance(message, handshake.Refusal):
        message.objection  # noqa: B018 - a property that decodes


def _entry(data: bytes) -> None:
    """Read an entry, and apply it: no node may break on any."""
    codec.entry_time(data)
    machine = LockMachine()
    machine.apply(codec.decode_entry(data))
    snapshot.encode(machine.state)


def _snapshot(data: bytes) -> None:
    """Read a state; what was read can be written and read again."""
    machine = LockMachine(snapshot.decode(data))
    assert snapshot.digest(
        LockMachine(snapshot.decode(snapshot.encode(machine.state))).state
    ) == snapshot.digest(machine.state)


def _snapshot_file(data: bytes) -> None:
    disk = CrashDisk()
    disk.put(_DIRECTORY / "snapshot", data)
    snapshot_format.read_snapshot(disk.open(_DIRECTORY / "snapshot"), disk)


def _journal(data: bytes) -> None:
    """Recover from a segment with these blocks."""
    disk = CrashDisk()
    disk.put(recovery.segment_path(_DIRECTORY, 1), _HEADER + data)
    recovery.recover(_DIRECTORY, disk, _QUIET)


def _journal_records(data: bytes) -> None:
    """Recover from a segment whose blocks are whole: one with a begin, one with these records."""
    _journal(_blocks(data))


def _blocks(*contents: bytes) -> bytes:
    seed, blocks = journal_format.segment_seed(_HEADER), b""
    for sequence, content in enumerate([journal_format.begin_record(1, 1), *contents], 1):
        blocks += journal_format.encode_block([content], sequence, sequence - 1, 0, seed)
    return blocks


def _stream_message(message: ToNode) -> None:
    """Have commands numbered, as a stream does before it submits them."""
    if isinstance(message, Commands):
        codec.encode_command(numbered(message, SessionId("s"), 1))


def _tokens(data: bytes) -> None:
    """Read a tokens file; each line that was read can be written and means the same."""
    for line in token_lines.parse(data):
        assert token_lines.parse(f"{token_lines.written(line)}\n".encode()) == (line,)


def _histories() -> Iterable[bytes]:
    for path in sorted(STORED.glob("*/history.json")):
        for row in json.loads(path.read_text())[-EXAMPLES_MAX:]:
            yield bytes.fromhex(row["entry"])


def _bodies() -> Iterable[bytes]:
    vote = {"term": 1, "last_log_index": 1, "last_log_term": 0}
    append = {"type": "append_entries", "term": 4, "commit_index": 16, "prevLogIdx": 16, "prevLogTerm": 4}
    bodies: list[dict[str, Any]] = [
        {**append, "entries": []},
        {**append, "entries": [(b"\0" + codec.encode_entry(1, []), 17, 4)]},
        {"type": "next_node_idx", "next_node_idx": 3, "reset": False, "success": True, "term": 1},
        {"type": "pre_vote", **vote},
        {"type": "pre_vote_granted", "term": 1},
        {"type": "request_vote", **vote, "transfer": False},
        {"type": "response_vote", "term": 1},
        {"type": "timeout_now", "term": 1},
    ]
    return map(msgspec.msgpack.encode, bodies)


def _lists() -> Iterable[bytes]:
    yield member_list.encode(Members(cluster_id="c" * 32))


def _states() -> Iterable[bytes]:
    return [path.read_bytes() for path in sorted(STORED.glob("*/snapshot"))]


def _snapshot_files() -> Iterable[bytes]:
    disk, path = CrashDisk(), _DIRECTORY / "new"
    whole = Snapshot((b"", 1, 1), (b"x", 2, 1), b"state", b"members", log_digest=7)
    snapshot_format.write_snapshot(path, whole, disk)
    return [disk.content(path)]


def _records() -> Iterable[bytes]:
    entry = journal_format.entry_head(b"command", 1, 3) + b"command"
    return [
        journal_format.hard_state_record(3, "n1") + entry,
        *[
            entry + journal_format.index_record(kind, 1)
            for kind in journal_format.RecordType
            if kind not in {journal_format.RecordType.ENTRY, journal_format.RecordType.HARD_STATE}
        ],
    ]


_ASKED: Final = [2, 1, [], 0, [acquire("a")]]


TARGETS: Final = {
    "peer-handshake": Target(_handshake, _UNREADABLE, lambda: [
        handshake.encode(handshake.Hello(handshake.PROTOCOL, "n1", "n2", b"n" * 16)),
    ]),
    "peer-frames": Target(messages.decode, _UNREADABLE, _bodies),
    "members": Target(member_list.decode, (member_list.MembersUnreadable,), _lists),
    "entries": Target(_entry, (UnknownVersionError,), _histories),
    "journal": Target(_journal, (DataDirError,), lambda: [_blocks(one) for one in _records()]),
    "journal-records": Target(_journal_records, (DataDirError,), _records),
    "snapshot": Target(_snapshot, (snapshot.SnapshotError,), _states),
    "snapshot-file": Target(_snapshot_file, (SnapshotDamaged,), _snapshot_files),
    "stream-msgpack": Target(
        lambda data: _stream_message(decode_binary(data)), (*_UNREADABLE, ProblemError),
        lambda: [msgspec.msgpack.encode(_ASKED)],
    ),
    "stream-json": Target(
        lambda data: _stream_message(decode_text(data)), (*_UNREADABLE, ProblemError),
        lambda: [msgspec.json.encode(_ASKED)],
    ),
    "redis": Target(_redis, (ProtocolError,), lambda: [
        b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$2\r\nNX\r\n", b"PING a\r\n*1\r\n$4\r\nQUIT\r\n", b"*0\r\n\r\n"
    ]),
    "tokens": Target(_tokens, (token_lines.LinesWrong,), lambda: [
        b"# comment\nann sha256:" + b"0" * 64 + b" read,acquire@jobs/a%20b until=2027-01-31\n",
        b"web cert:web.example.com read@public none@public/x\n",
    ]),
    "secret": Target(config_secrets.parse, (config_secrets.SecretsUnreadable,), lambda: [
        b"current: " + b"a" * 32 + b"\nnext: " + b"b" * 32 + b"\n",
    ]),
}  # fmt: skip
"""All targets, by name."""
