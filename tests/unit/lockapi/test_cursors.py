"""Cursors: each place has one text, which leads back to it."""

import pytest

from cluster.observing.event_log import Position
from lockapi import cursors


@pytest.mark.parametrize("cursor", ["0", "7", "7.1", "123456789012345678.123456789"])
def test_a_cursor_and_its_place_are_one_thing(cursor: str) -> None:
    """A cursor leads to a place in the history whose cursor it is."""
    position = cursors.position_of(cursor)
    assert position is not None
    assert cursors.of_position(position) == cursor


def test_the_cursor_of_a_revision_is_the_place_behind_all_of_it() -> None:
    """Without a number it stands behind every event of the revision, with one behind that event."""
    assert cursors.position_of("7") == Position.behind(7)
    assert cursors.position_of("7.2") == Position(7, 2)
    assert cursors.of_position(Position.behind(7)) == cursors.of_event(7) == "7"
    assert cursors.of_position(Position(7, 2)) == cursors.of_event(7, 2) == "7.2"


@pytest.mark.parametrize("text", ["", "-1", "1.", ".1", "1.2.3", "x", " 1", "1\n", "1" * 19, "٣"])
def test_other_texts_are_not_places(text: str) -> None:
    """Anything but one or two plain numbers leads nowhere."""
    assert cursors.position_of(text) is None


@pytest.mark.parametrize("name", ["a", "db/migrate", "", "ü/7.1"])
def test_a_page_goes_on_behind_its_cursor(name: str) -> None:
    """The cursor of a name in a listing leads back to that name."""
    assert cursors.name_of(cursors.of_name(name)) == name
