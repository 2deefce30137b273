"""Scripts in the sandbox: what they answer and see, and that none escapes or keeps the node for long."""

import hashlib
import logging
import re
import time
from collections.abc import Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redis_api.lua import sandbox
from redis_api.lua.sandbox import SECONDS_MAX, Program
from redis_api.protocol.errors import CommandRefused, TooMuch
from redis_api.protocol.resp import OK, Failure, Reply, Status

pytest.importorskip("lupa.lua51", reason="needs lupa, the extra redis-lua of the node")

OVER_S: Final = 0.15
"""Processor seconds that a script may take at most: its own, and what the clock is late with."""


def answer(words: Sequence[bytes]) -> Reply:
    """Answer a few commands."""
    replies: dict[bytes, Reply] = {
        b"GET": b"value", b"SET": OK, b"NIL": None, b"INT": 7, b"LIST": [b"a", None, [1, OK]],
        b"TEXT": "text", b"BAD": Failure("WRONGTYPE", "no list"), b"MAP": {"a": 1}, b"ECHO": list(words),
    }  # fmt: skip
    return replies.get(words[0].upper(), Failure("ERR", "unknown"))


def run(source: str, *args: bytes, keys: Sequence[bytes] = (b"k",)) -> Any:
    """Return what a script answers."""
    return sandbox.run(Program(source.encode(), "hash"), keys, args, answer)


def error(source: str) -> str:
    """Return the error that a script raises."""
    failure = run(source)
    assert isinstance(failure, Failure), failure
    return f"{failure.code} {failure.text}"


