"""Strings, lists and transactions of clients of Redis beside locks, over real sockets."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from cluster.errors import NoLeader
from lockstate.words import limits
from lockstate.words.commands.cells import DeleteCells, PutCell, TransactCells
from lockstate.words.commands.holds import Acquire
from lockstate.words.commands.overrides import Freeze
from lockstate.words.ids import AttemptId, HoldId
from lockstate.words.modes import Mode, Scope
from lockstate.words.wanted import Uncommon, Wanted
from redis_api.commands import data_handlers, scanning
from redis_api.keys import cell_values, transact
from redis_api.protocol.errors import CommandRefused
from redis_api.shared import cursors, key_waits
from tests.unit.http_api.serving import token_line, until
from tests.unit.redis_api.test_server import OTHER_TOKEN, TOKEN, VALUE, Connected, Served, serving

COMPARE_AND_DELETE = (
    "if redis.call('get',KEYS[1]) == ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
)


async def transaction(client: Connected, *commands: tuple[Any, ...]) -> Any:
    """Send commands between MULTI and EXEC, and return what EXEC answers."""
    assert await client.ask("MULTI") == "+OK"
    for words in commands:
        assert await client.ask(*words) == "+QUEUED"
    return await client.ask("EXEC")


def newest_of(served: Served) -> str:
    """Return what happened last to the lock k."""
    return served.node.machine.audit("redis/0/k")[0].kind.value


def acquire(letter: str, wait_ms: int = 0) -> Acquire:
    """Return what another face asks for the lock k."""
    ids = HoldId(letter * 32), AttemptId(letter * 32)
    return Acquire("redis/0/k", Mode.EXCLUSIVE, *ids, ttl_ms=60_000, wait_ms=wait_ms)


# -- a key is a cell or a lock -------------------------------------------------------------------------------


async def test_other_faces_read_a_string_as_it_is() -> None:
    """It is the value of the cell with the name of the key; a list has a mark."""
    async with serving() as served, served.client() as client:
        for value in (b"v", b"", b"\0begins with zero", b"\0s", b"\0lx"):
            assert await client.ask("SET", "k", value) == "+OK"
            assert await client.ask("GET", "k") == value
        await client.ask("SET", "k", "plain")
        cell = served.node.machine.cell(b"redis/0/k")
        assert cell is not None
        assert cell.value == b"plain"
        await served.node.submit(PutCell(b"redis/0/written", b"\0l?"), 5.0)
        assert await client.ask("GET", "written") == b"\0l?"
        assert await client.ask("TYPE", "written") == "+string"


async def test_what_is_a_cell_is_no_lock() -> None:
    """SET NX finds it, alone and in a transaction, and takes nothing."""
    async with serving() as served, served.client() as client:
        assert await client.ask("SET", "k", "v") == "+OK"
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) is None
        assert await client.ask("SETNX", "k", VALUE) == 0
        assert await transaction(client, ("SET", "k", VALUE, "NX", "PX", 30_000)) == [None]
        assert served.holders == []


async def test_a_take_that_meets_a_cell_is_given_back() -> None:
    """The cell was written while the take was under way: the answer is nil, and nobody saw the hold."""
    async with serving() as served, served.client() as client:
        served.node.answers.clear()
        client.send("SET", "k", VALUE, "NX", "PX", 30_000)
        await until(lambda: bool(served.holders))
        await served.node.submit(PutCell(b"redis/0/k", b"v"), 5.0)
        served.node.answers.set()
        assert await client.read() is None
        assert served.holders == []
        assert await client.ask("GET", "k") == b"v"


@pytest.mark.parametrize(
    ("cell", "said"), [(b"w", 0), (VALUE, "-TRYAGAIN the key has become a string: run the script again")]
)
async def test_a_script_that_meets_a_cell_compares_its_value(cell: bytes, said: object) -> None:
    """It was begun as one step for a lock: another value is the answer that it would give, too."""
    async with serving() as served, served.client() as client:
        served.node.answers.clear()
        client.send("SET", "before", VALUE, "NX", "PX", 30_000)
        client.send("EVAL", COMPARE_AND_DELETE, 1, "k", VALUE)
        await until(lambda: served.face.commands["EVAL"] == 1)
        await served.node.submit(PutCell(b"redis/0/k", cell), 5.0)
        served.node.answers.set()
        assert await client.read() == "+OK"
        assert await client.read() == said
        assert await client.ask("GET", "k") == cell


async def test_a_cell_beside_a_hold_is_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its taker gives the hold back, or for good if that died: it reads as one, and can be written."""
    async with serving() as served, served.client() as client:
        assert await client.ask("SET", "k", "v") == "+OK"
        await served.node.submit(acquire("h"), 5.0)
        assert await client.ask("GET", "k") == b"v"
        assert await client.ask("INCR", "n") == 1
        assert await client.ask("SET", "k", "w") == "+OK"
        assert await client.ask("GET", "k") == b"w"
        assert await client.ask("KEYS", "k") == [b"k"]
        monkeypatch.setattr(transact, "TRIES_COUNT_MAX", 1)
        taken = await transaction(client, ("DEL", "k"), ("SET", "k", VALUE, "NX", "PX", 1_000))
        assert taken == [1, None], "the lock is held"
        assert len(served.holders) == 1


