"""HKDF against the vectors of RFC 5869, appendix A."""

import pytest

from cluster.peers.hkdf import hkdf


@pytest.mark.parametrize(
    ("secret", "salt", "info", "okm"),
    [
        (
            "0b" * 22,
            "000102030405060708090a0b0c",
            "f0f1f2f3f4f5f6f7f8f9",
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
        ),
        (
            bytes(range(0x50)).hex(),
            bytes(range(0x60, 0xB0)).hex(),
            bytes(range(0xB0, 0x100)).hex(),
            (
                "b11e398dc80327a1c8e7f78c596a49344f012eda2d4efad8a050cc4c19afa97c59045a99cac7827271cb41c65e590e09"
                "da3275600c2f09b8367793a9aca3db71cc30c58179ec3e87c14c01d5c1f3434f1d87"
            ),
        ),
        (
            "0b" * 22,
            "",
            "",
            "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
        ),
    ],
)
def test_the_vectors_of_the_rfc(secret: str, salt: str, info: str, okm: str) -> None:
    """Test cases 1 to 3: all there are for SHA-256."""
    made = hkdf(
        bytes.fromhex(secret),
        salt=bytes.fromhex(salt),
        info=bytes.fromhex(info),
        length=len(okm) // 2,
    )
    assert made.hex() == okm


def test_there_is_an_end() -> None:
    """The RFC allows 255 hashes."""
    assert len(hkdf(b"secret", salt=b"", info=b"", length=255 * 32)) == 255 * 32
    with pytest.raises(ValueError, match="8161 bytes"):
        hkdf(b"secret", salt=b"", info=b"", length=255 * 32 + 1)
