"""What the lean clients of `scripts/bench peers` say and hear, byte by byte, and how their systems end."""

import struct
from pathlib import Path
from typing import Any

import pytest

from lab.loads import websocket_frames
from lab.loads.load import Tally
from lab.peers import etcd_grpc, grpc, system, zookeeper_client
from lab.peers.closed_loop import Worker
from lab.peers.system import programs
from scripts.local_cluster import ClusterFailure
from tests.support.processes import wait_until
from tests.unit.lab.peer_parts import Echo


class Sink:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.data = b""

    def write(self, data: bytes) -> None:
        """Keep it."""
        self.data += data

    def close(self) -> None:
        """Nothing is open."""


def frames(data: bytes) -> list[tuple[int, int, int, bytes]]:
    """Return kind, flags, stream and payload of HTTP/2 frames."""
    found = []
    while data:
        size, kind, flags, stream = (
            struct.unpack("!I", b"\0" + data[:3])[0],
            *struct.unpack("!BBI", data[3:9]),
        )
        found.append((kind, flags, stream, data[9 : 9 + size]))
        data = data[9 + size :]
    return found


async def test_calls_respect_the_window_of_the_server() -> None:
    """What does not fit into the server's window waits until it opens, and nothing is lost."""
    client = grpc.Grpc()
    sink: Any = Sink()
    client.connection_made(sink)
    worker = Worker(Tally(), Echo(), "name", 0)
    sink.data = b""
    for _ in range(100):
        client.ask(worker, b"head", bytes(995), lambda _worker, _message: None)
    sent = [each for each in frames(sink.data) if each[0] == 0]
    assert len(sent) == 65  # of 1,000 bytes, into 65,535
    assert len(client.waiting()) == 100
    client.data_received(grpc.frame(8, 0, 0, struct.pack("!I", 10_000)))
    assert len([each for each in frames(sink.data) if each[0] == 0]) == 75
    client.data_received(grpc.frame(8, 0, 0, struct.pack("!I", 1 << 20)))
    calls = [each for each in frames(sink.data) if each[0] == 0]
    assert [stream for _, _, stream, _ in calls] == list(range(1, 200, 2))


async def test_answers_come_in_any_order_and_pieces() -> None:
    """Answers find their calls by stream; one without a message failed; pings and settings are answered."""
    client = grpc.Grpc()
    sink: Any = Sink()
    client.connection_made(sink)
    tally = Tally()
    worker = Worker(tally, Echo(), "name", 0)
    worker.begin = lambda: None  # type: ignore[method-assign]
    answers: list[bytes] = []
    for _ in range(3):
        client.ask(worker, b"", b"", lambda _, message: answers.append(message))
    sink.data = b""
    message = struct.pack("!BI", 0, 5) + b"hello"
    data = (
        grpc.frame(4, 0, 0, b"")
        + grpc.frame(6, 0, 0, b"pingpong")
        + grpc.frame(1, 4, 3, b"headers")
        + grpc.frame(0, 0, 3, message[:7])
        + grpc.frame(0, 0, 3, message[7:])
        + grpc.frame(1, 5, 3, b"trailers")
        + grpc.frame(1, 5, 1, b"grpc-status 5")
        + grpc.frame(3, 0, 5, struct.pack("!I", 7))
    )
    for at in range(len(data)):
        client.data_received(data[at : at + 1])
    assert answers == [b"hello"]
    assert tally.errors == ["refused: grpc-status 5", "reset: 7"]
    assert frames(sink.data) == [(4, 1, 0, b""), (6, 1, 0, b"pingpong")]
    assert client.waiting() == []


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536])
def test_frames_of_a_websocket(size: int) -> None:
    """A frame of every length is written with a mask, and read without one once all of it is there."""
    payload = bytes(size)
    written = websocket_frames.write(payload)
    length = {126: b"\0\x7e", 65_535: b"\xff\xff", 65_536: (65_536).to_bytes(8)}.get(size, b"")
    coded = {126: 126, 65_535: 126, 65_536: 127}.get(size, size)
    assert written == bytes([0x82, 0x80 | coded]) + length + bytes(4) + payload
    sent = b"xx" + bytes([0x82, coded]) + length + payload
    assert websocket_frames.read(sent[:-1], 2) is None
    assert websocket_frames.read(sent[:3], 2) is None
    assert websocket_frames.read(sent + b"more", 2) == (2, len(sent) - size, len(sent))


def test_protobuf_as_its_document_has_it() -> None:
    """The examples of the encoding's documentation: 150 in field 1, "testing" in field 2."""
    assert etcd_grpc.field(1, 150).hex() == "089601"
    assert etcd_grpc.field(2, b"testing").hex() == "120774657374696e67"
    assert etcd_grpc.varint(0) == b"\0"
    assert etcd_grpc.after_header(b"\x0a\x02ab\x10\x01") == b"\x10\x01"


def test_lists_of_jute() -> None:
    """A list has its length, and each string its own."""
    answer = struct.pack("!ii", 0, 2) + struct.pack("!i", 1) + b"a" + struct.pack("!i", 3) + b"bcd"
    assert zookeeper_client.children(answer) == [b"a", b"bcd"]
    assert zookeeper_client.error(struct.pack("!i", -101)) == -101


def test_programs_that_do_not_want_to_end_are_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Asked first, killed when the time is over; both have ended when the block is left by an error."""
    monkeypatch.setattr(system, "STOP_S", 0.3)
    log = tmp_path / "log"
    marks = []

    def run(trap: str) -> None:
        with programs("stubborn") as started:
            for name in ("a", "b"):
                line = f"trap '{trap}' TERM; echo {name} >> marks; while :; do read -t 0.05 < <(:); done"
                started.start(["bash", "-c", line], log)
            wait_until(lambda: (tmp_path / "marks").read_text().count("\n") == 2, "both have begun")
            marks.extend(started.pids)
            raise ZeroDivisionError

    for trap in ("", "echo asked; exit"):
        (tmp_path / "marks").write_text("")
        with pytest.raises(ZeroDivisionError):
            run(trap)
        assert not any(Path(f"/proc/{pid}").exists() for pid in marks)
    assert log.read_text().split() == ["asked", "asked"]


def test_a_program_that_ends_says_its_last_words(tmp_path: Path) -> None:
    """A system that does not start fails with the end of its log; so does one that never answers."""
    with programs("broken") as started:
        started.start(["bash", "-c", "echo cannot bind; exit 3"], tmp_path / "log")
        with pytest.raises(ClusterFailure, match="broken has ended; its last words:\ncannot bind"):
            started.wait(lambda: False)
    with programs("silent") as started:
        started.start(["sleep", "60"], tmp_path / "log")
        with pytest.raises(ClusterFailure, match="silent is not ready"):
            started.wait(lambda: False, timeout_s=0.1)


def test_the_newest_program_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several versions the newest counts, 10 after 9; and what may not be run is not there."""
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    for version in ("9", "10"):
        folder = tmp_path / version / "bin"
        folder.mkdir(parents=True)
        (folder / "server").write_text("")
        (folder / "server").chmod(0o755)
        (folder / "manual").write_text("")
    pattern = f"{tmp_path.relative_to('/')}/*/bin"
    assert system.find_program("server", pattern) == str(tmp_path / "10" / "bin" / "server")
    assert system.find_program("manual", pattern) is None