async def test_a_string_on_a_held_lock_is_a_force() -> None:
    """It needs the right, and is in the audit. The holder's own is none; its own value renews the lock."""
    async with serving() as served, served.client() as holder, served.client() as other:
        assert await holder.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"
        assert await holder.ask("SET", "k", VALUE, "XX", "PX", 60_000) == "+OK"
        assert len(served.holders) == 1
        assert await other.ask("PTTL", "k") > 50_000
        assert await holder.ask("SET", "k", "string") == "+OK"
        assert newest_of(served) == "released"
        assert await holder.ask("DEL", "k") == 1
        assert await holder.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"
        assert await other.ask("SET", "k", "string") == "+OK"
        assert newest_of(served) == "forced"
        assert await holder.ask("PEXPIRE", "k", 1_000) == 1


async def test_rights_are_those_of_the_name() -> None:
    """What changes a key needs `acquire` and `read`; what ends somebody's lock, `force`."""
    tokens = token_line("billing", TOKEN, "acquire,read@redis/0/billing")
    tokens += token_line("ops", OTHER_TOKEN, "force,acquire,read")
    async with serving(tokens) as served, served.client() as client, served.client() as ops:
        await client.ask("AUTH", TOKEN)
        await ops.ask("AUTH", OTHER_TOKEN)
        assert await ops.ask("SET", "other", "v") == "+OK"
        assert await ops.ask("SET", "billing/lock", VALUE, "NX", "PX", 30_000) == "+OK"
        assert await client.ask("SET", "billing/a", "v") == "+OK"
        for words in (("SET", "other", "v"), ("GET", "other"), ("INCR", "other"), ("LPUSH", "other", "v")):
            assert (await client.ask(*words)).startswith("-NOPERM forbidden: this needs the right")
        for words in (("SET", "billing/lock", "v"), ("GETSET", "billing/lock", "v")):
            assert (await client.ask(*words)).startswith("-NOPERM forbidden: this needs the right force")
        assert await client.ask("DELEX", "billing/lock", "IFEQ", "wrong") == 0
        refused = await client.ask("DELEX", "billing/lock", "IFEQ", VALUE)
        assert refused.startswith("-NOPERM "), "it belongs to another principal"
        done = await transaction(client, ("SET", "billing/b", "v"), ("GET", "other"))
        assert done[0] == "+OK"
        assert done[1].startswith("-NOPERM ")
        assert await client.ask("KEYS", "billing/*") == [b"billing/a", b"billing/b", b"billing/lock"]
        assert await client.ask("DBSIZE") == len(await client.ask("KEYS", "*")) == 3
        assert await ops.ask("DBSIZE") == 4
        assert await client.ask("SCAN", 0, "MATCH", "*", "COUNT", 100) == [
            b"0",
            [b"billing/a", b"billing/b", b"billing/lock"],
        ]
        assert (await client.ask("KEYS", "other*")).startswith("-NOPERM ")
        assert {each.route for each in served.authentication.trace.newest(20).refusals} >= {"INCR", "GET"}


async def test_a_value_proves_whose_a_lock_is() -> None:
    """DELEX on another connection of the same principal ends it in order, not by force."""
    async with serving() as served, served.client() as holder, served.client() as other:
        assert await holder.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"
        assert await other.ask("DELEX", "k", "IFNE", VALUE) == 0
        assert await other.ask("DELEX", "k", "IFEQ", VALUE) == 1
        assert newest_of(served) == "released"
        assert await holder.ask("PEXPIRE", "k", 1_000) == 0


# -- times ---------------------------------------------------------------------------------------------------


async def test_what_is_rewritten_keeps_its_time() -> None:
    """A counter that many write all the time still ends when it was to."""
    async with serving() as served, served.client() as client:
        await client.ask("SET", "k", "1", "PX", 60_000)
        cell = served.node.machine.state.cells.get(b"redis/0/k")
        assert cell is not None
        ends_at_ms = cell.expires_at_ms
        for words in (("INCR", "k"), ("APPEND", "k", "0"), ("SET", "k", "7", "KEEPTTL")):
            served.node.let_time_pass()
            await client.ask(*words)
            assert cell.expires_at_ms == ends_at_ms
        assert await client.ask("PERSIST", "k") == 1
        assert await client.ask("PEXPIRE", "k", 50_000, "GT") == 0
        assert await client.ask("PEXPIRE", "k", 50_000, "NX") == 1
        assert 40_000 < await client.ask("PTTL", "k") <= 50_000
        assert await client.ask("SET", "k", "v", "PXAT", 1) == "+OK"
        assert await client.ask("EXISTS", "k") == 0


