"""How the calls of tasks become calls of threads, so that no signature is written twice.

A class for threads stands on its twin for tasks. `waiting(Twin.call)` has the parameters, the result and the
docstring of that call, for type checkers and for `help`, and waits for it in the calling thread. `making` is
for a call that is not awaited.
"""

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from holdfast.client.portal import Call
from holdfast.values.other_words import Suggesting

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")


class ForThreads(Suggesting, Generic[A_co]):
    """Base of what does in threads what its twin does in tasks."""

    def __init__(self, twin: A_co) -> None:
        self._twin = twin


def waiting(
    call: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[ForThreads[A], P], T]:
    """Return the call for threads of a call that is awaited."""

    def wait(self: ForThreads[A], /, *args: P.args, **options: P.kwargs) -> T:
        async def work() -> T:
            # Called in the task: what it says of wrong arguments is told to the thread as well.
            return await call(self._twin, *args, **options)

        return Call(work).run()

    wait.__code__ = wait.__code__.replace(co_name=call.__name__)  # what tracebacks and warnings show
    return functools.wraps(call)(wait)


def making(
    call: Callable[Concatenate[A, P], T], kind: Callable[[T], S]
) -> Callable[Concatenate[ForThreads[A], P], S]:
    """Return the call for threads of a call that only makes something, on which a `kind` is to stand."""

    def make(self: ForThreads[A], /, *args: P.args, **options: P.kwargs) -> S:
        return kind(call(self._twin, *args, **options))

    wrapped = functools.wraps(call)(make)
    wrapped.__doc__ = (call.__doc__ or "").replace("`async with`", "`with`")
    # What `help` shows: the signature of the call, but for what it returns.
    wrapped.__dict__["__signature__"] = inspect.signature(call).replace(return_annotation=kind)
    return wrapped
