"""Every scenario leaves the trace that is written in it."""

from pathlib import Path

import pytest

from tests.scenarios.runner import Runner
from tests.scenarios.script import Block, parse, rewritten

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
