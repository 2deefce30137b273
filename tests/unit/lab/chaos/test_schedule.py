"""Schedules: the same for the same seed, readable, and what is wrong in a file is told with its line."""

import pytest

from lab.chaos import schedule
from lab.chaos.faults.catalogue import FAULTS
from lab.chaos.schedule import ScheduleFailure, Step, draw, parse, written


def test_a_seed_gives_one_schedule() -> None:
    """Whatever else happens; another seed gives another."""
    assert draw(7, FAULTS, 300) == draw(7, FAULTS, 300)
    assert draw(7, FAULTS, 300) != draw(8, FAULTS, 300)
    assert draw(7, FAULTS, 60) == draw(7, FAULTS, 300)[: len(draw(7, FAULTS, 60))]


def test_a_schedule_is_long_enough_and_has_every_fault_before_one_comes_often() -> None:
    """No kind waits until others have come more often than their weights say."""
    steps = draw(1, FAULTS, 600)
    assert sum(step.after_s + step.lasts_s for step in steps) >= 600
    drawn = sorted(name for name, fault in FAULTS.items() if fault.weight > 0)
    round_length = sum(max(1, round(FAULTS[name].weight)) for name in drawn)
    assert {step.fault for step in steps[:round_length]} == set(drawn)
    for step in steps:
        shortest_s, longest_s = FAULTS[step.fault].lasts_s
        assert shortest_s <= step.lasts_s <= longest_s


def test_without_faults_nothing_is_drawn() -> None:
    """A target that can do nothing has an empty schedule, at once."""
    assert draw(1, {}, 60) == []


def test_what_is_written_is_read_again() -> None:
    """A drawn schedule can be kept, changed and run."""
    steps = draw(3, FAULTS, 120)
    assert parse(written(steps), FAULTS) == steps
    by_hand = Step(
        fault="pause-leader", after_s=1, lasts_s=2.5, overlaps=True, options={"node": "n2", "x": "y=z"}
    )
    assert parse(written([by_hand]), FAULTS) == [by_hand]


def test_a_file_of_a_person_is_understood() -> None:
    """Comments and empty lines; what is not said has a default; a pause breaks nothing."""
    text = """
    # first the leader
    2 kill-leader 3.5   # for a while
    0.5 pause-leader node=n2 overlap

    4 -
    """
    assert parse(text, FAULTS) == [
        Step(fault="kill-leader", after_s=2, lasts_s=3.5),
        Step(
            fault="pause-leader",
            after_s=0.5,
            lasts_s=FAULTS["pause-leader"].lasts_s[0],
            overlaps=True,
            options={"node": "n2"},
        ),
        Step(fault=schedule.PAUSE, after_s=4, lasts_s=0),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 kill-leader\nkill-leader", "line 2: a line is: SECONDS FAULT"),
        ("1 kill-leeder", "line 1: there is no fault 'kill-leeder'; `scripts/chaos list`"),
        ("soon kill-leader", "line 1: 'soon' is no number of seconds"),
        ("1 kill-leader -3", "'-3' is no number of seconds"),
        ("1 kill-leader inf", "'inf' is no number of seconds"),
        ("1 kill-leader 3 4", "what is '4'?"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, said: str) -> None:
    """And with what would do."""
    with pytest.raises(ScheduleFailure, match=said.replace("?", r"\?")):
        parse(text, FAULTS)
