"""How blocks end that nobody leaves as usual: interrupted, thrown away, or within others of the same hold."""

import asyncio
import contextlib
import gc
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, get_args

import pytest

import holdfast
from holdfast.client import acquiring, portal
from holdfast.client import hold as _hold
from holdfast.testing import MemoryCluster, NullClient
from holdfast.threads import sync_holds
from holdfast.transport import blocks as _blocks
from holdfast.transport.blocks import Block, Blocks, Entered
from holdfast.values.words import Mode

TTL_S = 30.0
DEADLINE_S = 10.0
TRACED = {module.__file__ for module in (acquiring, _blocks, _hold, portal, sync_holds)}
"""Where a thread may be interrupted: what runs in the thread of the caller."""


@pytest.fixture
def client() -> Iterator[holdfast.SyncClient]:
    """Give a client of a cluster whose clock stands still."""
    with MemoryCluster() as cluster, cluster.sync_client() as client:
        yield client


def eventually(check: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline_s = time.monotonic() + DEADLINE_S
    while not check():
        assert time.monotonic() < deadline_s, "in vain"
        threading.Event().wait(0.002)


def is_free(client: holdfast.SyncClient) -> bool:
    """Whether nobody has the lock of these tests."""
    return not client.inspect("a").holders


class Interrupter:
    """Raises KeyboardInterrupt before the n-th line that this thread runs of the client.

    It counts from the first call of a function on: no `try` can be around the first lines of all.
    """

    def __init__(self, at: int, first: str) -> None:
        self._left = at
        self._first = first
        self.has_raised = False

    def __call__(self, frame: types.FrameType, event: str, _: object) -> Any:
        """Trace: count lines, and raise once."""
        if frame.f_code.co_filename not in TRACED:
            return None
        if frame.f_code.co_name == self._first:
            self._first = ""
        if event == "line" and not self.has_raised and not self._first:
            self._left -= 1
            if self._left < 0:
                self.has_raised = True
                raise KeyboardInterrupt
        return self

    def run(self, call: Callable[[], object]) -> None:
        """Call it, interrupted."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            call()
        except KeyboardInterrupt:
            assert self.has_raised
        finally:
            sys.settrace(before)


def at_each_line(attack: Callable[[Interrupter], None], first: str) -> None:
    """Run an attack with an interrupt at each line, until it ends before that."""
    for at in range(1000):
        interrupter = Interrupter(at, first)
        attack(interrupter)
        if not interrupter.has_raised:
            break
    assert at > 10


ENDS: dict[str, Callable[[Any], Callable[[], object]]] = {
    "a lock": lambda lock: (lock.__enter__(), lambda: lock.__exit__(None, None, None))[1],
    "a hold": lambda lock: _exit_of(lock.acquire()),
    "release": lambda lock: lock.acquire().release,
}


def _exit_of(hold: holdfast.SyncHold) -> Callable[[], object]:
    hold.__enter__()
    return lambda: hold.__exit__(None, None, None)


@pytest.mark.parametrize("kind", ENDS)
def test_an_interrupt_at_any_line_of_an_end_leaves_nothing_held(
    client: holdfast.SyncClient, kind: str
) -> None:
    """The release goes on by itself, also if the lock object is kept and would keep its holds."""
    lock = client.lock("a", ttl=TTL_S)

    def attack(interrupter: Interrupter) -> None:
        end = ENDS[kind](lock)
        interrupter.run(end)
        eventually(lambda: is_free(client))
        assert not lock.holds

    at_each_line(attack, {"a lock": "leave", "a hold": "_ending", "release": "inbox"}[kind])


@pytest.mark.parametrize("is_block", [True, False])
def test_an_interrupt_of_a_counted_acquire_leaves_the_count_alone(
    client: holdfast.SyncClient, *, is_block: bool
) -> None:
    """The hold ends with the block around, whichever line the interrupt has hit."""

    def attack(interrupter: Interrupter) -> None:
        lock = client.lock("a", if_held="count", ttl=TTL_S)
        with lock as hold:
            again: list[holdfast.SyncHold] = []
            interrupter.run(lambda: again.append(lock.__enter__() if is_block else lock.acquire()))
            for one in again:
                one.release()
            assert hold.is_valid
        assert hold.reason == "released"

    at_each_line(attack, "__init__")


@pytest.mark.parametrize("interrupt", [GeneratorExit, KeyboardInterrupt, SystemExit])
def test_an_interrupted_block_within_a_counted_one_ends_alone(
    client: holdfast.SyncClient, interrupt: type[BaseException]
) -> None:
    """The hold is that of the block around, which may go on."""
    lock = client.lock("a", if_held="count", ttl=TTL_S)
    with lock as hold:
        with pytest.raises(interrupt), lock:
            raise interrupt
        assert hold.is_valid
        assert not is_free(client)
    assert is_free(client)


def test_a_generator_that_is_left_early_ends_its_own_count(client: holdfast.SyncClient) -> None:
    """As `for row in rows(): break` does it, within a block of the same lock."""
    lock = client.lock("a", if_held="count", ttl=TTL_S)
    with lock as hold:
        for _ in _guarded(lock):
            break
        assert hold.is_valid
    assert is_free(client)


def test_what_the_loop_collects_is_released(client: holdfast.SyncClient) -> None:
    """The garbage collector runs in any thread, also in that of the loop, where nothing may wait."""
    lock = client.lock("a", ttl=TTL_S)
    blocks = [_guarded(lock)]
    next(blocks[0])

    async def collect() -> None:
        blocks.clear()
        gc.collect()

    portal.Call(collect).run()
    eventually(lambda: is_free(client))
    assert not lock.holds


@pytest.mark.parametrize(
    "enter", [lambda stack, lock: stack.enter_context(lock), lambda _, lock: lock.__enter__()]
)
def test_a_block_that_nobody_can_leave_is_not_held_on(
    client: holdfast.SyncClient, enter: Callable[[contextlib.ExitStack, Any], Any]
) -> None:
    """A stack that is thrown away unclosed, or an entry by hand: the hold is collected, and says so."""

    def drop() -> weakref.ref[Any]:
        return weakref.ref(enter(contextlib.ExitStack(), client.lock("a", ttl=TTL_S)).twin)

    with pytest.warns(ResourceWarning, match="never released"):  # noqa: PT031 - both happen in it
        twin = drop()
        eventually(lambda: gc.collect() >= 0 and twin() is None)
    with pytest.raises(holdfast.LockTimeout):  # not because it waits for itself
        client.lock("a", wait=0).acquire()


def test_an_open_stack_keeps_no_frames(client: holdfast.SyncClient) -> None:
    """Nor what their variables refer to, which has nothing to do with the lock."""

    class Large:
        """What the caller has for a moment."""

    with contextlib.ExitStack() as stack:

        def open_for_long() -> weakref.ref[Large]:
            large = Large()
            stack.enter_context(client.lock("a", ttl=TTL_S))
            return weakref.ref(large)

        assert open_for_long()() is None


@pytest.mark.parametrize("outer", get_args(Mode))
@pytest.mark.parametrize("inner", get_args(Mode))
def test_a_block_within_a_block_enters_or_is_refused_but_never_waits(
    client: holdfast.SyncClient, outer: Mode, inner: Mode
) -> None:
    """In whatever modes: what the cluster would not grant beside the outer one would wait for itself."""
    with client.lock("a", mode=outer):
        beside = client.lock("a", mode=inner).try_acquire()
        if beside is None:
            with pytest.raises(RuntimeError, match="would wait for itself"):
                client.lock("a", mode=inner).acquire()
        else:
            beside.release()
            with client.lock("a", mode=inner):
                """It may be held twice."""


NESTED: dict[str, Callable[[Any, Any], Any]] = {
    "lock": lambda client, terms: client.lock("a", **terms),
    "acquire": lambda client, terms: client.acquire("a", **terms),
    "lock.acquire": lambda client, terms: client.lock("a", **terms).acquire(),
}
"""What may be the context of a block."""


def _any_client(client: holdfast.SyncClient, *, is_null: bool) -> Any:
    return NullClient() if is_null else client


@pytest.mark.parametrize("is_null", [True, False])
@pytest.mark.parametrize("outer", NESTED)
@pytest.mark.parametrize("inner", NESTED)
def test_blocks_of_holds_do_not_wait_for_themselves(
    client: holdfast.SyncClient, outer: str, inner: str, *, is_null: bool
) -> None:
    """`with client.acquire(...)` is refused where `with client.lock(...)` is, and counts as that does."""
    some = _any_client(client, is_null=is_null)
    for _ in range(2):
        with NESTED[outer](some, {}), pytest.raises(RuntimeError, match="would wait for itself"):
            NESTED[inner](some, {}).__enter__()
        counted = {"if_held": "count"}
        with NESTED[outer](some, counted) as hold:
            for _ in range(2):
                with NESTED[inner](some, counted) as again:
                    assert again is hold
                assert hold.is_valid
        assert hold.reason == "released"


@pytest.mark.parametrize("outer", NESTED)
@pytest.mark.parametrize("inner", NESTED)
async def test_blocks_of_holds_do_not_wait_for_themselves_in_tasks(outer: str, inner: str) -> None:
    """`async with client.acquire(...)` is refused where `async with client.lock(...)` is, and counts."""
    with MemoryCluster() as cluster:
        async with cluster.client() as client:
            async with NESTED[outer](client, {}):
                with pytest.raises(RuntimeError, match="would wait for itself"):
                    await NESTED[inner](client, {}).__aenter__()
            counted = {"if_held": "count"}
            async with NESTED[outer](client, counted) as hold:
                for _ in range(2):
                    async with NESTED[inner](client, counted) as again:
                        assert again is hold
                    assert hold.is_valid
            assert hold.reason == "released"
            async with await client.acquire("a"):
                with pytest.raises(RuntimeError, match="would wait for itself"):
                    await client.acquire("a")


def test_what_a_hold_has_dropped_may_be_acquired_in_its_block(client: holdfast.SyncClient) -> None:
    """Nobody would wait for itself."""
    with client.locks("a", "b").acquire() as hold:
        hold.drop("b")
        with client.lock("b"):
            """Somebody else's, or ours."""


def _guarded(lock: Any) -> Generator[Any]:
    with lock as hold:
        yield hold


def test_a_block_is_found_while_other_threads_leave_theirs() -> None:
    """One that goes away while a thread looks for its own does not hide that."""
    frame, blocks = sys._getframe(), Blocks[Any](Entered())
    mine = Block[Any](frame, "mine", None)

    class Leaving:
        """A block whose thread leaves it just now."""

        @property
        def by(self) -> None:
            opened.remove(self)

    opened: list[Any] = blocks._open
    opened.append(Leaving())
    blocks.enter(mine)
    blocks.enter(Block(_another_frame(), "another", None))
    ended: list[Block[Any]] = []
    blocks.leave(frame, ended)
    assert ended == [mine]


def test_what_is_held_around_is_found_while_other_threads_leave_their_blocks() -> None:
    """A thread that would wait for itself hears so, whatever goes away while it looks."""
    with MemoryCluster() as cluster, cluster.sync_client() as client:
        what, entered, frame = client.lock("a")._twin, Entered(), sys._getframe()
        mine = Block[Any](frame, "mine", what)
        entered.add(mine)
        noted: list[Any] = entered._by_name[what.keys[0]]

        def leaving() -> None:
            noted.remove(leaving)

        noted.insert(0, leaving)
        assert [held for held, _ in entered.around(frame, what.keys)] == ["mine"]


async def test_a_task_enters_behind_a_block_of_the_code_that_made_it() -> None:
    """It does not run within that block, so it may wait until the block ends."""
    with MemoryCluster() as cluster:
        async with cluster.client() as client:
            lock = client.lock("a", ttl=TTL_S)
            async with lock:
                entering = asyncio.create_task(lock.__aenter__())
                while not cluster.waiting:
                    assert not entering.done()
                    await asyncio.sleep(0)
            await (await entering).release()


def _another_frame() -> types.FrameType:
    return sys._getframe()