async def test_a_string_made_of_a_lock_lasts_as_long() -> None:
    """A number is a lock's value, and counting on does not make it last for ever, nor does APPEND."""
    async with serving() as served, served.client() as client:
        for key, words in (("i", ("INCR", "i")), ("a", ("APPEND", "a", "1"))):
            assert await client.ask("SET", key, "41", "NX", "PX", 60_000) == "+OK"
            await client.ask(*words)
            assert 50_000 < await client.ask("PTTL", key) <= 60_000
        assert served.holders == []


async def test_times_that_no_number_can_tell_are_refused_by_name() -> None:
    """The error names the command, as in Redis."""
    async with serving() as served, served.client() as client:
        for words in (
            ("EXPIRE", "k", 2**62), ("PEXPIRE", "k", 2**63 - 1), ("EXPIREAT", "k", 2**62),
            ("SETEX", "k", 2**62, "v"), ("PSETEX", "k", 2**63 - 1, "v"), ("SET", "k", "v", "EX", 2**62),
        ):  # fmt: skip
            refused = await client.ask(*words)
            assert refused == f"-ERR invalid expire time in '{words[0].lower()}' command"


# -- transactions --------------------------------------------------------------------------------------------


async def test_a_transaction_takes_and_ends_locks_with_cells() -> None:
    """All of it is one revision of the state: one entry of the log."""
    async with serving() as served, served.client() as client:
        assert await client.ask("SET", "old", VALUE, "NX", "PX", 30_000) == "+OK"
        before = served.node.machine.revision
        done = await transaction(
            client,
            ("SET", "new", VALUE, "NX", "PX", 30_000),
            ("GET", "new"),
            ("DEL", "old"),
            ("RPUSH", "list", "a", "b"),
            ("SELECT", 1),
            ("INCR", "count"),
            ("HF.TOKEN", "new"),
        )
        assert done == ["+OK", VALUE, 1, 2, "+OK", 1, None]
        assert served.node.machine.revision == before + 1
        assert await client.ask("GET", "count") == b"1"
        await client.ask("SELECT", 0)
        assert await client.ask("HF.TOKEN", "new") == 2
        assert await client.ask("PEXPIRE", "new", 50_000) == 1, "it was taken on this connection"
        assert await client.ask("LRANGE", "list", 0, -1) == [b"a", b"b"]
        done = await transaction(client, ("SET", "next", VALUE, "NX", "PX", 30_000), ("HF.TOKEN", "next"))
        assert done[1].startswith("-ERR the token of a lock is known when"), done


@pytest.mark.parametrize(
    "words",
    [
        (("SETNX", "k", VALUE), ("PEXPIRE", "k", 30_000)),
        (("SETNX", "k", VALUE), ("GETEX", "k", "EX", 30)),
        (("SETNX", "k", VALUE), ("PEXPIRE", "k", 60_000), ("PEXPIRE", "k", 30_000)),
        (("SETNX", "k", VALUE), ("SET", "k", VALUE, "PX", 30_000)),
    ],
)
async def test_a_lock_gets_its_time_in_the_step_that_takes_it(words: tuple[tuple[Any, ...], ...]) -> None:
    """SETNX and EXPIRE together, as older lock clients do, are a take with a lease."""
    async with serving() as served, served.client() as client:
        assert (await transaction(client, *words))[0] == 1
        assert 20_000 < await client.ask("PTTL", "k") <= 30_000
        assert len(served.holders) == 1
        assert (await transaction(client, *words))[0] == 0
        refused = await transaction(client, ("SETNX", "other", VALUE), ("PERSIST", "other"))
        assert refused.startswith("-ERR invalid-request: no_deadline"), "it would have none"


