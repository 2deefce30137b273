"""What people write who come from other libraries: it works, or the error says what to write here."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import holdfast
from holdfast.values.durations import parse_rate, to_s
from holdfast.values.other_words import Suggesting
from tests.unit.holdfast.conftest import NewClient, a_node


@pytest.fixture(params=[holdfast.SyncClient, holdfast.AsyncClient])
def lock(request: pytest.FixtureRequest) -> Any:
    """Return a lock of a client that is never asked for anything."""
    return request.param("127.0.0.1:1").lock("a")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"timeout": 5}, "how long to wait for the lock is wait="),
        ({"blocking_timeout": 5}, "how long to wait for the lock is wait="),
        ({"wiat": 5}, "did you mean wait="),
    ],
)
def test_another_word_for_the_wait_is_answered_with_ours(
    lock: Any, options: dict[str, int], said: str
) -> None:
    """`acquire` of a lock says so as `lock()` and `client.acquire()` do."""
    with pytest.raises(
        TypeError, match=re.escape(f"acquire() has no argument {next(iter(options))!r}: {said}")
    ):
        lock.acquire(**options)


@pytest.mark.parametrize(
    ("call", "options", "said"),
    [
        (
            "acquire",
            {"timeout": 5},
            "acquire() has no argument 'timeout': how long to wait for the lock",
        ),
        ("acquire", {"limit": 3}, "acquire() has no argument 'limit': several holders"),
        ("acquire", {"on_revoke": print}, "'on_revoke': what a holder is asked .* in hold.revocation"),
        ("lock", {"owner": "me"}, "lock() has no argument 'owner': owner= is the client's"),
        ("semaphore", {"max_leases": 3}, "semaphore() has no argument 'max_leases': .* is limit="),
        ("semaphore", {"weight": 3}, "semaphore() has no argument 'weight': .* is permits="),
        ("acquire", {"wait_timeout": 3}, "acquire() has no argument 'wait_timeout': .* is wait="),
        ("acquire", {"expiry": 3}, "acquire() has no argument 'expiry': .* is ttl="),
        ("acquire", {"auto_renew": True}, "acquire() has no argument 'auto_renew': holds are renewed"),
        ("acquire", {"request_id": "r"}, "acquire() has no argument 'request_id': the client makes"),
        ("lock", {"sleep": 0.1}, "lock() has no argument 'sleep': who waits stands in a queue"),
    ],
)
@pytest.mark.parametrize("kind", [holdfast.SyncClient, holdfast.AsyncClient])
def test_an_error_names_the_call_that_was_made_and_the_argument_that_was_meant(
    kind: Any, call: str, options: dict[str, object], said: str
) -> None:
    """Both clients say the same, also where one call is short for another."""
    with pytest.raises(TypeError, match=said.replace("()", r"\(\)")):
        getattr(kind("127.0.0.1:1"), call)("a", **options)


@pytest.mark.parametrize(
    ("made", "call"),
    [
        (lambda: holdfast.Lock("a"), "client.lock(name), or client.acquire(name)"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.Lock(holdfast.Client("127.0.0.1:1"), "a"), "client.lock(name)"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.SyncLock("a"), "client.lock(name)"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.Semaphore(name="a"), "client.semaphore(name, limit)"),  # type: ignore[call-arg]
        (lambda: holdfast.Election("a"), "client.election(name)"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.RateLimiter("a"), "client.rate_limiter(name,"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.Fence("a"), "client.fence(name)"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.Hold("a"), "client.acquire(name), or the block of client.lock(name)"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.SyncHold("a"), "client.acquire(name)"),  # type: ignore[arg-type]
        (lambda: holdfast.Session("a"), "client.session(ttl=20)"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.Leadership("a"), "the block of client.election(name)"),  # type: ignore[call-arg, arg-type]
        (lambda: holdfast.Transaction("a"), "client.transaction()"),  # type: ignore[call-arg, arg-type]
    ],
)
def test_a_class_that_is_called_as_in_other_libraries_names_the_call_of_a_client(
    made: Callable[[], object], call: str
) -> None:
    """With a name, by its keyword, or with a client and a name."""
    with pytest.raises(TypeError, match=f"is made by a client: {re.escape(call)}"):
        made()


@pytest.mark.parametrize("entered", ["client", "lock", "acquiring", "session", "limiter"])
async def test_the_wrong_kind_of_with_names_the_right_one(entered: str) -> None:
    """What both clients make says so; type checkers refuse it as before."""

    def things(client: Any) -> Any:
        return {
            "client": lambda: client,
            "lock": lambda: client.lock("a"),
            "session": client.session,
            "limiter": lambda: client.rate_limiter("r", "5/minute"),
        }

    client = holdfast.AsyncClient("127.0.0.1:1")
    acquiring: Any = client.acquire("a") if entered == "acquiring" else None
    with (
        pytest.raises(TypeError, match="'async with', not 'with'; the client for threads is SyncClient"),
        acquiring or things(client)[entered](),
    ):
        pass
    if acquiring is not None:
        acquiring.close()
        return
    with pytest.raises(TypeError, match="'with', not 'async with'; the client for asyncio is Client"):
        async with things(holdfast.SyncClient("127.0.0.1:1"))[entered]():
            pass


@pytest.mark.parametrize("kind", [holdfast.SyncClient, holdfast.AsyncClient])
def test_a_value_that_is_no_text_is_refused_before_it_is_sent(kind: Any) -> None:
    """`value` is the number of permits of Python's own semaphores."""
    with pytest.raises(TypeError, match=r"value: 3 is not a str: .*; the number of permits is limit="):
        kind("127.0.0.1:1").semaphore("a", value=3)
    with pytest.raises(TypeError, match=r"note: None is not a str: others read it beside the hold$"):
        kind("127.0.0.1:1").lock("a", note=None)


