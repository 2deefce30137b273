"""Records of TLS 1.3 that no library sends, from a client that knows its own keys (RFC 8446, section 7)."""

import hashlib
import hmac
import ssl
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

HANDSHAKE, DATA = 22, 23
"""Types of what is in a record."""
KEY_UPDATE = b"\x18\x00\x00\x01\x01"
"""Says that the sender has other keys from now on, and asks for that of the other side."""


class Records:
    """Seals records as the client of a connection on which that has sent nothing but its handshake."""

    def __init__(self, tls: ssl.SSLObject, key_log: Path) -> None:
        """Take the secret from the file that the client's context has written it to."""
        cipher, _, _ = tls.cipher() or ("", "", 0)
        self._hash = hashlib.sha384 if "SHA384" in cipher else hashlib.sha256
        self._is_gcm, self._key_bytes = "GCM" in cipher, 16 if "AES_128" in cipher else 32
        lines = [line.split() for line in key_log.read_text().splitlines()]
        (secret,) = (words[2] for words in lines if words[0] == "CLIENT_TRAFFIC_SECRET_0")
        self._use(bytes.fromhex(secret))

    def _use(self, secret: bytes) -> None:
        self._secret, self._count = secret, 0
        self._iv = self._derived(b"iv", 12)
        key = self._derived(b"key", self._key_bytes)
        self._cipher = AESGCM(key) if self._is_gcm else ChaCha20Poly1305(key)

    def _derived(self, label: bytes, size: int) -> bytes:
        label = b"tls13 " + label
        info = size.to_bytes(2, "big") + bytes((len(label),)) + label + b"\0\x01"
        return hmac.digest(self._secret, info, self._hash)[:size]

    def sealed(self, content: bytes, kind: int = DATA) -> bytes:
        """Return the next record."""
        head = b"\x17\x03\x03" + (len(content) + 17).to_bytes(2, "big")
        nonce = (int.from_bytes(self._iv, "big") ^ self._count).to_bytes(12, "big")
        self._count += 1
        return head + self._cipher.encrypt(nonce, content + bytes((kind,)), head)

    def key_update(self) -> bytes:
        """Return a record that says that the keys change, and change them."""
        record = self.sealed(KEY_UPDATE, HANDSHAKE)
        self._use(self._derived(b"traffic upd", self._hash().digest_size))
        return record
