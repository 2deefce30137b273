"""What a checker answers."""

from typing import Literal

import msgspec

Verdict = Literal["broken", "undecided"]


class Violation(msgspec.Struct, kw_only=True, frozen=True):
    """One thing that must not be, as a sentence, with the ids of the operations that show it.

    `undecided` says that a search was given up at its bound on work: the promise is neither kept nor broken
    as far as the checker knows.
    """

    checker: str
    text: str
    operations: tuple[int, ...] = ()
    at_ns: int = 0
    verdict: Verdict = "broken"
