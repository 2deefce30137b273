"""Whose a hold is: its object's, whatever threads do. Each kind of block, entered and left each way.

In threads; test_ownership_in_tasks.py has the same for asyncio.
"""

import contextlib
import functools
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast.client import portal
from holdfast.testing import MemoryCluster, NullClient

TTL_S = 30.0
DEADLINE_S = 10.0

KINDS: dict[str, Callable[[holdfast.SyncClient], Any]] = {
    "lock": lambda client: client.lock("a", ttl=TTL_S, mode="shared"),
    "locks": lambda client: client.locks("a", "b", ttl=TTL_S, mode="shared"),
    "semaphore": lambda client: client.semaphore("a", 3, ttl=TTL_S),
    "together": lambda client: client.together(
        "a", permits=[holdfast.WantedPermits("gpu", limit=3)], ttl=TTL_S, mode="shared"
    ),
    "session": lambda client: client.session(ttl=TTL_S),
    "transaction": lambda client: client.transaction(ttl=TTL_S),
}
"""What may be entered more than once at a time."""
ALONE: dict[str, Callable[[holdfast.SyncClient], Any]] = {
    "exclusive": lambda client: client.lock("a", ttl=TTL_S),
    "election": lambda client: client.election("a", ttl=TTL_S),
}
"""What would wait for itself."""


@pytest.fixture
def cluster() -> Iterator[MemoryCluster]:
    """Give a cluster whose clock stands still."""
    with MemoryCluster() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: MemoryCluster) -> Iterator[holdfast.SyncClient]:
    """Give a client of that cluster."""
    with cluster.sync_client() as client:
        yield client


@pytest.fixture
def threads() -> Iterator[tuple[ThreadPoolExecutor, ThreadPoolExecutor]]:
    """Give two threads, which run what they are given."""
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        yield one, two


def eventually(check: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline_s, "in vain"
        threading.Event().wait(0.002)


def live_on(cluster: MemoryCluster, *kept: Any) -> None:
    """Let two leases pass, in steps; each of these is renewed meanwhile."""
    for _ in range(8):
        cluster.advance(TTL_S / 4)
        for one in kept:
            eventually(lambda one=one: one.remaining > TTL_S * 0.6)  # type: ignore[misc]


@contextlib.contextmanager
def warning_of_a_drop(match: str = r"was never (released|closed)") -> Iterator[None]:
    """Expect that something is collected unreleased, here or in the thread that had it last."""
    with pytest.warns(ResourceWarning, match=match) as caught:  # noqa: PT031 - both happen in it
        yield
        eventually(lambda: len(caught) > 0)


def is_held(client: holdfast.SyncClient) -> bool:
    """Whether anybody holds anything by the names of these tests, or has a session."""
    locks = [info for info in client.list() if info.holders]
    return bool(locks or client.get_semaphore("a").holders)


# -- each kind of block, each way -------------------------------------------------------------------------

Way = Callable[[Any, ThreadPoolExecutor, ThreadPoolExecutor], tuple[Any, Callable[[], object]]]
"""Enters a block; returns what it gave, and what leaves it."""


def by_statement(thing: Any, one: ThreadPoolExecutor, two: ThreadPoolExecutor) -> Any:
    """Enter and leave in one thread, by a `with`."""
    del two
    block = _generator(thing)
    return one.submit(next, block).result(), lambda: one.submit(next, block, None).result()


def by_statement_elsewhere(thing: Any, one: ThreadPoolExecutor, two: ThreadPoolExecutor) -> Any:
    """As web frameworks run a dependency with a `yield`: begun in one thread, ended in another."""
    block = contextlib.contextmanager(_generator)(thing)
    return (
        one.submit(block.__enter__).result(),
        lambda: two.submit(block.__exit__, None, None, None).result(),
    )


def by_stack(thing: Any, one: ThreadPoolExecutor, two: ThreadPoolExecutor) -> Any:
    """Enter an exit stack in one thread, and close it in another."""
    stack = contextlib.ExitStack()
    return one.submit(stack.enter_context, thing).result(), lambda: two.submit(stack.close).result()


def by_moved_stack(thing: Any, one: ThreadPoolExecutor, two: ThreadPoolExecutor) -> Any:
    """Let another stack leave what one has entered, as constructors do that hand on what they opened."""
    with contextlib.ExitStack() as stack:
        held = one.submit(stack.enter_context, thing).result()
        moved = stack.pop_all()
    return held, lambda: two.submit(moved.close).result()


def by_hand(thing: Any, one: ThreadPoolExecutor, two: ThreadPoolExecutor) -> Any:
    """Call what a `with` calls, from different threads."""
    return (
        one.submit(thing.__enter__).result(),
        lambda: two.submit(thing.__exit__, None, None, None).result(),
    )


def by_collection(thing: Any, one: ThreadPoolExecutor, two: ThreadPoolExecutor) -> Any:
    """Leave a generator early, by letting go of it."""
    del two
    blocks = [_generator(thing)]
    return one.submit(next, blocks[0]).result(), blocks.clear


def by_acquired(thing: Any, one: ThreadPoolExecutor, two: ThreadPoolExecutor) -> Any:
    """Acquire in one thread, and use the hold as the block of another."""
    acquire = thing.acquire if hasattr(thing, "acquire") else thing.open
    held = one.submit(acquire).result()

    def leave() -> None:
        with held:
            """Use it."""

    return held, lambda: two.submit(leave).result()


def _generator(thing: Any) -> Generator[Any]:
    with thing as held:
        yield held


WAYS: tuple[Way, ...] = (
    by_statement,
    by_statement_elsewhere,
    by_stack,
    by_moved_stack,
    by_hand,
    by_collection,
    by_acquired,
)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [*KINDS, *ALONE])
def test_a_block_ends_its_own_hold_wherever_it_is_left(
    cluster: MemoryCluster,
    client: holdfast.SyncClient,
    threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
    kind: str,
    way: Way,
) -> None:
    """It is renewed while the block is open, whatever the thread does that entered it; then it is free."""
    thing = (KINDS | ALONE)[kind](client)
    held, leave = way(thing, *threads)
    if way is not by_statement:
        threads[0].shutdown()
    live_on(cluster, held)
    assert held.state == "held"
    leave()
    assert (held.reason, held.lost.is_set()) == ("released", False)
    assert not is_held(client)
    assert client.election("a").leader() is None


