"""The catalogue has one row for each command, and says of it what its class says."""

from typing import get_args

import pytest

from lockstate.catalogue import ROWS, Row
from lockstate.words.commands.entries import Command, MayBeCancelled
from lockstate.words.commands.holds import MayWait
from lockstate.words.commands.streams import NumberedCommand

EACH = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.command.__name__)


def test_every_command_has_one_row() -> None:
    """Also those that only streams number; and no two have a tag."""
    commands = [row.command for row in ROWS]
    assert len(commands) == len(set(commands)) == len({each.__struct_config__.tag for each in commands})
    assert set(commands) == {*get_args(Command), *get_args(NumberedCommand)}


@EACH
def test_a_row_says_of_a_command_what_its_class_says(row: Row) -> None:
    """What may wait is in the union for mypy; what is remembered has an id; attempts differ in its fields."""
    fields = row.command.__struct_fields__
    assert row.may_wait == (row.command in get_args(MayWait))
    assert (row.command in get_args(MayBeCancelled)) == ("attempt_id" in row.new_in_each_attempt)
    assert (row.request_scope is not None) == ("request_id" in fields)
    assert set(row.new_in_each_attempt) <= set(fields)


@EACH
def test_what_operators_do_lies_by_its_right(row: Row) -> None:
    """The files `overrides.py` and `admin.py` have the commands of a right, all of them and no others."""
    files = {"force": "overrides", "admin": "admin"}
    file = row.command.__module__.rpartition(".")[2]
    assert files.get(row.right or "") == (file if file in files.values() else None)
