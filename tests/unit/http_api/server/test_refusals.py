"""What HTTP adds to problems: header lines."""

from http_api.server.refusals import CallRefused, header_lines
from lockapi.problems import ProblemError


def test_a_problem_may_have_no_header_line() -> None:
    """Most have none."""
    assert header_lines(ProblemError("lock-held", "x")) == ""
    assert header_lines(CallRefused("payload-too-large", "x", ends_connection=True)) == ""


def test_retry_after_is_in_whole_seconds_rounded_up() -> None:
    """A client that keeps to the header never comes too early."""
    for retry_after_ms, seconds in ((1, 1), (1000, 1), (1001, 2)):
        problem = ProblemError("overloaded", "x", retry_after_ms=retry_after_ms)
        assert header_lines(problem) == f"Retry-After: {seconds}\r\n"


def test_a_wrong_method_is_told_the_right_ones() -> None:
    """The methods of the path are in the header that HTTP has for them."""
    assert header_lines(CallRefused("method-not-allowed", "x", allow="GET, HEAD")) == "Allow: GET, HEAD\r\n"
