"""Scripts are known by what they mean, and nothing else is taken for one of them."""

import time

import pytest

from redis_api.lua.scripts import (
    SCRIPTS_COUNT_MAX,
    Meaning,
    Script,
    Scripts,
    UnknownScript,
    meaning_of,
)

RELEASE = """
    -- if it is still ours
    local value = redis.call("GET", KEYS[1]);
    if not value or value ~= ARGV[1] then
        return 0
    end
    redis.call('DEL', KEYS[1]) --[[ gone ]]
    return 1
"""


def test_spelling_does_not_matter() -> None:
    """Comments, white space, semicolons, quotes, names of locals and the case of commands mean nothing."""
    assert meaning_of(RELEASE.encode()) == Script(Meaning.DELETE)
    assert (
        meaning_of(" ".join(RELEASE.replace("-- if it is still ours", "").split()).encode()).act
        is Meaning.DELETE
    )


@pytest.mark.parametrize(
    "changed",
    [
        RELEASE.replace("~=", "=="),
        RELEASE.replace("return 1", "return 2"),
        RELEASE.replace("ARGV[1]", "ARGV[2]"),
        RELEASE.replace("value ~= ARGV", "redis ~= ARGV"),
        RELEASE.replace("'DEL', KEYS[1]", "'DEL', KEYS[2]"),
        RELEASE.replace("'DEL'", "'FLUSHALL'"),
        RELEASE + "redis.call('del', KEYS[1])",
        "local redis = other\n" + RELEASE,
        "local KEYS = ARGV\n" + RELEASE,
        RELEASE.replace("local value", "value"),
        RELEASE.replace('"GET"', '"\\71ET"'),
        "return 1",
        "",
        "--[[ never ends",
        "--[[ never ends\n" + RELEASE,
        "--[==[ never ends ]=]\n" + RELEASE,
        "-- Lua ends a line here, too\rredis.call('set', KEYS[1], 'other')\n" + RELEASE,
        RELEASE + "return 1 " * 200,
        "return '",
    ],
)
def test_a_script_that_differs_is_refused(changed: str) -> None:
    """Whatever could mean something else is not known: nothing here runs Lua."""
    with pytest.raises(UnknownScript, match=r"docs/faces\.md"):
        meaning_of(changed.encode())


def test_a_script_costs_no_more_than_its_length() -> None:
    """The node does nothing else while it reads one, so what it has read it does not read again."""
    assert meaning_of(b"--[==[ ]] ]=] ]==]" * 3_000 + RELEASE.encode()) == Script(Meaning.DELETE)
    began_s = time.process_time()
    with pytest.raises(UnknownScript):
        meaning_of(b"--[[\n" * 13_000)
    assert time.process_time() - began_s < 1.0, "of which it needs less than a thousandth"


def test_bytes_that_are_no_text_are_refused() -> None:
    """A script is text."""
    with pytest.raises(UnknownScript):
        meaning_of(RELEASE.encode() + b"\xff")


def test_redis_py_is_understood() -> None:
    """The scripts of its Lock, as it has them."""
    lock = pytest.importorskip("redis.lock", reason="needs redis: scripts/test --all installs it").Lock
    assert meaning_of(lock.LUA_RELEASE_SCRIPT.encode()) == Script(Meaning.DELETE)
    assert meaning_of(lock.LUA_EXTEND_SCRIPT.encode()) == Script(Meaning.EXTEND, args_count=3)
    assert meaning_of(lock.LUA_REACQUIRE_SCRIPT.encode()) == Script(Meaning.EXPIRE, args_count=2)


def test_a_node_knows_what_was_loaded() -> None:
    """By the hash that Redis makes, in either case, until it is flushed; and no more than so many."""
    scripts = Scripts()
    digest, known = scripts.load(RELEASE.encode())
    assert scripts.get(digest.upper().encode()) == known
    assert scripts.get(b"\xff") is None
    for number in range(SCRIPTS_COUNT_MAX):
        scripts.load(f"{RELEASE}--{number}".encode())
    assert scripts.get(digest.encode()) is None
    last, _ = scripts.load(RELEASE.encode())
    scripts.flush()
    assert scripts.get(last.encode()) is None