@pytest.mark.parametrize(
    "words",
    [
        ("SET", "k", VALUE, "NX", "PX", 3),
        ("SET", "k", VALUE, "PX", 3),
        ("PSETEX", "k", 3, VALUE),
        ("EVAL", "return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', 3)", 1, "k", VALUE),
    ],
)
async def test_a_short_time_becomes_the_shortest_lease(
    words: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that is to last less than that is given so much, by whichever command."""
    if words[0] == "EVAL":
        pytest.importorskip("lupa.lua51", reason="needs lupa, the extra redis-lua of the node")
    monkeypatch.setattr(limits, "TTL_MS_MIN", 40_000)  # which does not pass meanwhile
    renewal = (
        "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2])"
        " else return 0 end"
    )
    async with serving() as served, served.client() as client:
        assert await client.ask(*words) == "+OK"
        for change in (("EVAL", renewal, 1, "k", VALUE, 1), ("PEXPIRE", "k", 1), ("EXISTS", "k")):
            assert 20_000 < await client.ask("PTTL", "k") <= 40_000
            assert await client.ask("PEXPIRE", "k", 60_000) == 1
            assert await client.ask(*change) == 1
        assert await client.ask("EVAL", renewal, 1, "k", VALUE, 0) == 1
        assert await client.ask("EXISTS", "k") == 0


async def test_a_release_that_tells_why_it_found_nothing() -> None:
    """The script of redsync tells a lock that is over from one that somebody else has, without Lua."""
    source = """
        local val = redis.call("GET", KEYS[1])
        if val == ARGV[1] then return redis.call("DEL", KEYS[1])
        elseif val == false then return -1
        else return 0 end
    """
    async with serving() as served, served.client() as client, served.client() as other:
        assert await client.ask("EVAL", source, 1, "k", VALUE) == -1
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"
        assert await other.ask("EVAL", source, 1, "k", "another") == 0
        assert await other.ask("EVAL", source, 1, "k", VALUE) == 1
        assert not served.holders
        assert await client.ask("SET", "k", VALUE) == "+OK", "a string"
        assert [await other.ask("EVAL", source, 1, "k", VALUE) for _ in range(2)] == [1, -1]


async def test_several_locks_are_taken_together_or_none() -> None:
    """MSETNX, with a time for each in the same step, and GETRANGE of their values."""
    async with serving() as served, served.client() as client, served.client() as other:
        step = ("MSETNX", "a", VALUE, "b", VALUE), ("PEXPIRE", "a", 30_000), ("PEXPIRE", "b", 30_000)
        assert await transaction(client, *step) == [1, 1, 1]
        assert len(served.holders) == 2
        assert await other.ask("GETRANGE", "a", 0, 3) == VALUE[:4]
        assert await other.ask("MSETNX", "c", VALUE, "b", VALUE) == 0
        assert await other.ask("EXISTS", "c") == 0
        assert (await other.ask("MSETNX", "c", VALUE, "d")).startswith("-ERR wrong number of arguments")
        assert (await other.ask("MSETNX", "c", VALUE)).startswith("-ERR invalid-request: no_deadline")
        await client.ask("SET", "text", "abcd")
        told = [await client.ask("GETRANGE", "text", *span) for span in ((0, -1), (-2, 9), (-9, 0), (3, 1))]
        assert told == [b"abcd", b"cd", b"a", b""]
        assert await client.ask("GETRANGE", "none", 0, -1) == b""


async def test_a_list_is_looked_at_and_trimmed() -> None:
    """LINDEX tells one element; LTRIM leaves what LRANGE tells, and nothing leaves no list."""
    async with serving() as served, served.client() as client:
        for start, stop, left in ((1, -2, [b"b", b"c"]), (-9, 9, [b"b", b"c"]), (0, 0, [b"b"]), (1, 0, [])):
            if start == 1:
                await client.ask("DEL", "k")
                await client.ask("RPUSH", "k", "a", "b", "c", "d")
            assert await client.ask("LTRIM", "k", start, stop) == "+OK"
            assert await client.ask("LRANGE", "k", 0, -1) == left
        assert await client.ask("LTRIM", "k", 0, 0) == "+OK", "of no list"
        assert await client.ask("LINDEX", "k", "x") is None, "as in Redis: there is nothing to look at"
        await client.ask("RPUSH", "list", "a", "b")
        told = [await client.ask("LINDEX", "list", place) for place in (0, 1, 2, -1, -2, -3)]
        assert told == [b"a", b"b", None, b"b", b"a", None]
        assert await client.ask("EXISTS", "k") == 0
        assert (await client.ask("LTRIM", "k", 0, "x")).startswith("-ERR value is not an integer")
        await client.ask("SET", "k", VALUE, "NX", "PX", 30_000)
        assert (await client.ask("LTRIM", "k", 0, 0)).startswith("-WRONGTYPE ")


async def test_a_lock_changes_hands_in_one_step() -> None:
    """DEL and SET NX of one key in a transaction: it is never free in between."""
    async with serving() as served, served.client() as client:
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 30_000) == "+OK"
        done = await transaction(
            client, ("EVAL", COMPARE_AND_DELETE, 1, "k", VALUE), ("SET", "k", "next", "NX", "PX", 30_000)
        )
        assert done == [1, "+OK"]
        assert await client.ask("HF.TOKEN", "k", "next") == 2


@pytest.mark.parametrize("wrong", [("NONSENSE",), ("GET",), ("SCAN", "0"), ("SUBSCRIBE", "c")])
async def test_what_cannot_be_queued_ends_the_transaction(wrong: tuple[str, ...]) -> None:
    """EXEC says so, and nothing is applied."""
    async with serving() as served, served.client() as client:
        await client.ask("MULTI")
        assert await client.ask("SET", "kept", "v") == "+QUEUED"
        assert (await client.ask(*wrong)).startswith("-ERR ")
        assert (await client.ask("EXEC")).startswith("-EXECABORT Transaction discarded because of previous")
        assert await client.ask("GET", "kept") is None


async def test_the_queue_of_a_transaction_has_bounds() -> None:
    """A client cannot pile up what never ends."""
    async with serving() as served, served.client() as client:
        await client.ask("MULTI")
        while (said := await client.ask("SET", "k", "v" * 60_000)) == "+QUEUED":
            pass
        assert said == (
            "-ERR a transaction has at most 1000 commands of 262144 bytes together, with 16 for each word"
        )
        assert (await client.ask("EXEC")).startswith("-EXECABORT ")
        assert (await client.ask("WATCH", *[f"k{number}" for number in range(1_001)])).startswith(
            "-ERR a conn"
        )


async def test_the_answer_of_a_transaction_has_a_bound() -> None:
    """A few bytes in the queue cannot ask for hundreds of megabytes at once; words without a letter count."""
    async with serving() as served, served.client() as client:
        await client.ask("SET", "k", "v" * 4_096)
        found = await transaction(client, *[("MGET", *["k"] * 200)] * 5)
        assert [len(values) for values in found] == [200] * 5
        wanted = [("SET", "n", "1"), *[("MGET", *["k"] * 200)] * 6]
        assert (await transaction(client, *wanted)).startswith(
            "-BUSY the answer is larger than 4194304 bytes"
        )
        assert await client.ask("GET", "n") is None
        await client.ask("MULTI")
        said = [await client.ask("MGET", *[""] * 1_000) for _ in range(17)]
        assert said[0] == "+QUEUED"
        assert said[-1].startswith("-ERR a transaction has at most 1000 commands of 262144 bytes together")
        assert (await client.ask("EXEC")).startswith("-EXECABORT ")


async def test_what_was_watched_must_not_have_changed() -> None:
    """Cells and locks, also those that were not there; DISCARD, UNWATCH and EXEC forget them."""
    async with serving() as served, served.client() as client, served.client() as other:
        for change in (
            ("SET", "k", "v"),
            ("SET", "k", "v"),
            ("DEL", "k"),
            ("SET", "k", VALUE, "NX", "PX", 30_000),
            ("DEL", "k"),
        ):
            assert await client.ask("WATCH", "k", "k") == "+OK"
            assert await other.ask(*change) in ("+OK", 1)
            assert await transaction(client, ("SET", "done", "1")) is None
        assert await transaction(client, ("GET", "done")) == [None], "nothing is watched any more"
        for end in ("UNWATCH", "DISCARD"):
            await client.ask("WATCH", "k")
            if end == "DISCARD":
                await client.ask("MULTI")
            await other.ask("INCR", "k")
            assert await client.ask(end) == "+OK"
            assert await transaction(client, ("GET", "k")) != [None]
        await client.ask("WATCH", "k")
        assert await transaction(client, ("SET", "k", "mine")) == ["+OK"]


async def test_a_change_that_comes_between_runs_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read is compared when it is applied; after too many times the client is told."""
    async with serving() as served, served.client() as client:
        monkeypatch.setattr(transact, "PAUSE_S_MAX", 0.0)
        await client.ask("SET", "n", "0")
        submit, others_count = served.node.submit, 3

        async def late(command: Any, timeout_s: float, principal: str = "") -> Any:
            nonlocal others_count
            if isinstance(command, TransactCells) and others_count:
                others_count -= 1
                await submit(PutCell(b"redis/0/n", b"%d" % random.randint(100, 900)), timeout_s)
            return await submit(command, timeout_s, principal)

        served.node.submit = late  # type: ignore[method-assign]
        assert await client.ask("INCR", "n") > 100
        others_count = 10_000
        assert (await client.ask("INCR", "n")).startswith("-BUSY other clients change the same keys")
        assert others_count == 10_000 - transact.TRIES_COUNT_MAX
        await until(lambda: not served.face.turns.is_taken("redis/0/n"))
        assert await client.ask("SET", "n", "blind") == "+OK", "what was not read may change"


@pytest.mark.parametrize("words", [("DEL", "k"), ("LPOP", "k"), ("GETDEL", "s"), ("SET", "s", "v", "XX")])
async def test_an_answer_is_that_of_the_step_in_which_it_is_applied(words: tuple[str, ...]) -> None:
    """What another client deleted first is not deleted again, or taken, or there to be written."""
    async with serving() as served, served.client() as client:
        await client.ask("RPUSH", "k", "a")
        await client.ask("SET", "s", "v")
        submit = served.node.submit

        async def late(command: Any, timeout_s: float, principal: str = "") -> Any:
            served.node.submit = submit  # type: ignore[method-assign]
            for key in (b"k", b"s"):
                await submit(DeleteCells(b"redis/0/" + key), timeout_s)
            return await submit(command, timeout_s, principal)

        served.node.submit = late  # type: ignore[method-assign]
        assert await client.ask(*words) in (0, None)


async def test_who_waits_too_long_for_a_turn_is_told() -> None:
    """Before the time of its request is over: nothing was asked of the cluster."""
    async with serving() as served, served.client() as client:
        async with served.face.turns.turn("redis/0/n", 5.0, is_contended=True):
            served.face.request_timeout_s = 0.1
            assert (await client.ask("INCR", "n")).startswith("-BUSY ")
        served.face.request_timeout_s = 5.0
        assert await client.ask("INCR", "n") == 1


async def test_a_lock_that_others_wait_for_is_not_overtaken() -> None:
    """It is free as far as compares go, and SET NX of a transaction answers nil as it does alone."""
    async with serving() as served, served.client() as client:
        await served.node.submit(acquire("a"), 5.0)
        waiting = asyncio.ensure_future(served.node.acquire(acquire("b", wait_ms=5_000), 10.0))
        await until(lambda: bool(served.node.machine.lock("redis/0/k").queue))
        assert await transaction(client, ("SET", "k", VALUE, "NX", "PX", 1_000)) == [None]
        assert await transaction(client, ("DEL", "k"), ("SET", "k", VALUE, "NX", "PX", 1_000)) == [1, None]
        await waiting
        assert served.holders == [2]


async def test_who_waits_for_a_subtree_is_not_overtaken_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock below is free, and SET NX of a transaction answers nil as it does alone."""
    async with serving() as served, served.client() as client:
        await served.node.submit(acquire("a"), 5.0)
        several = (Wanted("redis/0", scope=Scope.SUBTREE),)
        above = msgspec.structs.replace(acquire("b", wait_ms=5_000), name="", locks=several)
        waiting = asyncio.ensure_future(served.node.acquire(above, 10.0))
        await until(lambda: bool(served.node.machine.lock("redis/0").queue))
        assert await client.ask("SET", "other", VALUE, "NX", "PX", 1_000) is None
        monkeypatch.setattr(transact, "TRIES_COUNT_MAX", 1)
        assert await transaction(client, ("SET", "other", VALUE, "NX", "PX", 1_000)) == [None]
        assert await client.ask("DEL", "k") == 1
        await waiting


async def delay(served: Served, client: Connected) -> None:
    """Let a lock-delay keep the lock k."""
    asked = msgspec.structs.replace(acquire("a"), uncommon=Uncommon(lock_delay_ms=60_000))
    await served.node.submit(asked, 5.0)
    assert await client.ask("DEL", "k") == 1


async def test_a_lock_that_a_delay_keeps_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """SET NX of a transaction answers nil as it does alone, and what else it does is applied at once."""
    async with serving() as served, served.client() as client:
        await delay(served, client)
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 1_000) is None
        monkeypatch.setattr(transact, "TRIES_COUNT_MAX", 1)
        for number in (1, 2):
            taken = await transaction(
                client, ("SET", "k", VALUE, "NX", "PX", 1_000), ("SETNX", "k", VALUE), ("INCR", "n")
            )
            assert taken == [None, 0, number]
        assert await client.ask("EVAL", "return redis.call('SETNX', KEYS[1], 'v')", 1, "k") == 0


async def test_no_string_is_made_where_a_delay_keeps_the_lock() -> None:
    """Nothing could tell that nobody takes the lock meanwhile. It is said at once."""
    async with serving() as served, served.client() as client:
        await delay(served, client)
        for words in (("SET", "k", "v"), ("MSET", "k", "v"), ("INCR", "k"), ("RPUSH", "k", "v")):
            assert (await client.ask(*words)).startswith("-TRYAGAIN a lock-delay keeps")
        assert await client.ask("EXISTS", "k") == 0
        await served.node.submit(PutCell(b"redis/0/k", b"1"), 5.0)
        assert await client.ask("INCR", "k") == 2, "what is a string stays one"
        assert await client.ask("SET", "k", "v") == "+OK"


async def test_a_forced_end_that_leaves_a_delay_frees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction that ends such a hold and takes the name is told that it was not free."""
    async with serving() as served, served.client() as client:
        asked = msgspec.structs.replace(acquire("a"), uncommon=Uncommon(lock_delay_ms=60_000))
        await served.node.submit(asked, 5.0)
        monkeypatch.setattr(transact, "TRIES_COUNT_MAX", 1)
        taken = await transaction(client, ("DEL", "k"), ("SET", "k", VALUE, "NX", "PX", 1_000))
        assert taken == [1, None]


async def test_a_frozen_lock_is_not_taken_in_a_transaction_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """SET NX answers nil, alone and in a transaction, also if the freeze comes between; strings go on."""
    async with serving() as served, served.client() as client:
        node, freeze = served.node, Freeze("redis/0", "drained", 60_000)
        submit = node.submit

        async def submit_late(command: Any, *args: Any, **options: Any) -> Any:
            monkeypatch.undo()
            await node.submit(freeze, 5.0)
            return await submit(command, *args, **options)

        monkeypatch.setattr(node, "submit", submit_late)
        for number in (1, 2):
            taken = await transaction(client, ("SET", "k", VALUE, "NX", "PX", 1_000), ("INCR", "n"))
            assert taken == [None, number]
        assert await client.ask("SET", "k", VALUE, "NX", "PX", 1_000) is None
        assert await client.ask("SET", "k", "v") == "+OK"


async def test_the_parts_of_a_transaction_are_bounded() -> None:
    """A lease that is out of range is the answer of its command; too many keys refuse all of it."""
    async with serving() as served, served.client() as client:
        done = await transaction(
            client, ("SETEX", "k", 90_000, "v"), ("SET", "k", "v" * 5_000), ("INCR", "n")
        )
        assert done[0].startswith("-ERR ttl-out-of-range")
        assert done[1].startswith("-ERR 5000 bytes for one key")
        assert done[2] == 1
        refused = await transaction(client, *[("INCR", f"n{number}") for number in range(40)])
        assert refused.startswith("-ERR 80 things to compare and 40 to change in one step")
        assert await client.ask("EXISTS", "n0") == 0


async def test_any_number_of_keys_is_deleted() -> None:
    """In steps, whether they are there or not."""
    async with serving() as served, served.client() as client:
        for number in range(0, 100, 9):
            await client.ask("SET", f"k{number}", "v")
        assert await client.ask("DEL", *[f"k{number}" for number in range(100)]) == 12
        assert served.node.machine.cells(b"", b"", 9) == ([], None)


# -- lists ---------------------------------------------------------------------------------------------------


async def test_clients_wait_for_a_list_in_their_order() -> None:
    """Each element goes to the one that has waited longest; nobody polls."""
    async with serving() as served, served.client() as client:
        first, second, third = [await _waiting(served, count) for count in range(3)]
        assert await client.ask("RPUSH", "q", "a", "b") == 2
        assert await first.read() == [b"q", b"a"]
        assert await second.read() == [b"q", b"b"]
        assert await transaction(client, ("LPUSH", "q", "x"), ("LPOP", "q"), ("RPUSH", "p", "c")) == [
            1,
            b"x",
            1,
        ]
        assert await third.read() == [b"p", b"c"]
        assert served.face.waits.count == served.node.events.watchers == 0
        for each in (first, second, third):
            each.writer.close()


async def _waiting(served: Served, count: int) -> Connected:
    """Return a client that waits for q or p, behind so many others."""
    client = Connected(*await asyncio.open_connection("127.0.0.1", served.port))
    client.send("BLPOP", "q", "p", 0)
    await until(lambda: served.face.waits.count == count + 1)
    return client


async def test_a_client_that_is_gone_takes_nothing() -> None:
    """What would have been its element is for the next one."""
    async with serving() as served, served.client() as client:
        gone, next_one = [await _waiting(served, count) for count in range(2)]
        gone.writer.close()
        await until(lambda: served.face.waits.count == 1)
        assert await client.ask("LPUSH", "p", "a") == 1
        assert await next_one.read() == [b"p", b"a"]
        next_one.writer.close()


async def test_a_wait_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its time, as an empty answer; with the node, which says that it stops; too many are refused."""
    async with serving() as served, served.client() as client:
        assert await client.ask("BLPOP", "q", "0.01") is None
        monkeypatch.setattr(data_handlers, "WAIT_S_MAX", 0.01)
        assert await client.ask("BRPOP", "q", 0) is None
        monkeypatch.setattr(data_handlers, "WAIT_S_MAX", 100.0)
        assert (await client.ask("BLPOP", "q", "-1")).startswith("-ERR timeout is negative")
        await client.ask("SET", "string", "v")
        assert (await client.ask("BLPOP", "string", 1)).startswith("-WRONGTYPE ")
        other = await _waiting(served, 0)
        monkeypatch.setattr(key_waits, "WAITERS_COUNT_MAX", 1)
        assert (await client.ask("BLPOP", "q", 1)).startswith("-TRYAGAIN overloaded: 1 clients wait")
        monkeypatch.setattr(key_waits, "WAITERS_COUNT_MAX", 2)
        monkeypatch.setattr(key_waits, "NAMES_COUNT_MAX", 4)
        refused = await client.ask("BLPOP", "a", "b", "c", "d", 1)
        assert refused.startswith("-TRYAGAIN overloaded: clients of this node wait for 4 lists")
        assert await client.ask("BLPOP", "a", "b", "0.01") is None
        assert await client.ask("BLPOP", "a", "b", "0.01") is None, "those who wait no more count no more"
        served.node.events.restart(served.node.machine.revision)
        served.node.begin_shutdown()
        assert (await other.read()).startswith("-LOADING shutting-down")
        other.writer.close()


# -- SCAN and KEYS -------------------------------------------------------------------------------------------


async def test_a_scan_tells_each_key_that_stays() -> None:
    """Whatever comes and goes between its calls, in pages of any size."""
    async with serving() as served, served.client() as client:
        for number in range(20):
            await client.ask("SET", f"c{number:02}", "v")
            await client.ask("SET", f"l{number:02}", VALUE, "NX", "PX", 30_000)
        await client.ask("RPUSH", "list", "v")
        found: list[bytes] = []
        cursor, turn = b"0", 0
        while turn == 0 or cursor != b"0":
            cursor, page = await client.ask("SCAN", cursor, "COUNT", 3)
            found += page
            turn += 1
            await client.ask("SET", f"b{turn:02}", "v")
            await client.ask("DEL", f"c{turn:02}" if turn < 10 else f"l{turn % 10:02}")
        assert len(found) == len(set(found))
        assert {b"c%02d" % number for number in range(10, 20)} <= set(found)
        assert {b"l%02d" % number for number in range(10, 20)} <= set(found)
        assert await client.ask("SCAN", 0, "TYPE", "list", "COUNT", 1000) == [b"0", [b"list"]]
        assert (await client.ask("SCAN", 123)).startswith("-ERR invalid cursor")
        assert (await client.ask("SCAN", 0, "MATCH")).startswith("-ERR syntax error")


async def test_bounds_of_listings(monkeypatch: pytest.MonkeyPatch) -> None:
    """KEYS and DBSIZE refuse to look at too many; of all cursors the oldest are forgotten."""
    async with serving() as served, served.client() as client:
        for number in range(5):
            await client.ask("SET", f"k{number}", "v")
        assert await client.ask("DBSIZE") == 5
        monkeypatch.setattr(scanning, "KEYS_COUNT_MAX", 4)
        assert (await client.ask("DBSIZE")).startswith("-ERR DBSIZE looks at 4 keys at most")
        assert (await client.ask("KEYS", "*")).startswith("-ERR KEYS looks at 4 keys at most")
        assert await client.ask("KEYS", "k1*") == [b"k1"]
        monkeypatch.setattr(cursors, "CURSORS_COUNT_MAX", 1)
        old, _ = await client.ask("SCAN", 0, "COUNT", 2)
        new, _ = await client.ask("SCAN", 0, "COUNT", 3)
        assert (await client.ask("SCAN", old)).startswith("-ERR invalid cursor")
        assert await client.ask("SCAN", new) == [b"0", [b"k3", b"k4"]]
        await client.ask("SELECT", 1)
        assert (await client.ask("SCAN", new)).startswith("-ERR invalid cursor")


async def test_a_flush_ends_what_is_in_a_database_or_in_all() -> None:
    """Strings, lists and the locks of all clients, more than go into one step, and nothing beside them."""
    async with serving() as served, served.client() as client, served.client() as other:
        for number in range(70):
            await client.ask("SET", f"k{number}", "v")
        await client.ask("RPUSH", "list", "v")
        assert await other.ask("SET", "lock", VALUE, "NX", "PX", 30_000) == "+OK"
        for database in (1, 15):
            await other.ask("SELECT", database)
            assert await other.ask("SET", "lock", VALUE, "NX", "PX", 30_000) == "+OK"
        assert await client.ask("FLUSHDB", "SYNC") == "+OK"
        assert (await client.ask("DBSIZE"), len(served.holders)) == (0, 2)
        assert await client.ask("FLUSHDB") == "+OK", "of nothing"
        for words in (("FLUSHDB", "NOW"), ("FLUSHALL", "ASYNC", "SYNC")):
            assert (await client.ask(*words)).startswith("-ERR syntax error")
        assert await client.ask("FLUSHALL", "ASYNC") == "+OK"
        assert (await other.ask("DBSIZE"), len(served.holders)) == (0, 0)


async def test_a_flush_deletes_all_or_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many keys, a missing right and a lost leader are told, and nothing is deleted."""
    whole = "read,acquire,force@redis/0"
    tokens = token_line("billing", TOKEN, f"{whole} read,acquire@redis/0/kept")
    tokens += token_line("ops", OTHER_TOKEN, whole)
    async with serving(tokens) as served, served.client() as client, served.client() as ops:
        await client.ask("AUTH", TOKEN)
        await ops.ask("AUTH", OTHER_TOKEN)
        for key in ("a", "b", "kept/c"):
            await client.ask("SET", key, "v")
        refused = await client.ask("FLUSHDB")
        assert refused.startswith("-NOPERM forbidden: this needs the right force for 'redis/0/kept'")
        assert (await ops.ask("FLUSHALL")).startswith(
            "-NOPERM forbidden: this needs the right read for 'redis/1/'"
        )
        with monkeypatch.context() as bound:
            bound.setattr(scanning, "KEYS_COUNT_MAX", 2)
            assert (await ops.ask("FLUSHDB")).startswith("-ERR FLUSHDB looks at 2 keys at most")
        assert await ops.ask("DBSIZE") == 3
        served.node.failure = NoLeader("no leader")
        assert (await ops.ask("FLUSHDB")).startswith("-LOADING ")
        served.node.failure = None
        assert await ops.ask("FLUSHDB") == "+OK"
        assert await ops.ask("DBSIZE") == 0


def test_values_of_any_bytes_are_told_apart() -> None:
    """A string is never read as a list, nor the other way round."""
    for value in (b"", b"\0", b"\0l", b"\0l\x91\xc4\x01a", b"\0s", b"text"):
        assert cell_values.decode(cell_values.encode(value)) == value
    for items in ((b"",), (b"a", b"\0l"), (b"x",) * 100):
        assert cell_values.decode(cell_values.encode(items)) == items
    with pytest.raises(CommandRefused):
        cell_values.encode((b"x" * 2_000,) * 3)
