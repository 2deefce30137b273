"""The format of a backup file: a header that anybody can read, a state, and a digest over both.

    magic 8 | format u32 | header length u32 | header (JSON) | state | SHA-256 of all before

All integers are little-endian. The state is encoded as in the snapshots of nodes. A client knows nothing of
it: it checks the digest and reads the header.
"""

import hashlib
import struct
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

MEDIA_TYPE: Final = "application/vnd.holdfast.backup"
MAGIC: Final = b"HOLDFBAK"
FORMAT: Final = 1
"""The format that is written and read."""
DIGEST_BYTES: Final = 32

_PREFIX: Final = struct.Struct("<8sII")
_HEADER_BYTES_MAX: Final = 1 << 20
"""Bytes of the longest header, which names a few members. A longer one is damage."""


class BackupDamaged(ValueError):
    """The bytes are not a whole, undamaged backup of this format."""


class BackupInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup file says of itself.

    `version` is that of the node that wrote it, `rules` what its state follows. `revision` counts the entries
    that the state has applied, `highest_token` is the newest fencing token in it. `created_ms` is the node's
    clock (Unix time in milliseconds). `members` are the nodes with their peer addresses. `log_index` and
    `log_term` are those of an entry that is not older than the state.
    """

    cluster_id: str
    version: str
    rules: int
    revision: int
    highest_token: int
    created_ms: int
    members: dict[str, str]
    log_index: int
    log_term: int
    state_bytes: int = 0


def head(info: BackupInfo) -> bytes:
    """Return what stands before the state."""
    header = msgspec.json.encode(info)
    return _PREFIX.pack(MAGIC, FORMAT, len(header)) + header


class BackupReader:
    """Checks a backup that comes in pieces of any size.

    `on_state` is given the state in pieces. What they say must not count before `finish` has returned.
    """

    def __init__(self, on_state: Callable[[bytes], object] = lambda _: None) -> None:
        self._on_state = on_state
        self._digest = hashlib.sha256()
        self._waiting = b""
        """What came and cannot be judged yet: the head while it is not whole, then what may be the digest."""
        self._left = 0
        self.info: BackupInfo | None = None
        """The header, once it is there. Not to be believed before `finish` has returned."""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes. Raises BackupDamaged."""
        self._waiting += piece
        if self.info is None:
            self._read_head()
        if self.info is None or not self._waiting:
            return
        part, self._waiting = self._waiting[: self._left], self._waiting[self._left :]
        if part:
            self._left -= len(part)
            self._digest.update(part)
            self._on_state(part)
        if len(self._waiting) > DIGEST_BYTES:
            raise BackupDamaged(f"it is longer than the {self.info.state_bytes} bytes of state it announces")

    def finish(self) -> BackupInfo:
        """Return the header of a backup that is whole. Raises BackupDamaged."""
        if self.info is None:
            self._check_prefix()
            raise BackupDamaged("it ends within its header: it was cut off")
        missing = self._left + DIGEST_BYTES - len(self._waiting)
        if missing:
            raise BackupDamaged(f"its last {missing} bytes are missing: it was cut off")
        if self._digest.digest() != self._waiting:
            raise BackupDamaged("its checksum does not match: bytes of it were changed")
        return self.info

    def _check_prefix(self) -> int:
        """Return the length of the header, 0 if that is not known yet. Raises BackupDamaged."""
        if not self._waiting.startswith(MAGIC[: len(self._waiting)]) or not self._waiting:
            raise BackupDamaged("it is not a backup of Holdfast")
        if len(self._waiting) < _PREFIX.size:
            return 0
        _, found, header_bytes = _PREFIX.unpack_from(self._waiting)
        if found != FORMAT:
            raise BackupDamaged(f"it has format {found}; this release reads format {FORMAT}")
        if not 0 < header_bytes <= _HEADER_BYTES_MAX:
            raise BackupDamaged(f"its header is said to have {header_bytes} bytes: they were changed")
        return int(header_bytes)

    def _read_head(self) -> None:
        if not self._waiting:
            return
        header_bytes = self._check_prefix()
        end = _PREFIX.size + header_bytes
        if not header_bytes or len(self._waiting) < end:
            return
        try:
            info = msgspec.json.decode(self._waiting[_PREFIX.size : end], type=BackupInfo)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BackupDamaged(f"its header cannot be read: {error}") from error
        if info.state_bytes < 0:
            raise BackupDamaged("its header says that the state has less than no bytes")
        self._digest.update(self._waiting[:end])
        self._waiting = self._waiting[end:]
        self.info, self._left = info, info.state_bytes


def check(pieces: Iterable[bytes], on_state: Callable[[bytes], object] = lambda _: None) -> BackupInfo:
    """Return the header of a backup that comes in pieces, if it is whole. Raises BackupDamaged."""
    reader = BackupReader(on_state)
    for piece in pieces:
        reader.feed(piece)
    return reader.finish()
