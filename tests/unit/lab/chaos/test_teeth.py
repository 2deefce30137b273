"""What `--prove` is made of, without a cluster: which defects there are, and how it judges."""

import asyncio
from contextlib import ExitStack
from typing import Final

import pytest

from cluster.consensus.divergence import Divergence
from lab.chaos import schedule
from lab.chaos.defective_node import NONE, UNGUARDED, defect, main, node_arguments, wrapper
from lab.chaos.teeth.catalogue import TEETH
from lab.chaos.teeth.prove import FAULTS_OF_TEETH, Bite, outcome, table
from lab.chaos.teeth.tooth import Tooth
from lab.chaos.workloads.stopped_clients import RegisterServer
from lockstate.machine import LockMachine

BROKEN: Final = Tooth(name="broken", sentence="All is wrong.", workloads=())
SOUND: Final = Tooth(name="sound", sentence="All is well.", workloads=(), is_sound=True)


def bite(tooth: Tooth, *objectors: str) -> Bite:
    """Return what came of a tooth."""
    return Bite(tooth=tooth, objectors=list(objectors), said="", seconds=7.4, rounds=1)


@pytest.mark.parametrize(
    ("done", "is_right", "words"),
    [
        (bite(BROKEN, "fences", "tokens"), True, "fences, tokens after 7 s"),
        (bite(BROKEN), False, "NOBODY after 7 s"),
        (bite(SOUND), True, "nobody, as it must be"),
        (bite(SOUND, "fences"), False, "WRONGLY by fences after 7 s"),
    ],
)
def test_who_must_object(done: Bite, is_right: bool, words: str) -> None:  # noqa: FBT001 - a column
    """Somebody to what is wrong, nobody to what is sound."""
    assert done.is_right is is_right
    assert outcome(done) == words
    assert table([done]).splitlines()[2] == f"| `{done.tooth.name}` | {done.tooth.sentence} | {words} |"


def test_all_teeth_can_be_tried() -> None:
    """Their schedules can be read, their defects are in the list, and there are ten of one node."""
    for tooth in TEETH.values():
        schedule.parse(tooth.schedule, FAULTS_OF_TEETH)
        if tooth.mutation:
            assert tooth.mutation in wrapper(tooth.mutation)
    defects = [tooth for tooth in TEETH.values() if tooth.mutation.endswith(UNGUARDED)]
    assert len(defects) >= 10
    assert [tooth.name for tooth in TEETH.values() if tooth.is_sound] == ["sound-node", "power-cut", "fence"]


def test_a_defect_is_there_only_while_it_is_applied() -> None:
    """And with it, when asked for, the node's own look at its state is away."""
    sound = (LockMachine._apply_once, Divergence._judge)
    with ExitStack() as stack:
        stack.enter_context(defect("request-ids-ignored")())
        assert (LockMachine._apply_once is sound[0], Divergence._judge is sound[1]) == (False, True)
        stack.enter_context(defect(NONE + UNGUARDED)())
        assert Divergence._judge is not sound[1]
    assert (LockMachine._apply_once, Divergence._judge) == sound


def test_the_command_of_a_node_follows() -> None:
    """What stands before `http_api` is left out; without it, or without such a defect, the use is told."""
    assert node_arguments(["python", "-m", "http_api", "--node-id", "n1"]) == ["--node-id", "n1"]
    assert main(["no-such-defect", "http_api"]) == 2
    assert main([NONE, "--node-id", "n1"]) == 2
    assert main([]) == 2


async def test_who_has_read_is_told() -> None:
    """Whoever reads next, of all that read from now on; not whose token was refused."""
    server = RegisterServer(is_fenced=True)
    read = {"kind": "register-read", "token": 6}
    server.answer(read | {"client": 0})
    waiting = asyncio.create_task(server.next_reader())
    await asyncio.sleep(0)
    server.answer(read | {"client": 1, "token": 5})
    server.answer(read | {"client": 2})
    assert await waiting == 2


def test_a_register_with_a_fence_refuses_who_slept() -> None:
    """It knows the newest token; without a fence the late write goes through."""
    for is_fenced in (True, False):
        server = RegisterServer(is_fenced=is_fenced)
        for client, token in ((0, 5), (1, 6)):
            read = {"kind": "register-read", "client": client, "token": token}
            assert server.answer(read) == {"is_ok": True, "value": 0}
        fresh = {"kind": "register-write", "client": 1, "token": 6, "value": 1}
        assert server.answer(fresh) == {"is_ok": True, "before": 0}
        late = {"kind": "register-write", "client": 0, "token": 5, "value": 1}
        assert server.answer(late) == {"is_ok": not is_fenced, "before": 1}