@pytest.mark.parametrize("way", [way for way in WAYS if way not in (by_moved_stack, by_hand)])
@pytest.mark.parametrize("kind", KINDS)
def test_two_blocks_of_one_object_end_each_its_own(
    cluster: MemoryCluster,
    client: holdfast.SyncClient,
    threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
    kind: str,
    way: Way,
) -> None:
    """The first is left in the thread of the second, which still works, and is not disturbed."""
    thing = KINDS[kind](client)
    one, two = threads
    first, leave_first = way(thing, one, two)
    second, leave_second = way(thing, two, one)
    leave_first()
    assert (first.reason, second.reason) == ("released", "")
    live_on(cluster, second)
    leave_second()
    assert second.reason == "released"
    assert not second.lost.is_set()


@pytest.mark.parametrize("way", [by_moved_stack, by_hand])
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_that_cannot_be_told_apart_end_together(
    cluster: MemoryCluster,
    client: holdfast.SyncClient,
    threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
    caplog: pytest.LogCaptureFixture,
    *,
    kind: str,
    way: Way,
) -> None:
    """Calls by hand do not say which of two entries ends: none is ended in use, and none is left over."""
    thing = KINDS[kind](client)
    first, leave_first = way(thing, *threads)
    second, leave_second = way(thing, *threads)
    leave_first()
    live_on(cluster, first, second)
    assert "cannot be told from others" in caplog.text
    leave_second()
    assert (first.reason, second.reason) == ("released", "released")
    with pytest.raises(RuntimeError, match="was left already"):
        thing.__exit__(None, None, None)


def test_a_stack_beside_a_statement_ends_what_it_has_entered(client: holdfast.SyncClient) -> None:
    """While a `with` is open on the same object, by whoever, that is left alone."""
    gpu = client.semaphore("a", 5, ttl=TTL_S)
    with gpu as mine, contextlib.ExitStack() as other:
        others = other.enter_context(gpu)
        with contextlib.ExitStack() as stack:
            both = stack.enter_context(gpu), stack.enter_context(gpu)
        assert [hold.reason for hold in (mine, others, *both)] == ["", "", "released", "released"]


def test_a_block_by_hand_ends_behind_a_statement(
    client: holdfast.SyncClient, threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor]
) -> None:
    """While a `with` is open on the same object, what was entered by hand is released behind that."""
    gpu = client.semaphore("a", 3, ttl=TTL_S)
    others: list[holdfast.SyncHold] = []
    with gpu as mine:
        threads[0].submit(lambda: others.append(gpu.__enter__())).result()
        threads[0].submit(gpu.__exit__, None, None, None).result()
        assert (mine.is_valid, others[0].is_valid) == (True, True)
    assert (mine.reason, others[0].reason) == ("released", "released")


