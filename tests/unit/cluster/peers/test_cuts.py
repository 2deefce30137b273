"""Connections that are ended: all counted, and logged without filling the disk."""

import logging

import pytest

from cluster.peers.cuts import LINE_S, LINES_COUNT_MAX, Cut, Cuts


class Clock:
    """A clock that the test sets."""

    now_s = 5.0


def lines(caplog: pytest.LogCaptureFixture) -> int:
    """Return how many lines there are."""
    return caplog.text.count("event=peer-rejected")


def test_of_each_kind_some_lines_are_logged_and_all_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Strangers cannot write our log full, and one kind does not hide another."""
    caplog.set_level(logging.WARNING)
    cuts = Cuts(lambda: Clock.now_s)
    for _ in range(1000):
        cuts.record(Cut.HANDSHAKE, "", ("10.0.0.9", 1), "garbage")
    assert lines(caplog) == LINES_COUNT_MAX
    assert "event=peer-rejected peer=stranger address=('10.0.0.9', 1) cut=handshake reason='garbage'" in (
        caplog.text
    )
    cuts.record(Cut.FORGED, "n2", ("10.0.0.2", 1), "record 7 has a wrong MAC")
    assert "peer=n2 address=('10.0.0.2', 1) cut=forged" in caplog.text
    assert cuts.counts == {Cut.HANDSHAKE: 1000, Cut.FORGED: 1}


def test_a_line_later_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more is logged every six seconds, and after a long silence as many as at first."""
    caplog.set_level(logging.WARNING)
    cuts = Cuts(lambda: Clock.now_s)

    def many() -> int:
        caplog.clear()
        for _ in range(100):
            cuts.record(Cut.SECRET, "n2", None, "another secret")
        return lines(caplog)

    assert many() == LINES_COUNT_MAX
    monkeypatch.setattr(Clock, "now_s", Clock.now_s + LINE_S)
    assert many() == 1
    assert f"unlogged={100 - LINES_COUNT_MAX}\n" in caplog.text
    monkeypatch.setattr(Clock, "now_s", Clock.now_s + 1000 * LINE_S)
    assert many() == LINES_COUNT_MAX
    assert "unlogged=99\n" in caplog.text