@pytest.mark.parametrize(
    ("source", "reply"),
    [
        ("", None),
        ("return nil", None),
        ("return false", None),
        ("return true", 1),
        ("return 3.99", 3),
        ("return -3.99", -3),
        ("return 1e300", -(2**63)),
        ("return 0/0", -(2**63)),
        ("return 'a\\0b'", b"a\0b"),
        ("return {1, 2, nil, 4}", [1, 2]),
        ("return {}", []),
        ("return {a = 1}", []),
        ("return {1, {2, {3}}, 'x', true, false}", [1, [2, [3]], b"x", 1, None]),
        ("return {ok = 'fine'}", Status("fine")),
        ("return {err = 'MY fault is it'}", Failure("MY", "fault is it")),
        ("return {{ok = 'a'}, {err = 'B'}}", [Status("a"), Failure("B", "")]),
        ("return {double = 1.5}", b"1.5"),
        ("return {map = {a = 1}}", [b"a", 1]),
        ("return {set = {a = true}}", [b"a"]),
        ("return {big_number = '12'}", b"12"),
        ("return {verbatim_string = {string = 'x', format = 'txt'}}", b"x"),
        ("return print and 1 or tostring", Failure),
        ("return function() end", None),
        ("return KEYS", [b"k"]),
        ("return {#KEYS, #ARGV, ARGV[1], ARGV[3]}", [1, 2, b"1"]),
        ("return redis.call('get', 'k')", b"value"),
        ("return redis.call('nil') == false and 1 or 0", 1),
        ("redis.setresp(3) return redis.call('nil') == nil and 1 or 0", 1),
        ("return redis.call('int') + 1", 8),
        ("return redis.call('set', 'k', 'v').ok", b"OK"),
        ("return redis.call('set', 'k', 'v')", OK),
        ("return redis.call('list')", [b"a", None, [1, OK]]),
        ("return redis.call('text')", b"text"),
        ("return redis.call('map')", [b"a", 1]),
        ("return redis.call('echo', 1, 1.5, 2^53, 'x')", [b"echo", b"1", b"1.5", b"9007199254740992", b"x"]),
        ("return redis.pcall('bad')", Failure("WRONGTYPE", "no list")),
        ("return redis.pcall('bad').err", b"WRONGTYPE no list"),
        (
            "local ok, why = pcall(redis.call, 'bad') return {type(ok), why}",
            [b"boolean", b"WRONGTYPE no list"],
        ),
        ("return {pcall(error, 'x')}", [None, b"x"]),
        ("return {xpcall(error, function(why) return 'seen ' .. tostring(why) end)}", [None, b"seen nil"]),
        ("return redis.error_reply('-MY fault')", Failure("MY", "fault")),
        ("return redis.status_reply('x')", Status("x")),
        ("return redis.error_reply(1)", Failure("ERR", "wrong number or type of arguments")),
        ("return redis.sha1hex('')", b"da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ("return redis.replicate_commands()", 1),
        ("return redis.REDIS_VERSION_NUM", 0x070400),
        ("return redis.log(redis.LOG_NOTICE, 'x')", None),
        ("return math.floor(math.random() * 0) + math.random(5, 5)", 5),
        ("math.randomseed(1) local a = math.random(1e9) math.randomseed(1) return math.random(1e9) - a", 0),
        ("return ('x'):rep(3) .. ('a,b'):gsub(',', ';')", b"xxxa;b"),
        ("local t = {} for word in ('a,b'):gmatch('[^,]+') do t[#t + 1] = word end return t", [b"a", b"b"]),
        ("local t = {3, 1, 2} table.sort(t) return t", [1, 2, 3]),
        ("local t = {'b', 'a'} table.sort(t, function(a, b) return a > b end) return t", [b"b", b"a"]),
        ("local t = {1, 2} table.insert(t, 1, 0) table.remove(t) return {t[1], #t, unpack(t)}", [0, 2, 0, 1]),
    ],
)
def test_what_scripts_answer(source: str, reply: Any) -> None:
    """Values of Lua become replies as in Redis, and replies become values."""
    found = run(source, b"1", b"2")
    if reply is Failure:
        assert isinstance(found, Failure)
    else:
        assert found == reply


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("return x", "ERR user_script:1: Script attempted to access nonexistent global variable 'x'"),
        ("\nx = 1", "ERR user_script:2: Attempt to modify a readonly table"),
        ("KEYS = {}", "ERR user_script:1: Attempt to modify a readonly table"),
        ("string.x = 1", "ERR user_script:1: Attempt to modify a readonly table"),
        ("_G.x = 1", "ERR user_script:1: Attempt to modify a readonly table"),
        ("rawset(_G, 'x', 1)", "ERR Attempt to modify a readonly table"),
        ("error('x')", "ERR user_script:1: x"),
        ("error({err = 'MY x'})", "MY x"),
        ("error({})", "ERR unknown error"),
        ("error()", "ERR nil"),
        ("error(true)", "ERR true"),
        ("error(tostring)", "ERR function"),
        ("local r = redis.call('bad')", "WRONGTYPE no list"),
        ("return redis.call()", "ERR Please specify at least one argument for this redis lib call"),
        ("return redis.call({})", "ERR Lua redis lib command arguments must be strings or integers"),
        ("redis.setresp(4)", "ERR RESP version must be 2 or 3."),
        ("redis.log('x')", "ERR redis.log() requires two arguments or more."),
        ("string.rep()", "ERR user_script:1: bad argument #1 to 'rep'"),
        ("local function f() return f() + 1 end f()", "ERR user_script:1: stack overflow"),
        ("local t = {} t[1] = t return t", "ERR reached lua stack limit"),
    ],
)
def test_what_scripts_raise(source: str, text: str) -> None:
    """An error says which script it was, and in which line."""
    told = error(source)
    assert told.startswith(text)
    assert " script: hash, on @user_script" in told


def test_a_script_that_cannot_be_compiled() -> None:
    """The error is that of Redis, and nothing runs."""
    with pytest.raises(
        CommandRefused, match=r"Error compiling script \(new function\): user_script:1: '=' expected"
    ):
        sandbox.check(Program(b"foo bar", ""))
    with pytest.raises(CommandRefused, match="Error compiling script"):
        sandbox.check(Program(b"\x1bLua", ""))
    sandbox.check(Program(b"while true do end", ""))


def test_what_is_logged_is_short(caplog: pytest.LogCaptureFixture) -> None:
    """A script may log, for whoever looks for mistakes in it."""
    with caplog.at_level(logging.DEBUG, "redis_api"):
        run("redis.log(redis.LOG_WARNING, 'lost', 5, ('x'):rep(10000))")
    (record,) = caplog.records
    assert record.getMessage().startswith("event=redis-script-log text='lost 5 xxx")
    assert len(record.getMessage()) < 300


