"""The calls on a stream: one operation on its way, and what its result says."""

import asyncio
from typing import Any, Generic, TypeVar

from holdfast.operations.operation import Operation
from holdfast.operations.stream_refusals import NotTaken
from holdfast.stream.stream_numbers import Asked
from holdfast.values.errors import LockHeld
from holdfast.wire.results import Result

T = TypeVar("T")


class InDoubt(Exception):
    """The session of the stream has ended, and with it the memory of what became of a number.

    What was not done under it by now never will be.
    """


class Asking(Asked, Generic[T]):
    """One operation on its way. `outcome` is its result, or what is raised instead; None until then."""

    __slots__ = ("asked_at_s", "deadline_s", "future", "operation", "outcome")

    def __init__(
        self,
        command: bytes,
        operation: Operation[T],
        asked_at_s: float,
        deadline_s: float,
        future: "asyncio.Future[None]",
    ) -> None:
        super().__init__(command)
        self.operation = operation
        self.asked_at_s = asked_at_s
        self.deadline_s = deadline_s
        self.future = future
        self.outcome: Any = None

    @property
    def was_sent(self) -> bool:
        """Whether it may have had an effect."""
        return self.number > 0

    def tell(self, outcome: Any) -> None:
        """Say what became of it."""
        self.outcome = outcome
        self.is_wanted = False
        if not self.future.done():
            self.future.set_result(None)


def asking_of(asked: Asked) -> Asking[Any]:
    """Return what the stream was asked, which is one of ours."""
    assert isinstance(asked, Asking)
    return asked


def read(asking: Asking[T], result: Result) -> T:
    """Return what an operation gives that has this result. Raises Refused, NotTaken, OutcomeUnknown."""
    form = asking.operation.numbered
    assert form is not None
    try:
        return form.read(result, asking.asked_at_s)
    except LockHeld as error:
        if asking.operation.wait_ms:
            raise NotTaken("it has to wait", has_to_wait=True) from error
        raise
