"""The table of commands about keys. Each runs on an overlay: alone, in a transaction, or in a script."""

from typing import Final

from redis_api.keys import generic, lists, scripting, strings
from redis_api.keys.overlay import Act, DataCommand
from redis_api.protocol.arguments import TimeUnit

_ALL: Final = (1, -1, 1)
_SECONDS: Final = TimeUnit(1000)
_MS: Final = TimeUnit()
_AT_S: Final = TimeUnit(1000, is_moment=True)
_AT_MS: Final = TimeUnit(is_moment=True)


def _read(
    name: str, arity: int, act: Act, summary: str, keys: tuple[int, int, int] = (1, 1, 1)
) -> DataCommand:
    return DataCommand(name, arity, act, summary, keys, writes=False)


def _script(name: str, summary: str) -> DataCommand:
    form = scripting.FORMS[name.encode()]
    return DataCommand(name, -3, scripting.evaluating(form), summary, (0, 0, 0), form.writes)


_W: Final = DataCommand
_expiring, _remaining = generic.expiring, generic.remaining

DATA: Final = {
    row.name.encode(): row
    for row in (
        # -- keys of any type -------------------------------------------------------------------------------
        _W("DEL", -2, generic.delete, "Ends keys; a hold of this client, or anybody's by force.", _ALL),
        _W("UNLINK", -2, generic.delete, "The same as DEL.", _ALL),
        _W("DELEX", -2, generic.delex, "Ends a key if it has a value: DELEX key IFEQ value."),
        _W("EXPIRE", -3, _expiring(_SECONDS, "expire"), "Sets how many seconds a key lasts."),
        _W("PEXPIRE", -3, _expiring(_MS, "pexpire"), "Sets how many milliseconds a key lasts."),
        _W("EXPIREAT", -3, _expiring(_AT_S, "expireat"), "Sets the second until which a key lasts."),
        _W("PEXPIREAT", -3, _expiring(_AT_MS, "pexpireat"), "Sets the millisecond until which a key lasts."),
        _W("PERSIST", 2, generic.persist, "Lets a string or list last without an end."),
        _read("EXISTS", -2, generic.exists, "Counts the keys that are there.", _ALL),
        _read("TYPE", 2, generic.type_, "Tells the type of a key."),
        _read("TTL", 2, _remaining(1000), "Tells how many seconds a key lasts."),
        _read("PTTL", 2, _remaining(1), "Tells how many milliseconds a key lasts."),
        _read("EXPIRETIME", 2, _remaining(1000, is_moment=True), "Tells in which second a key ends."),
        _read("PEXPIRETIME", 2, _remaining(1, is_moment=True), "Tells in which millisecond it ends."),
        _read("HF.TOKEN", -2, generic.token, "Tells the fencing token of a lock."),
        # -- strings ----------------------------------------------------------------------------------------
        _W("SET", -3, strings.set_, "Writes a string, or takes a lock: SET key value NX [PX ms]."),
        _W("SETNX", 3, strings.setnx, "Takes a lock without a deadline."),
        _W("SETEX", 4, strings.setting(_SECONDS, "setex"), "Writes a string for some seconds."),
        _W("PSETEX", 4, strings.setting(_MS, "psetex"), "Writes a string for some milliseconds."),
        _W("GETSET", 3, strings.getset, "Writes a string, and tells what it was."),
        _W("GETDEL", 2, strings.getdel, "Tells a string, and ends it."),
        _W("GETEX", -2, strings.getex, "Tells a string, and sets how long it lasts."),
        _W("MSET", -3, strings.mset, "Writes strings in one step.", (1, -1, 2)),
        _W("MSETNX", -3, strings.msetnx, "Takes locks without a deadline, all or none.", (1, -1, 2)),
        _W("APPEND", 3, strings.append, "Appends to a string."),
        _W("INCR", 2, strings.adding(1, is_given=False), "Adds one to a number."),
        _W("DECR", 2, strings.adding(-1, is_given=False), "Takes one from a number."),
        _W("INCRBY", 3, strings.adding(1, is_given=True), "Adds to a number."),
        _W("DECRBY", 3, strings.adding(-1, is_given=True), "Takes from a number."),
        _read("GET", 2, strings.get, "Tells a string, or the value of a lock."),
        _read("MGET", -2, strings.mget, "Tells strings and values of locks.", _ALL),
        _read("GETRANGE", 4, strings.getrange, "Tells a part of a string."),
        _read("STRLEN", 2, strings.strlen, "Tells the length of a string."),
        # -- scripts ----------------------------------------------------------------------------------------
        _script("EVAL", "Runs a script, in one step."),
        _script("EVALSHA", "The same, by its hash."),
        _script("EVAL_RO", "Runs a script that changes nothing."),
        _script("EVALSHA_RO", "The same, by its hash."),
        # -- lists ------------------------------------------------------------------------------------------
        _W("LPUSH", -3, lists.pushing(at_head=True), "Puts elements before a list."),
        _W("RPUSH", -3, lists.pushing(at_head=False), "Puts elements behind a list."),
        _W("LPOP", -2, lists.popping(at_head=True), "Takes the first elements of a list."),
        _W("RPOP", -2, lists.popping(at_head=False), "Takes the last elements of a list."),
        _W("BLPOP", -3, lists.popping_first(at_head=True), "Waits for the first element.", (1, -2, 1)),
        _W("BRPOP", -3, lists.popping_first(at_head=False), "Waits for the last element.", (1, -2, 1)),
        _W("LTRIM", 4, lists.trim, "Leaves some elements of a list."),
        _read("LINDEX", 3, lists.index, "Tells one element of a list."),
        _read("LLEN", 2, lists.length, "Tells the length of a list."),
        _read("LRANGE", 4, lists.span, "Tells elements of a list."),
    )
}
"""The commands by their names in capitals."""