@pytest.mark.parametrize(
    ("source", "reply"),
    [
        ("return cjson.encode({1, 'a', true, cjson.null, {}})", b'[1,"a",true,null,{}]'),
        ("return cjson.encode({a = 1.5})", b'{"a":1.5}'),
        ("return cjson.encode({[1] = 1, [3] = 3})", b"[1,null,3]"),
        ("return cjson.encode({[1.5] = 1})", b'{"1.5":1}'),
        ("return cjson.encode('/\"\\\\\\n\\1\\127\\200')", b'"\\/\\"\\\\\\n\\u0001\\u007f\xc8"'),
        ("return cjson.encode(1e20) .. cjson.encode(12345678901234567)", b"1e+201.2345678901235e+16"),
        ("return cjson.decode('[1, -2.5e1, \"x\", [], {}]')", [1, -25, b"x", [], []]),
        ("return cjson.decode('{\"a\": {\"b\": true}}').a.b", 1),
        ("return cjson.decode('null') == cjson.null", 1),
        ("return cjson.decode('\"\\\\u00e9\\\\ud83d\\\\ude00\\\\n\\127\"')", "é😀\n\x7f".encode()),
        ("return cjson.encode(cjson.decode('[[1,2],{\"a\":null}]'))", b'[[1,2],{"a":null}]'),
        ("return cmsgpack.pack(1, -1, 300, -300, 'a', true, nil)",
         b"\x01\xff\xcd\x01\x2c\xd1\xfe\xd4\xa1a\xc3\xc0"),
        ("return cmsgpack.pack({1, 2}, {a = 1}, 1.5, 0.1)",
         b"\x92\1\2\x81\xa1a\1\xca?\xc0\0\0\xcb?\xb9\x99\x99\x99\x99\x99\x9a"),
        ("return {cmsgpack.unpack(cmsgpack.pack(2^40, -2^40, {1, {x = 'y'}}, ('z'):rep(300)))}",
         [2**40, -(2**40), [1, []], b"z" * 300]),
        ("return {bit.band(255, 15, 7), bit.bor(1, 2), bit.bxor(3, 1), bit.bnot(0)}", [7, 3, 2, -1]),
        ("return {bit.lshift(1, 31), bit.rshift(-8, 28), bit.arshift(-8, 1), bit.rol(1, 33), bit.ror(1, 1)}",
         [-(2**31), 15, -4, 2, -(2**31)]),
        ("return {bit.tohex(255), bit.tohex(255, -4), bit.bswap(1), bit.tobit(2^32 - 1)}",
         [b"000000ff", b"00FF", 1 << 24, -1]),
    ],
)  # fmt: skip
def test_the_libraries(source: str, reply: Any) -> None:
    """JSON, MessagePack and bits are those of Redis."""
    assert run(source) == reply


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("cjson.decode('nope')", "Expected value but found invalid token at character 1"),
        ("cjson.decode('[1,')", "Expected value but found T_END at character 4"),
        ("cjson.decode('1 2')", "Expected the end but found T_NUMBER at character 3"),
        ("cjson.decode('{1:2}')", "Expected object key string but found T_NUMBER at character 2"),
        ("cjson.decode('{\"a\" 1}')", "Expected colon but found T_NUMBER at character 6"),
        ("cjson.decode('[1 2]')", "Expected comma or array end but found T_NUMBER at character 4"),
        ("cjson.decode(('['):rep(2000))", "Found too many nested data structures (1001)"),
        ("cjson.encode(tostring)", "Cannot serialise function: type not supported"),
        ("cjson.encode({[true] = 1})", "Cannot serialise boolean: table key must be a number or string"),
        ("cjson.encode(0/0)", "Cannot serialise number: must not be NaN or Inf"),
        ("cjson.encode({[1] = 1, [20] = 2})", "Cannot serialise table: excessively sparse array"),
        ("local t = {} t[1] = t cjson.encode(t)", "Cannot serialise, excessive nesting (1001)"),
        ("cmsgpack.unpack('\\146\\1')", "Missing bytes in input."),
        ("cmsgpack.unpack('\\193')", "Bad data format in input."),
        ("bit.band('x')", "bad argument #1 to 'band' (number expected)"),
    ],
)
def test_what_the_libraries_refuse(source: str, text: str) -> None:
    """An error is that of Redis."""
    assert text in error(source)


HIDDEN: Final = (
    "io", "os", "debug", "package", "require", "dofile", "loadfile", "load", "loadstring", "getfenv",
    "setfenv", "module", "newproxy", "print", "python", "coroutine", "gcinfo",
)  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_what_scripts_do_not_see(name: str) -> None:
    """No way out: no files, no processes, no code that is loaded, no look at what is around the script."""
    assert "nonexistent global variable" in error(f"return {name}")
    assert run(f"return rawget(_G, '{name}') == nil") == 1


