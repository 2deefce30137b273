"""What the decorators share: names made of arguments, functions that cannot be decorated, and clients."""

import inspect
import string
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from holdfast.client.client import Client
from holdfast.decorators import defaults
from holdfast.threads.sync_client import SyncClient
from holdfast.values.names import to_name

ClientOrMaker: TypeAlias = defaults.AnyClient | Callable[[], defaults.AnyClient] | None
"""A client, what returns one (asked at each call), or None for the default one."""

_FORMATTER: Final = string.Formatter()


class NameOfCall:
    """A name such as `report/{user_id}`, whose fields are the arguments of the call."""

    def __init__(self, template: str, function: Callable[..., Any]) -> None:
        """Check the name against the function. Raises ValueError."""
        self._template = template
        self._signature = inspect.signature(function)
        if not template:
            raise ValueError("name: is empty")
        try:
            parts = list(_FORMATTER.parse(template))
        except ValueError as error:
            raise ValueError(f"name: {template!r}: {error}") from error
        fields = [(field, spec) for _, field, spec, _ in parts if field is not None]
        self._is_fixed = not fields
        known = [
            name
            for name, parameter in self._signature.parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        for field, spec in fields:
            argument = field.partition(".")[0].partition("[")[0]
            if argument not in known:
                takes = ", ".join(known) or "nothing"
                raise ValueError(f"name: {template!r} needs {argument!r}, but the function takes {takes}")
            if "{" in (spec or ""):
                raise ValueError(f"name: {template!r}: fields within fields are not allowed")

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the name for a call. Raises TypeError for arguments that the function does not take.

        A slash within an argument is written `%2F`, as in names that are tuples. Raises ValueError for an
        argument that is empty.
        """
        if self._is_fixed:
            return self._template.format()
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return _Escaping().vformat(self._template, (), bound.arguments)


class _Escaping(string.Formatter):
    """Formats arguments so that they stay within their part of a name."""

    def format_field(self, value: Any, format_spec: str) -> str:
        return to_name((super().format_field(value, format_spec),))


def check_name(decorator: str, name: object) -> None:
    """Raise TypeError for what is not a name, as when a decorator is used without its parentheses."""
    if not isinstance(name, str):
        raise TypeError(
            f"{decorator}: the first argument is the name of the lock: @{decorator}('name'), not {name!r}"
        )


def check_function(decorator: str, function: Any) -> None:
    """Raise TypeError for what would run after the lock is released, or is not a function."""
    if inspect.isclass(function) or not callable(function):
        raise TypeError(f"{decorator}: decorates functions, not {function!r}")
    if isinstance(function, (staticmethod, classmethod)):
        raise TypeError(f"{decorator}: put it below @{type(function).__name__}")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"{decorator}: a generator would run after the call, without the lock")


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives something to await."""
    return inspect.iscoroutinefunction(function)


def ended(decorator: str, result: Any) -> Any:
    """Return what a function returned. Raises TypeError for what has yet to run: that has not even begun."""
    if inspect.isawaitable(result) or inspect.isgenerator(result) or inspect.isasyncgen(result):
        if inspect.iscoroutine(result) or inspect.isgenerator(result):
            result.close()
        raise TypeError(
            f"{decorator}: the function has returned {result!r}, which would run without the lock"
        )
    return result


def check_client(decorator: str, client: ClientOrMaker, *, for_tasks: bool) -> None:
    """Raise TypeError for a client of the other kind."""
    if isinstance(client, SyncClient if for_tasks else Client):
        wanted = "holdfast.Client" if for_tasks else "holdfast.SyncClient"
        kind = "async def" if for_tasks else "def"
        raise TypeError(f"{decorator}: a function made with {kind} needs a {wanted}")


def client_for(decorator: str, client: ClientOrMaker, *, for_tasks: bool) -> Any:
    """Return the client for a call: what has the calls of one also serves. Raises TypeError."""
    if client is None:
        return defaults.client() if for_tasks else defaults.sync_client()
    if isinstance(client, type) or (callable(client) and not hasattr(client, "lock")):
        client = client()
        check_client(decorator, client, for_tasks=for_tasks)
    if not hasattr(client, "lock"):
        raise TypeError(f"{decorator}: {client!r} is not a client")
    return client
