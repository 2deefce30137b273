"""Every bound, on both of its sides."""

import pytest

from lockstate.words import limits
from lockstate.words.refusals import Reason, Refused


def _reason(refused: Refused | None) -> Reason | None:
    return refused.reason if refused is not None else None


@pytest.mark.parametrize("name", ["a", "db/migrate", "a b", "ü", "x" * 512, "ä" * 256, "a/b/c"])
def test_good_names(name: str) -> None:
    """Printable text of 1 to 512 bytes without empty parts is a name."""
    assert limits.check_name(name) is None


@pytest.mark.parametrize(
    "name", ["", "/a", "a/", "a//b", ".", "..", "a/./b", "a/..", "/", "a\nb", "\x00", "a\u200b", "\ud800"]
)
def test_bad_names(name: str) -> None:
    """Empty names, empty or dotted parts and what cannot be printed are refused."""
    assert _reason(limits.check_name(name)) is Reason.INVALID_REQUEST


@pytest.mark.parametrize("name", ["x" * 513, "ä" * 257])
def test_long_names(name: str) -> None:
    """A name is measured in bytes, and one too long has its own code."""
    assert _reason(limits.check_name(name)) is Reason.NAME_TOO_LONG


@pytest.mark.parametrize(
    ("ttl_ms", "is_good"), [(49, False), (50, True), (86_400_000, True), (86_400_001, False)]
)
def test_ttl_range(ttl_ms: int, is_good: bool) -> None:  # noqa: FBT001 - a column of the table
    """A lease lasts 50 ms to one day."""
    assert _reason(limits.check_ttl(ttl_ms)) is (None if is_good else Reason.TTL_OUT_OF_RANGE)


@pytest.mark.parametrize(("value", "is_good"), [(-1, False), (0, True), (7, True), (8, False)])
def test_range(value: int, is_good: bool) -> None:  # noqa: FBT001 - a column of the table
    """A number from 0 to the largest is within the range."""
    assert _reason(limits.check_range("wait_ms", value, 7)) is (None if is_good else Reason.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("text", "is_good"),
    [
        ("", True),
        ("abcd", True),
        ("abcde", False),
        ("éé", True),
        ("ééé", False),
        ("a\tb", False),
        ("\ud800", False),
    ],
)
def test_text(text: str, is_good: bool) -> None:  # noqa: FBT001 - a column of the table
    """A text for people is printable and measured in bytes; it may be empty."""
    assert _reason(limits.check_text("note", text, 4)) is (None if is_good else Reason.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("text", "is_good"), [("", False), ("x", True), ("x" * 64, True), ("x" * 65, False), ("\n", False)]
)
def test_id(text: str, is_good: bool) -> None:  # noqa: FBT001 - a column of the table
    """An id is 1 to 64 printable characters."""
    assert _reason(limits.check_id("hold_id", text)) is (None if is_good else Reason.INVALID_REQUEST)


@pytest.mark.parametrize(
    ("labels", "is_good"),
    [
        ({}, True),
        ({"k" * 256: "v" * 256}, True),
        ({str(n): "" for n in range(16)}, True),
        ({str(n): "" for n in range(17)}, False),
        ({"": "v"}, False),
        ({"k" * 257: "v"}, False),
        ({"k": "v" * 257}, False),
    ],
)
def test_labels(labels: dict[str, str], is_good: bool) -> None:  # noqa: FBT001 - a column of the table
    """At most 16 labels, with names that are not empty, in printable text of at most 256 bytes."""
    assert _reason(limits.check_labels(labels)) is (None if is_good else Reason.INVALID_REQUEST)


def test_a_refusal_names_the_field() -> None:
    """The detail says which field is wrong and what would be right."""
    refused = limits.check_range("wait_ms", 9, 7)
    assert refused is not None
    assert refused.detail == "wait_ms: 9; must be 0 to 7"
