"""Random programs for the Redis face and a Redis: what they ask, what is the same, and how they get short."""

import asyncio
import random
import shutil
from collections import Counter
from typing import Any

import pytest

from lab.fuzz.redis_answers import Error, Listed, Nothing, Simple, check
from lab.fuzz.redis_programs import Pair, compare, shortest
from lab.fuzz.redis_steps import Step, program_of
from redis_api.commands.table import COMMANDS

NOT_IN_REDIS = {"DELEX", "HF.ACQUIRE", "HF.TOKEN", "CL.THROTTLE", "SENTINEL"}
ENDS = {"QUIT"}


def test_every_command_is_asked() -> None:
    """But for those that a Redis does not have, and the one that ends the connection."""
    asked = {step.words[0] for seed in range(300) for step in program_of(random.Random(seed), 40)}
    assert {row.name for row in COMMANDS.values()} - asked == NOT_IN_REDIS | ENDS


@pytest.mark.parametrize(
    ("words", "ours", "theirs", "is_same"),
    [
        (("GET", "k"), b"v", b"v", True),
        (("GET", "k"), b"OK", Simple(b"OK"), False),
        (("GET", "k"), Nothing(b"$-1"), Nothing(b"*-1"), False),
        (("PTTL", "k"), 59_990, 60_000, True),
        (("PTTL", "k"), -1, 60_000, False),
        (("LLEN", "k"), 59_990, 60_000, False),
        (("KEYS", "*"), [b"a", b"b"], [b"b", b"a"], True),
        (("LRANGE", "k", 0, 1), [b"a", b"b"], [b"b", b"a"], False),
        (("EVAL", "x", 0), Error("ERR x"), Error("ERR x script: f, on @user_script:1."), True),
        (("INFO",), b"one", b"two", True),
    ],
)
def test_what_is_the_same(words: tuple[Any, ...], ours: Any, theirs: Any, *, is_same: bool) -> None:
    """Values and their types, but for times that are left and orders that mean nothing."""
    assert check(words, ours, theirs) is is_same


def test_a_documented_difference_ends_a_program() -> None:
    """What comes behind it may differ, too."""
    with pytest.raises(Listed, match="the lease of a lock"):
        check(("EXPIRE", "k", 9), Error("NOPERM this lock"), 1)


async def test_a_program_gets_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the steps stay without which nothing differs."""

    async def run(_pair: Pair, program: list[Step], _told: Counter[str]) -> str:
        return "differs" if {step.words for step in program} >= {("B",), ("D",)} else ""

    monkeypatch.setattr(Pair, "run", run)
    program = [Step(0, (letter,)) for letter in "ABCDEFG"]
    assert await shortest(Pair(), program) == [Step(0, ("B",)), Step(0, ("D",))]


@pytest.mark.skipif(shutil.which("redis-server") is None, reason="needs Redis: apt-get install redis-server")
def test_some_programs_are_answered_alike() -> None:
    """As many as there is time for in a test; scripts/fuzz --redis runs more."""
    pytest.importorskip("lupa.lua51", reason="needs lupa, the extra redis-lua of the node")
    figures = asyncio.run(compare(0, 60, programs_max=25))
    assert figures.found == []
    assert (figures.programs, figures.told.total() > 300) == (25, True)
