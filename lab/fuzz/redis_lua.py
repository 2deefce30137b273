"""Random scripts in Lua, of a small grammar: they end, and only their keys decide what they answer."""

import random
from typing import Final

DEPTH_MAX: Final = 3
_PLAIN_SHARE: Final = 0.25
_RESP3_SHARE: Final = 0.1
_NUMBERS: Final = ("0", "1", "-1", "3", "2.5", "-0.5", "1e15", "2^53", "10")
_TEXTS: Final = ("''", "'v'", "'41'", "'a b'", "'x:7'", "'\\0\\255'", "'0x10'")
_SAID: Final = ("''", "'FINE'", "'MY fault'", "'-MY fault'", "'a b c'")
"""What stands in statuses and errors: one line of text."""
_READS: Final = (
    "'GET', {key}",
    "'TYPE', {key}",
    "'EXISTS', {key}, {key}",
    "'STRLEN', {key}",
    "'LLEN', {key}",
    "'LRANGE', {key}, {index}, {index}",
    "'MGET', {key}, {key}",
    "'GET'",
    "'PING'",
    "'NOSUCH', {key}",
)
_WRITES: Final = (
    "'SET', {key}, {value}",
    "'SET', {key}, {value}, 'XX'",
    "'SET', {key}, {value}, 'PX', '60000'",
    "'DEL', {key}",
    "'INCR', {key}",
    "'INCRBY', {key}, {number}",
    "'DECR', {key}",
    "'APPEND', {key}, {value}",
    "'GETSET', {key}, {value}",
    "'GETDEL', {key}",
    "'RPUSH', {key}, {value}, {value}",
    "'LPUSH', {key}, {value}",
    "'LPOP', {key}",
    "'RPOP', {key}, '2'",
    "'MSET', {key}, {value}, {key}, {value}",
    "'LPUSH', {key}",
    "'BLPOP', {key}, '0'",
    "'MULTI'",
    "'SETEX', {key}, '0', {value}",
)


class _Writer:
    def __init__(self, rng: random.Random, *, writes: bool) -> None:
        self.rng, self.writes = rng, writes
        self.locals_count = 0

    def pick(self, *ways: str) -> str:
        return self.rng.choice(ways)

    def key(self) -> str:
        return self.pick("KEYS[1]", "KEYS[1]", "KEYS[2]")

    def call(self) -> str:
        words = self.rng.choice((*_READS, *_WRITES) if self.writes else _READS)
        while "{" in words:
            words = words.replace("{key}", self.key(), 1).replace("{index}", self.pick("0", "-1", "'1'"), 1)
            words = words.replace("{value}", self.pick("ARGV[1]", "'7'", "3", "2.5", "''"), 1)
            words = words.replace("{number}", self.pick("5", "'-3'", "'x'", "1.5", "ARGV[1]"), 1)
        return f"{self.pick('redis.call', 'redis.call', 'redis.pcall')}({words})"

    def value(self, depth: int = 0) -> str:
        """Return an expression."""
        simple = [
            self.rng.choice(_NUMBERS),
            self.rng.choice(_TEXTS),
            "nil",
            "true",
            "false",
            "ARGV[1]",
            "KEYS[1]",
        ]
        simple += [f"v{number}" for number in range(1, self.locals_count + 1)] * 2
        if depth >= DEPTH_MAX or self.rng.random() < _PLAIN_SHARE:
            return self.rng.choice(simple)
        one, two = self.value(depth + 1), self.value(depth + 1)
        return self.pick(
            self.call(),
            self.call(),
            f"({one} {self.pick('==', '~=', 'and', 'or')} {two})",
            f"({one} {self.pick('+', '-', '*', '<', '<=', '..', '%')} {two})",
            f"tostring({self.number()})",
            f"tonumber({self.pick(*_TEXTS)})",
            f"#tostring({self.number()})",
            f"type({one})",
            f"(not {one})",
            f"{{{one}, {two}}}",
            f"{{ok = {self.pick(*_SAID)}}}",
            f"{{err = {self.pick(*_SAID)}}}",
            f"string.{self.pick('upper', 'lower', 'len', 'reverse')}({one})",
            f"string.sub({one}, {self.number()})",
            f"redis.{self.pick('error_reply', 'status_reply', 'sha1hex')}({self.pick(*_SAID)})",
            f"cjson.encode({self.pick(self.number(), f'{{{self.number()}, {self.number()}}}', '{a = 1}')})",
            f"select('#', {one}, {two})",
            f"bit.{self.pick('band', 'bor', 'bxor', 'lshift')}({self.number()}, {self.number()})",
            f"math.{self.pick('floor', 'abs', 'ceil')}({self.number()})",
            f"string.format('%s|%d', {one}, {self.number()})",
            f"({{pcall(function() return {one} end)}})[1]",
            "#KEYS",
            "#ARGV",
            "cmsgpack.pack(1, 'x')",
            f"cjson.decode(cjson.encode({{{self.number()}, {self.pick(*_TEXTS)}}}))[1]",
        )

    def number(self) -> str:
        return self.rng.choice(_NUMBERS)

    def statement(self) -> str:
        """Return a statement."""
        one = self.value(1)
        self.locals_count += 1
        name = f"v{self.locals_count}"
        return f"local {name} = {one}" + self.pick(
            "",
            "",
            "",
            f" if {name} then {name} = {self.value(2)} end",
            f" if {name} then return {name} end",
            f" for i = 1, 3 do {self.call()} end",
            f" while type({name}) == 'number' and {name} > 0 and {name} < 9 do"
            f" {name} = {name} + 4 {self.call()} end",
            f" {self.call()}",
            f" assert({name})",
        )


def script(rng: random.Random, *, writes: bool = True) -> str:
    """Return a script with up to two keys and one argument."""
    writer = _Writer(rng, writes=writes)
    if rng.random() < _RESP3_SHARE:
        return (
            f"redis.setresp(3) {writer.statement()} local r = {writer.value()} return cjson.encode(type(r))"
        )
    begin = rng.choice(("", "", "", "#!lua\n", "#!lua flags=no-writes\n"))
    return begin + rng.choice(("\n", " ")).join(
        [*[writer.statement() for _ in range(rng.randint(0, 4))], f"local r = {writer.value()} return r"]
    )