def test_no_object_of_python_can_be_reached() -> None:
    """What a script can get at from all that it sees are strings, numbers, tables and functions of Lua."""
    source = """
        local seen, found = {}, {}
        local function look(value, path)
            local kind = type(value)
            if kind == 'userdata' and value ~= cjson.null then found[#found + 1] = path end
            if kind ~= 'table' or seen[value] then return end
            seen[value] = true
            look(getmetatable(value), path .. ':meta')
            for key, item in next, value do look(key, path) look(item, path .. '.' .. tostring(key)) end
        end
        look(_G, '_G') look(getmetatable(''), 'string')
        for _, name in ipairs(ARGV) do
            local value = rawget(_G, name)
            look(value, name)
            for _, field in ipairs(ARGV) do
                if type(value) == 'table' then look(rawget(value, field), name .. field) end
            end
        end
        look({pcall(redis.call, 'bad')}, 'error') look({pcall(redis.call)}, 'error')
        return found
    """
    names = [b"redis", b"cjson", b"bit", b"string", b"table", b"math", b"call", b"null", b"rep", b"encode"]
    assert run(source, *names) == []


def test_nothing_is_left_for_the_next_script() -> None:
    """Each run begins anew, also after one that has changed what it could."""
    run("getmetatable(KEYS) KEYS[2] = 'left' setmetatable(KEYS, {__index = function() return 'left' end})")
    assert run("return {KEYS[1], KEYS[2], #KEYS, type(getmetatable(''))}") == [b"k"]
    assert run("return {KEYS[1], KEYS[2] == nil, #KEYS}") == [b"k", 1, 1]


def test_what_a_command_raises_ends_the_script() -> None:
    """No pcall keeps a script alive whose node does not know what became of a command."""

    def fail(_: Sequence[bytes]) -> Reply:
        raise ConnectionError("lost")

    source = b"while true do pcall(redis.call, 'get', 'k') end"
    with pytest.raises(ConnectionError, match="lost"):
        sandbox.run(Program(source, ""), (), (), fail)


HOSTILE: Final = (
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "local function f() pcall(f) return f() end return f()",
    "repeat xpcall(function() while true do end end, function() while true do end end) until false",
    "local s = 'x' while true do s = s .. s end",
    "local s = 'x' while true do pcall(function() s = s .. s end) end",
    "local t = {} while true do pcall(function() t[#t + 1] = {} end) end",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do pcall(t) end",
    "for i = 1, 1e9 do string.rep('x', 500000) end",
    "while true do pcall(string.find, string.rep('a', 1000), '.-b') end",
    "for i = 1, 1e7 do string.find(string.rep('a', 400000), string.rep('a', 200000) .. 'b', 1, true) end",
    "local s = string.rep('a', 500000) return #s:gsub('.', string.rep('x', 1000))",
    "local t = {} for i = 1, 60000 do t[i] = 60000 - i end while true do table.sort(t) end",
    "local s, t = ('x'):rep(400000), {} for i = 1, 3000 do t[i] = s end table.sort(t)",
    "local t = {} for i = 1, 60000 do t[i] = i end while true do table.insert(t, 1, table.remove(t)) end",
    "local t = {} for i = 1, 60000 do t[i] = i end while true do unpack(t, 1, 6000) end",
    "local s = (' '):rep(500000) while true do tonumber(s) end",
    "local s = ('1'):rep(500000) while true do tonumber(s, 2) end",
    "local a, b = ('x'):rep(300000) .. 'a', ('x'):rep(300000) .. 'b' while true do local x = a < b end",
    "local s = ('x'):rep(250000) while true do local x = s:upper():lower():reverse() end",
    "while true do string.format('%q', string.rep('\\n', 200000)) end",
    "while true do redis.call('get', 'k') end",
    "while true do redis.pcall({}) end",
    "while true do redis.sha1hex(string.rep('x', 500000)) end",
    "local t = {} for i = 1, 50 do t = {t, t} end return cjson.encode(t)",
    "local t = {} for i = 1, 50 do t = {t, t} end return cmsgpack.pack(t)",
    "while true do cjson.decode(string.rep(' ', 100000) .. '1') end",
    "return tostring(setmetatable({}, {__tostring = function() while true do end end}))",
    "local t = setmetatable({}, {__lt = function() while true do end end}) return t < t",
    "for i = 1, 1e9 do collectgarbage('collect') end",
    "for i = 1, 1e9 do math.random(0/0, 0/0) end",
)  # fmt: skip


