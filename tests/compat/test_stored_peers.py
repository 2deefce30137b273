"""What nodes of an earlier release have said to each other means today what it meant then.

`stored` holds the bytes; make_peers.py says how they were made. Nothing there ever changes.
"""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from cluster.commands.clock_watch import ClockWatch
from cluster.consensus import member_list
from cluster.consensus.divergence import Divergence
from cluster.consensus.founding import News
from cluster.consensus.replica import Replica, Role
from cluster.peers import handshake
from cluster.peers.first_start import FirstStart, FoundingMeans
from cluster.peers.handshake import Challenge, HandshakeState, Hello, Objection, Particulars, Proof, Refusal
from cluster.peers.link import FrameKind
from cluster.peers.peering import Handlers, Peering
from cluster.peers.secret_use import SecretsSaid
from cluster.storage.data_directory import DataDir
from lockstate.machine import LockMachine

STORED = Path(__file__).with_name("stored")
SECRET = b"the secret of a stored cluster"
RELEASE = "1.0.0"
SPEAKERS = pytest.mark.parametrize("release", [RELEASE])


def stored_bytes(release: str, table: str) -> dict[str, bytes]:
    """Return the messages of one table of peers.json, by name."""
    stored = json.loads((STORED / release / "peers.json").read_text())
    return {name: bytes.fromhex(data) for name, data in stored[table].items()}


@SPEAKERS
def test_a_handshake_is_understood_and_repeated(release: str) -> None:
    """Stored proofs hold, and this release would send the same bytes."""
    stored = {name: handshake.decode(data) for name, data in stored_bytes(release, "handshake").items()}
    hello, challenge, refusal = stored["hello"], stored["challenge"], stored["refusal"]
    assert isinstance(hello, Hello)
    assert isinstance(challenge, Challenge)
    assert isinstance(refusal, Refusal)
    assert hello.protocol == 1
    exchange = HandshakeState("n1", "n2", hello.nonce, challenge.nonce)
    told = {
        "dialer": Particulars("disk-1", "http://n1", 5, cluster_id="c1"),
        "acceptor": Particulars("disk-2", "http://n2"),
    }
    for role, particulars in told.items():
        proof = stored[role]
        assert isinstance(proof, Proof)
        assert exchange.proven(SECRET, role.encode(), proof) == particulars
        assert exchange.prove(SECRET, role.encode(), particulars) == proof
    assert refusal.objection == Objection("it was removed", is_final=True, kind="removed")
    assert exchange.is_refused(SECRET, refusal)
    for name, data in stored_bytes(release, "handshake").items():
        assert handshake.encode(stored[name]) == data


class Listener:
    """A node that writes down what its peers say."""

    engine = SimpleNamespace(log_room=0)
    membership = SimpleNamespace(voters={"n9"})
    role = Role(None, 0, is_leader=False, is_candidate=False)
    is_log_empty = True

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.heard.append((name, *args))


FRAME: msgspec.msgpack.Decoder[tuple[int, int, msgspec.Raw]] = msgspec.msgpack.Decoder(
    tuple[int, int, msgspec.Raw]
)


@SPEAKERS
@pytest.mark.parametrize("name", stored_bytes(RELEASE, "frames"))
def test_frames_reach_the_node(release: str, name: str, tmp_path: Path) -> None:
    """Every frame that nodes of a release sent to each other is handed on, and would be sent the same."""
    kind, _, body = FRAME.decode(stored_bytes(release, "frames")[name])
    assert FrameKind(kind).name == name.split(" ", maxsplit=1)[0]
    datadir, listener = DataDir.open(tmp_path / "n9", "n9"), Listener()
    means = FoundingMeans(lambda *_: None, lambda _: None, lambda call: call())
    peering = Peering(
        datadir,
        FirstStart(datadir, {}, means, joins=True),
        "http://n9",
        cast("Replica", listener),
        machine=lambda: cast("LockMachine", listener),
        sync_ms=lambda: 0,
        state_bytes_max=0,
        dialed=lambda _: "",
        is_alive=lambda _: True,
        clocks=ClockWatch("n9", lambda: 0, frozenset),
        divergence=cast("Divergence", SimpleNamespace(heard=listener.compared)),
    )
    peering.handlers = Handlers(**{name: getattr(listener, name) for name in Handlers.__struct_fields__})
    peering.channels.listen(lambda *said: listener.told([*said]))
    peering.is_established = True
    sender = "n1"
    if kind == FrameKind.FORWARD:
        sender = msgspec.msgpack.decode(body)[1].rpartition(".")[0]
    if kind in OF_THE_LINK:
        heard: object = msgspec.msgpack.decode(body, type=OF_THE_LINK[FrameKind(kind)])
    elif kind == FrameKind.FOUNDING:
        heard = msgspec.msgpack.decode(body, type=News)
    else:
        peering.frame(sender, kind, body)
        heard = peering.table.pings()[sender] if kind == FrameKind.PING else listener.heard[-1][-1]
    # This release sends the same content, in whatever order a map may have; new fields stand behind it.
    assert begins_with(msgspec.msgpack.decode(msgspec.msgpack.encode(heard)), msgspec.msgpack.decode(body))
    datadir.close()


OF_THE_LINK: dict[FrameKind, Any] = {FrameKind.REFUSED: Objection, FrameKind.SECRETS: SecretsSaid}


def begins_with(ours: object, theirs: object) -> bool:
    """Whether all that `theirs` says is said by `ours` at the same place, with more at the ends of arrays."""
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) >= len(theirs) and all(map(begins_with, ours, theirs))
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(begins_with(ours[key], theirs[key]) for key in theirs)
    return ours == theirs


def test_member_lists_are_read_and_written_as_before() -> None:
    """A list that stands in a log or a snapshot is the same list, and the same bytes."""
    for name, data in stored_bytes(RELEASE, "members").items():
        members = member_list.decode(data)
        assert member_list.encode(members) == data, name
        assert members.nodes["n3"].disk_id == "disk-3"
    replaced = member_list.decode(stored_bytes(RELEASE, "members")["replaced"])
    assert (replaced.removed, replaced.version) == ({"disk-1": "n1"}, 3)
