"""Problems that concern HTTP itself, and what HTTP adds to every problem."""

from holdfast import wire
from lockapi.problems import ProblemError


class CallRefused(ProblemError):
    """A call that is wrong as HTTP: `allow` names the methods of its path.

    `ends_connection` means that what follows on the connection cannot be understood.
    """

    def __init__(self, code: str, detail: str, *, allow: str = "", ends_connection: bool = False) -> None:
        super().__init__(code, detail)
        self.allow, self.ends_connection = allow, ends_connection


def header_lines(problem: ProblemError) -> str:
    """Return the header lines that go with a problem."""
    lines = f"Allow: {problem.allow}\r\n" if isinstance(problem, CallRefused) and problem.allow else ""
    if problem.code == "unauthenticated":
        lines += f"{wire.HEADER_AUTHENTICATE}: {wire.BEARER}\r\n"
    if problem.retry_after_ms:
        lines += f"{wire.HEADER_RETRY_AFTER}: {-(-problem.retry_after_ms // 1000)}\r\n"
    return lines
