"""The rules of deploy/prometheus, in a hurry: half a minute is a second, so that alerts fire while one looks.

Only the durations of `for` and of windows change. A threshold, such as the 60 s for which snapshots may fail,
stays what it is, and so does every other word of an expression.
"""

import re
from typing import Final

FASTER: Final = 30
FOR_S: Final = (3, 30)
"""The shortest and the longest `for`, in seconds. The shortest spans three looks, as the real ones do."""
WINDOW_S: Final = (10, 120)
"""The shortest and the longest window: a rate needs several scrapes, one a second."""

_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_FOR: Final = re.compile(r"^( *for: )(\d+)([smhd])$", re.MULTILINE)
_WINDOW: Final = re.compile(r"(\[)(\d+)([smhd])(?=\])")


def shortened(rules: str) -> str:
    """Return the text of a file of rules with its durations made short."""
    return _shorten(_WINDOW, WINDOW_S, _shorten(_FOR, FOR_S, rules))


def _shorten(pattern: re.Pattern[str], bounds_s: tuple[int, int], text: str) -> str:
    shortest_s, longest_s = bounds_s

    def short(found: re.Match[str]) -> str:
        before, count, unit = found.groups()
        seconds = int(count) * _UNITS_S[unit] // FASTER
        return f"{before}{min(max(seconds, shortest_s), longest_s)}s"

    return pattern.sub(short, text)
