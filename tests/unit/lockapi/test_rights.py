"""Rights by prefix: the longest one that covers a name counts, part by part."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.token_lines import Right
from lockapi.rights import ANYBODY, EVERYTHING, Principal, Rights

READ, ACQUIRE = Right.READ, Right.ACQUIRE


def rights(**by_prefix: str) -> Rights:
    """Return rights: `__` stands for "/" and `ALL` for everything."""
    return Rights(
        {
            "" if prefix == "ALL" else prefix.replace("__", "/"): frozenset(map(Right, words.split()))
            for prefix, words in by_prefix.items()
        }
    )


@pytest.mark.parametrize(
    ("name", "has"),
    [
        ("db", True), ("db/a", True), ("db/a/b", True), ("db2", False), ("d", False), ("db ", False),
        ("", False), ("db/own", False), ("db/own/x", False), ("db/own2", True), ("db/own/x/open", True),
        ("/db", False),
    ],
)  # fmt: skip
def test_the_longest_prefix_of_whole_parts_counts(name: str, has: bool) -> None:  # noqa: FBT001
    """It replaces what shorter ones give."""
    given_rights = rights(db="read", db__own="acquire", db__own__x__open="read")
    assert given_rights.covers(READ, name) is has


def test_a_prefix_that_gives_nothing_takes_away() -> None:
    """So somebody may do everything but there."""
    all_but = rights(ALL="read acquire", secret="")
    assert all_but.covers(READ, "a") is True
    assert all_but.covers(READ, "secret/a") is False
    assert all_but.everywhere(READ) is False
    assert all_but.on_the_whole(READ) is True


def test_a_subtree_needs_the_right_on_all_below() -> None:
    """The first prefix that lacks it is named."""
    given_rights = rights(db="acquire", db__b="read", db__a="read")
    assert given_rights.gap_below(ACQUIRE, "db") == "db/a"
    assert given_rights.gap_below(ACQUIRE, "db/c") is None
    assert given_rights.gap_below(ACQUIRE, "db/b") == "db/b"
    assert given_rights.gap_below(ACQUIRE, "x") == "x"
    assert rights(db="acquire", db2="read").gap_below(ACQUIRE, "db") is None
    assert EVERYTHING.gap_below(ACQUIRE, "") is None


def test_a_text_that_ends_within_a_part_reaches_into_others() -> None:
    """`db` as the beginning of names is that of `db2` as well."""
    assert rights(db="read").gap_behind(READ, "db") == "db"
    assert rights(db="read").gap_behind(READ, "db/") is None
    assert rights(db="read").gap_behind(READ, "db/us") is None
    assert rights(db="read", db__user="acquire").gap_behind(READ, "db/us") == "db/user"
    assert rights(ALL="read", db2="acquire").gap_behind(READ, "db") == "db2"
    assert rights(ALL="read").gap_behind(READ, "") is None
    assert rights(db="read").gap_behind(READ, "") == ""


TEXTS = st.text(alphabet="ab/", max_size=5)
PREFIXES = st.sampled_from(["", "a", "b", "ab", "a/b", "a/a", "a/b/a", "b/a", "ab/a"])
RULES = st.dictionaries(PREFIXES, st.frozensets(st.sampled_from([READ, ACQUIRE])), min_size=1)


def expected(rules: dict[str, frozenset[Right]], name: str) -> bool:
    """Say it as the manual does: look through all prefixes, and take the longest that covers."""
    covering = [prefix for prefix in rules if not prefix or f"{name}/".startswith(f"{prefix}/")]
    return bool(covering) and READ in rules[max(covering, key=len)]


@given(RULES, TEXTS, st.lists(TEXTS, min_size=5))
def test_all_questions_have_one_answer(
    rules: dict[str, frozenset[Right]], start: str, ends: list[str]
) -> None:
    """Where a whole has no gap, no part has one; and a gap that is named is one."""
    found = Rights(rules)
    for end in ends:
        assert found.covers(READ, end) == expected(rules, end)
        if found.everywhere(READ):
            assert found.covers(READ, end)
        if found.gap_behind(READ, start) is None:
            assert found.covers(READ, start + end)
        if start and found.gap_below(READ, start) is None:
            assert found.covers(READ, start)
            assert found.covers(READ, f"{start}/{end}")
        if found.covers(READ, end):
            assert found.somewhere(READ)


def test_a_principal_ends() -> None:
    """At its time, and anybody never does."""
    now_s = int(time.time())
    assert Principal("a", EVERYTHING, now_s - 1).has_ended is True
    assert Principal("a", EVERYTHING, now_s + 60).has_ended is False
    assert ANYBODY.has_ended is False