@pytest.mark.parametrize("kind", [holdfast.SyncClient, holdfast.AsyncClient])
def test_another_word_for_a_period_is_answered_with_ours(kind: Any) -> None:
    """As for the keywords of locks."""
    client = kind("127.0.0.1:1")
    with pytest.raises(TypeError, match=r"no argument 'window': the length of a period is per="):
        client.rate_limiter("r", limit=5, window=60)
    with pytest.raises(TypeError, match=r"no argument 'algoritm': did you mean algorithm=\?"):
        client.rate_limiter("r", "5/minute", algoritm="gcra")


@pytest.mark.parametrize("kind", [holdfast.SyncClient, holdfast.AsyncClient])
def test_another_name_for_a_call_is_answered_with_ours(kind: Any) -> None:
    """Of a client and of what it makes; names that nobody has stay plain errors."""
    client = kind("127.0.0.1:1")
    for asked, name, said in (
        (client, "Lock", r": client\.lock\(name\)"),
        (client, "elect", r": client\.election\(name\)"),
        (client, "get", r": who has a lock and who waits is client\.inspect\(name\)"),
        (client, "list_locks", r": client\.list\(prefix\)"),
        (client, "members", r": client\.cluster\(\)"),
        (client, "lease", r": client\.session\(ttl=20\)"),
        (client, "aclose", r": close\(\) ends a client"),
        (client.cells, "set", r": values are kept in client\.cells: put\(\)"),
        (client.rate_limiter("a"), "acquire", r": a rate limit has take\(\) and try_take\(\)"),
        (client.rate_limiter("a"), "allow", r": a rate limit has take\(\) and try_take\(\)"),
        (client.election("a"), "contenders", r": .* client\.get_election\(name\)"),
        (client.lock("a"), "try_lock", r": acquire\(wait=0\) tries once"),
        (client.election("e"), "campaign", ": client.election"),
        (client.rate_limiter("r", "5/s"), "ttl", ": remaining"),
        (client.fence("f"), "fencing_token", ": token"),
        (client, "try_acquire", r": .* try_acquire\(\) of a lock returns a hold or None"),
        (client, "rw_lock", r": .* client\.lock\(name, mode='shared'\)"),
        (client, "acquire_all", r": client\.locks\(\*names\)"),
        (client, "create_session", r": client\.session\(ttl=20\)"),
        (client, "kv", r": values are kept in client\.cells"),
        (client, "leader", r": client\.election\(name\)\.leader\(\)"),
        (client, "transfer", r": hold\.hand_over\(to_session="),
        (client, "barrier", r": .*docs/recipes\.md"),
        (client, "throttle", r": client\.rate_limiter\("),
        (client.election("e"), "run", r": @holdfast\.leader\(name\)"),
        (client.lock("a"), "token", r": a hold has it: .*acquire\(\) returns"),
        (client.lock("a"), "renew", r": a hold has it"),
        (client, "nonsense", "'nonsense'$"),
    ):
        text = f"'{type(asked).__name__}' object has no .*{said}"
        with pytest.raises(AttributeError, match=text) as caught:
            getattr(asked, name)
        assert (caught.value.name, caught.value.obj) == (name, asked)
        assert not hasattr(asked, name)


async def test_an_acquire_that_is_not_awaited_says_that_a_hold_has_it() -> None:
    """`client.acquire(name).token` without `await` is answered with what to write."""
    acquiring: Any = holdfast.AsyncClient("127.0.0.1:1").acquire("a")
    with pytest.raises(AttributeError, match=r"'Acquiring' object has no attribute 'token': a hold has it: "):
        _ = acquiring.token
    acquiring.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("NotAcquired", "LockHeld, or LockTimeout after a wait, says that others have it"),
        ("LockNotOwnedError", "LeaseLost says that a hold is over"),
        ("connect", "begin with Client(nodes), or SyncClient(nodes) for threads"),
        ("nonsense", ""),
    ],
)
def test_another_name_in_the_package_is_answered_with_ours(name: str, said: str) -> None:
    """For exceptions and ways to begin; it stays an error."""
    expected = f"module 'holdfast' has no attribute {name!r}" + (f": {said}" if said else "")
    with pytest.raises(AttributeError, match=f"^{re.escape(expected)}$"):
        getattr(holdfast, name)
    assert not hasattr(holdfast, name)


