"""Keys from a shared secret: HKDF with SHA-256 (RFC 5869)."""

import hashlib
import hmac
from typing import Final

_HASH: Final = hashlib.sha256
_HASH_BYTES: Final = _HASH().digest_size


def hkdf(secret: bytes, *, salt: bytes, info: bytes, length: int) -> bytes:
    """Return `length` bytes that only who knows `secret` can tell from random ones.

    `salt` makes them different each time, `info` says what they are for. The names in RFC 5869 are IKM, salt,
    info and L. Raises ValueError above 255 hashes, which is the RFC's bound.
    """
    if length > 255 * _HASH_BYTES:
        raise ValueError(f"{length} bytes: HKDF gives at most {255 * _HASH_BYTES}")
    extracted = hmac.digest(salt or bytes(_HASH_BYTES), secret, _HASH)
    output = block = b""
    for number in range(1, -(-length // _HASH_BYTES) + 1):
        block = hmac.digest(extracted, block + info + bytes((number,)), _HASH)
        output += block
    return output[:length]
