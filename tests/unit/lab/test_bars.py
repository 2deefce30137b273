"""Bars: what is judged, what is not, and how that is told."""

from lab.measuring import bars


def test_a_figure_is_judged_by_its_bar() -> None:
    """A figure at the bar meets it, on either side; one beyond it misses it."""
    assert [bars.at_most("m", found, 5.0)["is_met"] for found in (4.9, 5.0, 5.1)] == [True, True, False]
    assert [bars.at_least("m", found, 5.0)["is_met"] for found in (4.9, 5.0, 5.1)] == [False, True, True]


def test_what_was_not_measured_or_not_in_full_is_not_judged() -> None:
    """Without a figure, or with one of a smaller load, nothing is said; that counts as not met."""
    for judge in (bars.at_most, bars.at_least):
        assert judge("m", None, 5.0)["is_met"] is None
        small = judge("m", 5.0, 5.0, is_full=False)
        assert (small["is_met"], small["found"]) == (None, 5.0)
        assert not bars.are_met([judge("m", 5.0, 5.0), small])
        assert bars.are_met([judge("m", 5.0, 5.0)])


def test_each_bar_has_a_line() -> None:
    """A line says met, missed or not measured, the bar, and the figure if there is one."""
    found = [bars.at_most("a", 1.0, 5.0), bars.at_most("b", 6.25, 5.0), bars.at_least("c", None, 5.0)]
    assert bars.lines(found) == ["met: a (1)", "MISSED: b (6.25)", "not measured: c"]
