"""What all commands have in common."""

from typing import ClassVar

from lockstate.words.shape import Array


class WithRequestId(Array, frozen=True):
    """Base of the commands that may carry a `request_id`: a repetition is told what became of the first."""


class WithoutRequestId(Array, frozen=True):
    """Base of the commands that may come twice without harm: they carry no `request_id`."""

    request_id: ClassVar[str] = ""
