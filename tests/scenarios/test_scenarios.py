"""Every scenario leaves the trace that is written in it."""

from pathlib import Path
from typing import get_args

import pytest

from lockstate.words.commands.entries import Barrier, Command
from tests.scenarios.runner import Runner
from tests.scenarios.script import Block, parse, rewritten
from tests.scenarios.trace_lines import shortened
from tests.support.vocabulary import plain_command

FOLDER = Path(__file__).parent
SCENARIOS = sorted(path.stem for path in FOLDER.glob("*.txt"))


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(scenario: str, rewrite: bool) -> None:  # noqa: FBT001 - a fixture
    """What happens is what the file says."""
    path = FOLDER / f"{scenario}.txt"
    parts = parse(path.read_text())
    runner = Runner()
    if rewrite:
        path.write_text(rewritten(parts, runner.run))
        return
    for block in [part for part in parts if isinstance(part, Block)]:
        assert runner.run(block) == block.expected, f"{path.name}, line {block.line_number}"


def test_scenarios_are_found() -> None:
    """The four timelines that this project must get right are among the scenarios."""
    timelines = {"take_turns", "holder_crashes", "paused_holder", "paused_holder_three_replicas"}
    assert timelines <= set(SCENARIOS)


def test_every_command_has_a_scenario() -> None:
    """Every command of the state machine is in a scenario."""
    asked: set[type] = set()
    for scenario in SCENARIOS:
        runner = Runner()
        for part in parse((FOLDER / f"{scenario}.txt").read_text()):
            if isinstance(part, Block):
                for command in runner.commands_of(part):
                    asked |= {type(command), type(plain_command(command))}
    assert asked == set(get_args(Command)) - {Barrier}


def test_a_wrong_trace_is_seen() -> None:
    """A trace with another number or another name is not what happened."""
    (block,) = [part for part in parse("at 1.0\nA acquire a ttl=3.0") if isinstance(part, Block)]
    assert Runner().run(block) == [
        "revision 1 at 1.000",
        "  * granted a exclusive A token 1",
        "  A <- granted a exclusive token 1, 3.000 s left",
    ]


def test_many_lines_are_shortened_only_if_alike() -> None:
    """Of a long run of lines that differ in their numbers alone two are shown, all other lines stay."""
    many = [f"  granted job-{number}" for number in range(20)]
    short = ["  granted job-0", "  … 18 like these …", "  granted job-19"]
    assert shortened([*many, "  granted task-20", "  released job-1"]) == [
        *short,
        "  granted task-20",
        "  released job-1",
    ]
