"""The scripts that a node was given: those of lock clients are known by what they mean, others run in Lua.

A script is compared with those below after both were normalised: without comments and white space, with
locals renamed in the order in which they appear, and commands in lower case. So it does not matter how a
client formats its script. One that does anything else is a program (`sandbox.py`); where Lua is not
installed it is refused with a reason when it is loaded.
"""

import enum
import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from redis_api.lua import sandbox
from redis_api.lua.sandbox import Program
from redis_api.protocol.errors import MANUAL, CommandRefused

SCRIPTS_COUNT_MAX: Final = 1_000
"""Scripts that a node knows by their hash. The one that was loaded first gives way: its client loads it
again when it hears NOSCRIPT."""

SCRIPTS_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of those among them that are programs."""

_HASHES_KEPT_MAX: Final = 64
"""Scripts whose hashes are kept, 4 MB at most: clients that use EVAL send the same ones all day."""


class Meaning(enum.Enum):
    """What a script does if the key has the value that is its first argument."""

    DELETE = "delete"
    EXPIRE = "expire"
    """The second argument is the time from now on."""
    EXTEND = "extend"
    """The second argument is the time from now on, or to be added if the third is "0"."""
    REMAINING = "remaining"
    """Tell how many milliseconds are left."""


class Script(NamedTuple):
    """What a script means, and what it answers."""

    act: Meaning
    keys_count: int = 1
    args_count: int = 1
    done: int = 1
    other: int = 0
    """The answer if the key does not have the value."""
    missing: int | None = None
    """The answer if there is no key, where that is another one."""
    endless: int = 0
    """The answer if the key has it and no time to live."""
    unit_ms: int = 1
    """Milliseconds in one of the units in which the time is given."""
    signals: bool = False
    """Whether a list that is the second key gets an element, for the milliseconds of the second argument."""

    @property
    def takes_steps(self) -> bool:
        """Whether one command of the log that ends or renews a hold by its value would not tell enough."""
        return self.signals or self.missing is not None


_MEANINGS: Final = {
    # redis-py, and what copies it: Lock.release, Lock.reacquire, Lock.extend
    """
    local held = redis.call('get', KEYS[1])
    if not held or held ~= ARGV[1] then return 0 end
    redis.call('del', KEYS[1])
    return 1
    """: Script(Meaning.DELETE),
    """
    local held = redis.call('get', KEYS[1])
    if not held or held ~= ARGV[1] then return 0 end
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 1
    """: Script(Meaning.EXPIRE, args_count=2),
    """
    local held = redis.call('get', KEYS[1])
    if not held or held ~= ARGV[1] then return 0 end
    local left = redis.call('pttl', KEYS[1])
    if not left then left = 0 end
    if left < 0 then return 0 end
    local ttl = ARGV[2]
    if ARGV[3] == '0' then ttl = ARGV[2] + left end
    redis.call('pexpire', KEYS[1], ttl)
    return 1
    """: Script(Meaning.EXTEND, args_count=3),
    # celery-redbeat: the lock of its scheduler, extended to a time
    """
    local held = redis.call('get', KEYS[1])
    if not held or held ~= ARGV[1] then return 0 end
    local left = redis.call('pttl', KEYS[1])
    if not left then left = 0 end
    if left < 0 then return 0 end
    redis.call('pexpire', KEYS[1], ARGV[2])
    return 1
    """: Script(Meaning.EXPIRE, args_count=2),
    # the form of the documentation of Redis: redlock-py, pottery, cashews, aioredlock, node-redlock's first
    """
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end
    """: Script(Meaning.DELETE),
    """
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end
    return 0
    """: Script(Meaning.DELETE),
    # redsync
    """
    local held = redis.call('get', KEYS[1])
    if held == ARGV[1] then return redis.call('del', KEYS[1])
    elseif held == false then return -1
    else return 0 end
    """: Script(Meaning.DELETE, missing=-1),
    """
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2])
    else return 0 end
    """: Script(Meaning.EXPIRE, args_count=2),
    """
    if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('expire', KEYS[1], ARGV[2])
    else return 0 end
    """: Script(Meaning.EXPIRE, args_count=2, unit_ms=1000),
    # pottery: how long this client still has it
    """
    if redis.call('get', KEYS[1]) == ARGV[1] then
        local left = redis.call('pttl', KEYS[1])
        return (left > 0) and left or 0
    else return 0 end
    """: Script(Meaning.REMAINING),
    # python-redis-lock. The list KEYS[2] is a signal, for which others wait by BLPOP.
    """
    if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1
    else
        redis.call('del', KEYS[2])
        redis.call('lpush', KEYS[2], 1)
        redis.call('pexpire', KEYS[2], ARGV[2])
        redis.call('del', KEYS[1])
        return 0
    end
    """: Script(Meaning.DELETE, keys_count=2, args_count=2, done=0, other=1, signals=True),
    """
    if redis.call('get', KEYS[1]) ~= ARGV[1] then return 1
    elseif redis.call('ttl', KEYS[1]) < 0 then return 2
    else redis.call('expire', KEYS[1], ARGV[2]) return 0 end
    """: Script(Meaning.EXPIRE, args_count=2, done=0, other=1, endless=2, unit_ms=1000),
}
"""The scripts of clients that were tried (docs/faces.md), in our words, and what they mean."""

_TOKENS: Final = re.compile(
    r"(?P<skip>[\s;]+|--(?!\[=*\[)[^\r\n]*)"
    r"|--\[(?P<level>=*)\["
    r"|(?P<text>'[^'\\\n]*'|\"[^\"\\\n]*\")"
    r"|(?P<word>[A-Za-z_]\w*)"
    r"|(?P<other>\d+|==|~=|<=|>=|\.\.|[-+*/%#<>=(){}\[\],.:])"
)
_WORDS_COUNT_MAX: Final = 200
"""Words that are read of a script: more than any has that is known."""
_TEXT: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class UnknownScript(CommandRefused):
    """A script means something else than those that are known. The message says so, for its author."""

    def __init__(self) -> None:
        super().__init__(
            "unknown script: this node runs no Lua, and lock clients are not known to use it: it knows"
            f" compare-and-delete and compare-and-expire by their meaning; for all others: {sandbox.INSTALL}"
            f" with the node's own pip, and start the node again ({MANUAL})"
        )


class Scripts:
    """The scripts that one node knows by their hashes."""

    def __init__(self) -> None:
        self._by_hash: dict[str, Script | Program] = {}
        self._bytes_count = 0

    def load(self, source: bytes) -> tuple[str, Script | Program]:
        """Return the hash of a script and what it is, and know it from now on. Raises CommandRefused."""
        digest = _hash(source)
        known = self._by_hash.get(digest)
        if known is None:
            known = _read(source, digest)
            self._bytes_count += _bytes_of(known)
            self._by_hash[digest] = known
            while len(self._by_hash) > SCRIPTS_COUNT_MAX or self._bytes_count > SCRIPTS_BYTES_MAX:
                self._bytes_count -= _bytes_of(self._by_hash.pop(next(iter(self._by_hash))))
        return digest, known

    def is_new(self, source: bytes) -> bool:
        """Whether a script would have to be compiled."""
        if self.of(source) is not None:
            return False
        try:
            meaning_of(source)
        except UnknownScript:
            return True
        return False

    def of(self, source: bytes) -> Script | Program | None:
        """Return what a script is, None if it is not known."""
        return self._by_hash.get(_hash(source))

    def get(self, digest: bytes) -> Script | Program | None:
        """Return the script with this hash, None if it is not known."""
        return self._by_hash.get(digest.decode("ascii", "replace").lower())

    def flush(self) -> None:
        """Know none any more."""
        self._by_hash.clear()
        self._bytes_count = 0


@lru_cache(_HASHES_KEPT_MAX)
def _hash(source: bytes) -> str:
    return hashlib.sha1(source, usedforsecurity=False).hexdigest()


def _bytes_of(script: Script | Program) -> int:
    return len(script.source) if isinstance(script, Program) else 0


def _read(source: bytes, digest: str) -> Script | Program:
    """Return what a script is. Raises CommandRefused."""
    try:
        return meaning_of(source)
    except UnknownScript:
        if not sandbox.is_installed():
            raise
    text, writes = _without_shebang(source)
    program = Program(text, digest, writes, source.startswith(b"#!"))
    sandbox.check(program)
    return program


def _without_shebang(source: bytes) -> tuple[bytes, bool]:
    """Return a script behind its first line, if that is "#!lua flags=...", and whether it may write.

    Raises CommandRefused.
    """
    if not source.startswith(b"#!"):
        return source, True
    end = source.find(b"\n")
    if end < 0:
        raise CommandRefused("Invalid script shebang")
    engine, *options = source[:end].decode(errors="replace").split(" ")
    if engine != "#!lua":
        raise CommandRefused(f"Unexpected engine in script shebang: {engine[:100]}")
    writes = True
    for option in filter(None, options):
        if not option.startswith("flags="):
            raise CommandRefused(f"Unknown lua shebang option: {option[:100]}")
        for flag in filter(None, option.removeprefix("flags=").split(",")):
            if flag not in _FLAGS:
                raise CommandRefused(f"Unexpected flag in script shebang: {flag[:100]}")
            writes &= flag != "no-writes"
    return source[end:], writes


_FLAGS: Final = frozenset(("no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"))


def meaning_of(source: bytes) -> Script:
    """Return what a script means. Raises UnknownScript."""
    try:
        known = _KNOWN.get(normalised(source.decode()))
    except (UnicodeDecodeError, ValueError):
        known = None
    if known is None:
        raise UnknownScript
    return known


def normalised(source: str) -> tuple[str, ...]:
    """Return the words of a script in one spelling. Raises ValueError if there is something else in it."""
    found: list[str] = []
    names: dict[str, str] = {}
    locals_count = 0
    for word in _words(source):
        if len(found) >= _WORDS_COUNT_MAX:
            raise ValueError(word)
        is_field = bool(found) and found[-1] == "."
        if found and found[-1] == "local" and word != "function":
            names[word] = f"local {locals_count}"
            locals_count += 1
        is_command = found[-4:] in (["redis", ".", "call", "("], ["redis", ".", "pcall", "("])
        found.append(word.lower() if is_command else word if is_field else names.get(word, word))
    return tuple(found)


def _words(source: str) -> Iterator[str]:
    at = 0
    while at < len(source):
        match = _TOKENS.match(source, at)
        if match is None:
            raise ValueError(at)
        at = match.end()
        if match["level"] is not None:
            end = f"]{match['level']}]"
            at = source.index(end, at) + len(end)  # one that never ends is an error in Lua, too
        elif match["skip"] is None:
            text = _TEXT.fullmatch(match[0])
            yield match[0] if text is None else f"'{text[1] or text[2] or ''}'"


_KNOWN: Final = {normalised(source): script for source, script in _MEANINGS.items()}