def test_a_loss_is_told_where_the_block_is_left(
    cluster: MemoryCluster,
    client: holdfast.SyncClient,
    threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
) -> None:
    """Whatever thread that is: LeaseLost, and nothing of it is left to end others with."""
    lock = client.lock("a", ttl=TTL_S)
    for way in (by_statement_elsewhere, by_stack):
        held, leave = way(lock, *threads)
        cluster.advance(TTL_S)
        eventually(held.lost.is_set)
        with pytest.raises(holdfast.LeaseLost):
            leave()
    with lock as again:
        assert again.is_valid


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes do not fork here")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_that_leaves_its_parents_block_ends_nothing(client: holdfast.SyncClient) -> None:
    """A fork within a block leaves it twice; the hold is the parent's, and so is its release."""
    with client.lock("a", ttl=TTL_S) as held:
        stack = contextlib.ExitStack()
        stack.enter_context(client.semaphore("s", 2, ttl=TTL_S))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                stack.close()
            except holdfast.LeaseLost as loss:
                code = 0 if loss.reason == "forked" else 2
            os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        assert held.is_valid
        assert client.get_semaphore("s").holders
        stack.close()
    assert not client.get_semaphore("s").holders


# -- what nobody refers to --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*KINDS, *ALONE])
def test_what_is_collected_is_not_renewed_any_longer(
    cluster: MemoryCluster, client: holdfast.SyncClient, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so as ResourceWarning and in the log, and is free behind its lease."""

    def drop() -> None:
        thing = (KINDS | ALONE)[kind](client)
        thing.acquire() if hasattr(thing, "acquire") else thing.open()

    with warning_of_a_drop():
        drop()
    assert "was never" in caplog.text
    cluster.advance(TTL_S)
    assert not is_held(client)
    assert client.election("a").leader() is None


def test_the_warning_names_the_hold(client: holdfast.SyncClient) -> None:
    """By its name and token, so that it can be found in the audit."""
    client.acquire("report", ttl=TTL_S).release()
    with warning_of_a_drop(r"hold 'report' \(token 2\) was never released"):
        client.acquire("report", ttl=TTL_S)


def test_no_cycle_keeps_a_hold(client: holdfast.SyncClient) -> None:
    """It is collected with its last reference, callbacks and all: nothing waits for the garbage collector."""
    gc.collect()
    gc.disable()
    try:
        hold = client.acquire("a", ttl=TTL_S, on_lost=print, max_hold=TTL_S * 9)
        twin = weakref.ref(hold.twin)
        with warning_of_a_drop():
            del hold
        eventually(lambda: twin() is None)
    finally:
        gc.enable()


def test_a_lock_object_keeps_what_it_acquired(cluster: MemoryCluster, client: holdfast.SyncClient) -> None:
    """As with other lock libraries: `lock.acquire()`, work, `lock.release()`, without a look at the hold."""
    lock = client.lock("a", ttl=TTL_S)
    lock.acquire()
    (hold,) = lock.holds
    live_on(cluster, hold)
    assert (lock.owned(), lock.locked(), lock.name) == (True, True, "a")
    lock.release()
    assert (lock.owned(), lock.locked(), lock.holds) == (False, False, ())
    del hold


def test_a_release_that_could_mean_several_is_refused(client: holdfast.SyncClient) -> None:
    """Of several permits none is guessed; of none there is nothing to release."""
    gpu = client.semaphore("gpu", 3, ttl=TTL_S)
    with pytest.raises(RuntimeError, match="not held by this object"):
        gpu.release()
    one, two = gpu.acquire(), gpu.acquire()
    with pytest.raises(RuntimeError, match="has 2 holds"):
        gpu.release()
    two.release()
    gpu.release()
    assert one.reason == "released"
    with pytest.raises(holdfast.LeaseExpired):
        gpu.release()


def test_the_client_may_go_before_its_holds(cluster: MemoryCluster) -> None:
    """A hold is renewed although nobody refers to the client any more."""
    hold = cluster.sync_client().acquire("a", ttl=TTL_S)
    gc.collect()
    live_on(cluster, hold)
    hold.release()
    portal.Call(hold.twin._transport.close).run()


def test_a_hold_that_is_not_to_be_renewed_tells_its_loss(
    cluster: MemoryCluster, client: holdfast.SyncClient
) -> None:
    """`lost` is set when its lease is over, and not before; a renewal by hand counts."""
    hold = client.acquire("a", ttl=TTL_S, renew=False)
    cluster.advance(TTL_S / 2)
    hold.renew()
    cluster.advance(TTL_S * 3 / 4)
    assert (hold.state, hold.lost.is_set()) == ("at-risk", False)
    cluster.advance(TTL_S / 2)
    eventually(hold.lost.is_set)
    assert (hold.state, hold.reason) == ("lost", "expired")


def test_a_hold_that_is_renewed_by_hand_ends_after_max_hold(
    cluster: MemoryCluster, client: holdfast.SyncClient
) -> None:
    """Whatever its user does; and its renewals leave nothing behind."""
    hold = client.acquire("a", ttl=TTL_S, renew=False, max_hold=TTL_S * 3)
    hearers = len(hold.twin._hearers)
    for _ in range(5):
        hold.renew()
        cluster.advance(TTL_S / 2)
    assert (hold.state, len(hold.twin._hearers)) == ("held", hearers)
    hold.renew()
    cluster.advance(TTL_S / 2)
    eventually(hold.lost.is_set)
    assert hold.reason == "max-hold"


def test_what_a_hold_cannot_be_tied_to_is_refused_at_once(client: holdfast.SyncClient) -> None:
    """And not a third of a lease later, when it would be lost."""
    calls: list[Callable[..., object]] = [
        functools.partial(client.lock, "a"),
        client.session,
        client.transaction,
    ]
    for call in calls:
        with pytest.raises(TypeError, match="tied_to: 'me' is neither a task nor a thread"):
            call(tied_to="me")
    with pytest.raises(ValueError, match="tied_to"):
        client.lock("a", no_deadline=True, tied_to=threading.current_thread())


# -- waits for oneself ------------------------------------------------------------------------------------


def test_a_block_within_a_block_of_the_same_lock_is_refused(client: holdfast.SyncClient) -> None:
    """It would wait for itself, also through other objects, functions, modes and several names."""

    def inner(**terms: Any) -> None:
        with client.lock("a", **terms):
            raise AssertionError("entered")

    with client.lock("a"):
        for terms in ({}, {"mode": "shared"}, {"wait": 5}):
            with pytest.raises(RuntimeError, match="would wait for itself"):
                inner(**terms)
        with pytest.raises(RuntimeError, match="would wait for itself"):
            client.locks("b", "a").acquire()
        with pytest.raises(RuntimeError, match="would wait for itself"), client.transaction() as transaction:
            transaction.acquire("a")
        assert client.lock("a").try_acquire() is None
        with pytest.raises(holdfast.LockTimeout):
            inner(wait=0)
        with client.lock("b"):
            """Another lock is another lock."""


def test_another_thread_waits_for_the_block(client: holdfast.SyncClient) -> None:
    """It is not held by itself: it gets the lock when the block has ended."""
    with ThreadPoolExecutor(1) as pool:
        with client.lock("a"):
            waiting = pool.submit(lambda: client.acquire("a").release())
            eventually(lambda: len(client.inspect("a").queue) == 1)
        waiting.result(DEADLINE_S)


def test_a_counted_lock_is_entered_as_often_as_its_block_likes(client: holdfast.SyncClient) -> None:
    """As an RLock: the same hold, which ends with the last of as many releases."""

    def walk(depth: int) -> int:
        with client.lock("a", if_held="count") as hold:
            if depth:
                assert walk(depth - 1) == hold.token
            assert hold.is_valid
            return hold.token

    assert walk(3) == 1
    assert not is_held(client)
    with client.lock("a", if_held="count") as hold:
        again = client.acquire("a", if_held="count")
        again.release()
        assert hold.is_valid
    assert hold.reason == "released"


# -- stand-ins --------------------------------------------------------------------------------------------


def test_the_stand_in_breaks_where_the_real_client_does(
    threads: tuple[ThreadPoolExecutor, ThreadPoolExecutor],
) -> None:
    """Blocks left elsewhere end their own hold, waits for oneself are refused, what is dropped warns."""
    null = NullClient()
    gpu = null.semaphore("gpu", 3)
    first, leave_first = by_statement_elsewhere(gpu, *threads)
    second, leave_second = by_statement_elsewhere(gpu, *threads)
    leave_first()
    assert (first.reason, second.reason) == ("released", "")
    leave_second()
    with null.lock("a"), pytest.raises(RuntimeError, match="would wait for itself"):
        null.acquire("a")
    with pytest.raises(TypeError, match="wait="):
        null.lock("a", timeout=5)
    with pytest.raises(TypeError, match="bytes"):
        null.lock(b"a")  # type: ignore[arg-type]
    with warning_of_a_drop():
        null.acquire("a")


def test_a_copy_of_a_hold_is_refused(client: holdfast.SyncClient) -> None:
    """It would be released twice, or in another process."""
    import copy  # noqa: PLC0415 - of this test only
    import pickle  # noqa: PLC0415 - as above

    with client.lock("a") as hold:
        for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="pickled or copied"):
                duplicate(hold)
