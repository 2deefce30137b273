"""The format of backup files: what was changed, cut off or is something else is refused."""

import hashlib
import random
import struct

import msgspec
import pytest

from holdfast.wire import backup
from holdfast.wire.backup import BackupDamaged, BackupInfo

STATE = bytes(range(256)) * 3
INFO = BackupInfo(
    cluster_id="0123456789abcdef" * 2,
    version="1.0.0",
    rules=1,
    revision=17,
    highest_token=5,
    created_ms=1_800_000_000_000,
    members={"n1": "10.0.0.1:7800"},
    log_index=19,
    log_term=2,
    state_bytes=len(STATE),
)
FLIPS = 1_000


def sealed(content: bytes) -> bytes:
    """Return a file with a right digest."""
    return content + hashlib.sha256(content).digest()


WHOLE = sealed(backup.head(INFO) + STATE)


@pytest.mark.parametrize("piece_bytes", [1, 7, 64, len(STATE), len(WHOLE)])
def test_a_backup_is_read_in_pieces_of_any_size(piece_bytes: int) -> None:
    """Header and state come out as they went in."""
    state: list[bytes] = []
    pieces = [WHOLE[start : start + piece_bytes] for start in range(0, len(WHOLE), piece_bytes)]
    assert backup.check(pieces, state.append) == INFO
    assert b"".join(state) == STATE


def test_an_empty_state_is_a_state() -> None:
    """Nothing between head and digest is right if that is what the header says."""
    info = msgspec.structs.replace(INFO, state_bytes=0)
    assert backup.check([sealed(backup.head(info))]) == info


def test_every_flipped_byte_is_refused() -> None:
    """A thousand files with one byte changed, at each place of the header and at random: none is taken."""
    chance = random.Random(1)
    places = [*range(len(backup.head(INFO))), *range(len(WHOLE) - backup.DIGEST_BYTES, len(WHOLE))]
    places += [chance.randrange(len(WHOLE)) for _ in range(FLIPS - len(places))]
    assert len(places) == FLIPS
    for place in places:
        changed = bytearray(WHOLE)
        changed[place] ^= chance.randrange(1, 256)
        with pytest.raises(BackupDamaged):
            backup.check([bytes(changed)])


def test_every_shorter_file_is_refused() -> None:
    """Wherever a file was cut off, it says so."""
    for end in range(1, len(WHOLE)):
        with pytest.raises(BackupDamaged, match="cut off"):
            backup.check([WHOLE[:end]])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a backup of Holdfast"),
        (b"HOLDFSNP" + WHOLE[8:], "not a backup of Holdfast"),
        (WHOLE[:8] + struct.pack("<I", 2) + WHOLE[12:], "it has format 2; this release reads format 1"),
        (WHOLE[:12] + struct.pack("<I", 1 << 30) + WHOLE[16:], "its header is said to have 1073741824 bytes"),
        (WHOLE[:12] + struct.pack("<I", 0) + WHOLE[16:], "its header is said to have 0 bytes"),
        (WHOLE + b"x", "it is longer than the 768 bytes of state"),
        (sealed(WHOLE[:12] + struct.pack("<I", 2) + b"[]"), "its header cannot be read"),
        (
            sealed(backup.head(msgspec.structs.replace(INFO, state_bytes=-1))),
            "its header says that the state has less than no bytes",
        ),
        (WHOLE[:-1] + bytes([WHOLE[-1] ^ 1]), "its checksum does not match: bytes of it were changed"),
    ],
)
def test_the_refusal_says_what_is_wrong(content: bytes, says: str) -> None:
    """People read why a file is not taken."""
    with pytest.raises(BackupDamaged, match=says):
        backup.check([content])
