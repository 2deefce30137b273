"""Keys and values as text: what can be read stays, no two share a spelling, and each can be read back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockapi import spelling
from lockstate.rules.checks import check_value
from lockstate.words import limits
from redis_api.protocol.spelled import key_of, name_of, value_of, value_text

KEYS = st.binary(max_size=40) | st.text(alphabet="a./% \né\u0301", max_size=12).map(str.encode)


@given(KEYS, st.integers(min_value=0, max_value=15))
def test_a_name_gives_its_key_back(key: bytes, database: int) -> None:
    """So no two keys have one name; and every name is one that a lock can have, well spelled."""
    name = name_of(database, key)
    assert key_of(database, name) == key
    assert limits.check_name(name) is None
    spelling.check_name("name", name)


@given(KEYS)
def test_a_value_gives_its_bytes_back(value: bytes) -> None:
    """So a compare of texts is one of the bytes; and a hold may have each of them."""
    text = value_text(value)
    assert value_of(text) == value
    assert text
    assert check_value(text) is None


@given(st.text(max_size=20))
def test_other_names_are_no_keys(text: str) -> None:
    """A name that no key has, taken over HTTP, is not taken for one that has another name."""
    key = key_of(0, f"redis/0/{text}")
    assert key is None or name_of(0, key) == f"redis/0/{text}"


@pytest.mark.parametrize(
    ("key", "spelled"),
    [
        (b"report", "report"),
        (b"jobs/7:nightly", "jobs/7:nightly"),
        (b"", "%"),
        (b"/a//b/", "%/a/%/b/%"),
        (b"../.", "%2E%2E/%2E"),
        (b" a b ", "%20a b%20"),
        (b"100%", "100%25"),
        (b"\xff\x00", "%FF%00"),
        ("é".encode(), "é"),
        ("e\u0301".encode(), "e%CC%81"),
    ],
)
def test_what_can_be_read_stays(key: bytes, spelled: str) -> None:
    """People find their keys again among the locks."""
    assert name_of(3, key) == f"redis/3/{spelled}"


def test_too_long_a_key_stays_too_long() -> None:
    """Nothing is cut or hashed: the name is refused by its length."""
    assert limits.check_name(name_of(0, b"k" * limits.NAME_BYTES_MAX)) is not None
    assert len(value_text(b"\xff" * 1000)) == 3000