async def test_another_name_for_a_renewal_is_answered_with_ours(new_client: NewClient) -> None:
    """A hold is not extended, but renewed."""
    async with a_node() as (_, url), new_client(url) as client, client.lock("a", ttl=60) as lock:
        hold: Any = lock
        with pytest.raises(AttributeError, match=r"'extend': renew\(\) restarts the lease"):
            hold.extend()


def test_what_a_property_raises_is_what_is_raised() -> None:
    """It is not taken for a name that is missing."""

    class Broken(Suggesting):
        @property
        def ttl(self) -> int:
            raise AttributeError("what the property said")

    with pytest.raises(AttributeError, match="what the property said"):
        _ = Broken().ttl


@pytest.mark.parametrize("word", ["host", "hosts", "endpoints", "url"])
def test_another_word_for_the_nodes_is_answered_with_ours(word: str) -> None:
    """Redis' client has `host`, ZooKeeper's `hosts`."""
    client: Any = holdfast.SyncClient
    with pytest.raises(TypeError, match=f"no argument '{word}': the addresses are the first argument"):
        client(**{word: "127.0.0.1:1"})


def test_a_list_of_names_is_answered_with_the_call_for_several() -> None:
    """A tuple is one name of several parts; a list is likely meant as several locks."""
    client: Any = holdfast.SyncClient("127.0.0.1:1")
    for call in (client.acquire, client.lock, client.locks):
        with pytest.raises(TypeError, match=r"is a list; .*; several locks are locks\(\*names\)"):
            call(["a", "b"])


def test_a_reader_is_told_the_mode() -> None:
    """`shared=True` is an option of the command line; here it is a mode."""
    client: Any = holdfast.SyncClient("127.0.0.1:1")
    with pytest.raises(TypeError, match="mode='shared'"):
        client.lock("a", shared=True)


def test_an_empty_name_is_refused_before_it_is_sent() -> None:
    """A node would be asked for a lock without a name, and answer about other fields."""
    client = holdfast.SyncClient("127.0.0.1:1")
    for make in (client.lock, client.semaphore, client.election, client.fence):
        with pytest.raises(ValueError, match="name: is empty"):
            make("")


@pytest.mark.parametrize("length", [True, False, "5", b"5", None])
def test_a_length_of_time_is_a_number(length: Any) -> None:
    """True is not one second, and text is not converted: the error names the argument."""
    with pytest.raises(TypeError, match=rf"^wait: {re.escape(repr(length))} is a .*; give seconds"):
        to_s(length, "wait")


def test_a_lock_does_not_wait_for_true() -> None:
    """`wait=True` would mean one second to us, and for ever to its author."""
    client: Any = holdfast.SyncClient("127.0.0.1:1")
    with pytest.raises(TypeError, match="wait: True is a bool"):
        client.lock("a", wait=True)
    with pytest.raises(ValueError, match="-1 is not a length of time; None waits for as long as it takes"):
        client.lock("a", wait=-1)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/minute", (100, 60)),
        ("5/s", (5, 1)),
        ("1 / day", (1, 86_400)),
        ("20/10m", (20, 600)),
        ("3/hour", (3, 3600)),
    ],
)
def test_a_rate_is_read(text: str, rate: tuple[int, float]) -> None:
    """A number, and a unit or a length of time."""
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    "text", ["", "100", "/s", "100/", "0/s", "-1/s", "1.5/s", "5/10", "5/fortnight", "a/s"]
)
def test_what_is_not_a_rate_is_refused(text: str) -> None:
    """The error shows how one is written."""
    with pytest.raises(ValueError, match="is not a rate; write it like 100/minute"):
        parse_rate(text)


async def test_a_block_takes_from_a_rate_limit(new_client: NewClient) -> None:
    """A place is taken before the block, and not given back after it."""
    async with a_node() as (_, url), new_client(url) as client:
        limiter = client.rate_limiter("mail", "2/hour")
        async with limiter as taken:
            assert taken.remaining == 1
        assert (await limiter.peek()).remaining == 1
        same = client.rate_limiter("mail", 2, timedelta(hours=1))
        assert (await same.take()).remaining == 0


def test_the_period_of_a_rate_limit_is_said_once() -> None:
    """In the text, or beside the number."""
    client = holdfast.SyncClient("127.0.0.1:1")
    for arguments in ((100,), ("100/minute", 60)):
        with pytest.raises(TypeError, match="say limit='100/minute', or limit=100 and per=60"):
            client.rate_limiter("mail", *arguments)