@pytest.mark.parametrize("source", HOSTILE)
def test_a_script_that_takes_too_much_is_ended(source: str) -> None:
    """Within its time, and with no way to go on; also in what the hook does not see: the C code of Lua."""
    began_s = time.process_time()
    try:
        found = run(source)
    except TooMuch as refused:
        found = refused.failure
    assert isinstance(found, Failure)
    assert found.code != "BUSY" or found.text.endswith("nothing was applied")
    assert time.process_time() - began_s < OVER_S


@pytest.mark.parametrize(
    "source",
    [
        "return unpack({}, -2147483648, 2147483647)",  # writes beyond the stack of Lua 5.1.5
        "return unpack({}, 1, 1e8)",
        "table.insert({}, -2147483648, 'x')",
        "return string.rep('x', 1e9)",
        "return string.find(string.rep('a', 30), string.rep('a?', 60) .. string.rep('a', 60))",
        "return string.find(string.rep('a', 100000), '.-.-.-b')",
        "return string.match('', string.rep('a?', 100000))",
        "error(setmetatable({}, {__index = function() while true do end end}))",
        "local t = {} for i = 1, 50 do t = {t, t} end return t",
    ],
)
def test_what_would_take_too_much_is_refused(source: str) -> None:
    """At once, where it can be told."""
    assert isinstance(run(source), Failure)


FUNCTIONS: Final = re.findall(
    r"\S+",
    """
    assert error getmetatable ipairs next pairs pcall rawequal rawget rawset select setmetatable
    tonumber tostring type unpack xpcall string.byte string.char string.find string.format
    string.gmatch string.gsub string.len string.match string.rep string.reverse string.sub
    table.concat table.insert table.remove table.sort table.maxn math.abs math.floor math.fmod
    math.ldexp math.max math.random math.randomseed cjson.encode cjson.decode cmsgpack.pack
    cmsgpack.unpack bit.band bit.lshift bit.tohex redis.call redis.pcall redis.error_reply
    redis.sha1hex redis.log redis.setresp
    """,
)
VALUES: Final = re.findall(
    r"\S+",
    r"""
    nil true false 0 1 -1 7 1e9 2147483647 -2147483648 4294967296 1e300 -1e300 (0/0) (1/0) 0.5 ''
    'a' 'get' '%' '%d' '%99.99f' '[' '(' '%b' '%f[a]' '(.-)b' '()' '%1' 'a?a?' '\0' '\255'
    '{"a":[1]}' '[1,' '\146' '\202' ('x'):rep(1000) {} {1,2,3} {a=1} T function(...)return(...)end
    function()error({})end tostring string redis cjson.null _G KEYS r
    """,
)
CALL: Final = st.builds(
    lambda name, values: f"pcall(function() r = {name}({', '.join(values)}) end)",
    st.sampled_from(FUNCTIONS),
    st.lists(st.sampled_from(VALUES), max_size=4),
)
LOOPS: Final = st.sampled_from(
    ("{}", "while true do {} end", "for i = 1, 1e9 do {} end", "pcall(function() {} end)")
)
STRANGE: Final = (
    "local T = setmetatable({}, {__index = function(t, k) return k end, __call = function() return 1 end,"
    " __tostring = function() return {} end, __lt = function() return true end, __newindex = rawset})"
    " local r "
)


@given(st.lists(CALL, max_size=8), LOOPS)
def test_no_program_escapes_or_hangs(calls: list[str], loop: str) -> None:
    """Whatever is called with whatever: an answer, an error, or an end within the time."""
    began_s = time.process_time()
    try:
        found = run(f"{STRANGE} {loop.format(' '.join(calls))} return r")
    except CommandRefused as refused:
        found = refused.failure
    assert found is None or isinstance(found, int | bytes | list | Status | Failure)
    assert time.process_time() - began_s < OVER_S + SECONDS_MAX


def test_the_hash_of_an_error_is_that_of_the_script() -> None:
    """By which whoever reads it finds the script."""
    source = b"error('x')"
    digest = hashlib.sha1(source, usedforsecurity=False).hexdigest()
    found = sandbox.run(Program(source, digest), (), (), answer)
    assert found == Failure("ERR", f"user_script:1: x script: {digest}, on @user_script:1.")
