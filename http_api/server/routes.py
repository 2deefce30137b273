"""From method and path to a route: a dictionary for plain paths, a few patterns for the rest."""

import re
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from http_api.server.call import Call, Reply
from http_api.server.refusals import CallRefused
from lockapi import answers
from lockapi.gateway import CommandOutcome, Gateway
from lockapi.needs import Need

Handler = Callable[[Gateway, Call], Awaitable[Reply]]

_PART = re.compile(r"\{.*?\}")
"""A part of a path that differs from call to call."""
_QUERY_FIELDS_MAX = 16
"""Query parameters of one call, at most."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Direct(Generic[R]):
    """What becomes of a call that is one command.

    A request, and what stands in the braces of its path if it has such a part, make the `command`, which
    `gives` a result, of which an `answer` is made. With this the fast lane can carry it out without its
    handler, which uses the same.
    """

    command: Callable[..., Any]
    gives: type[R]
    answer: Callable[[R, int], Any]

    def encoded(self, outcome: CommandOutcome[Any]) -> bytes:
        """Return the body of the answer."""
        answer = self.answer(outcome.result, outcome.revision)
        return answers.told(answer, is_repeated=outcome.is_repeated)


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call: its path, its handler, and what /openapi.json says about it.

    It has a `need` of of its caller, and answers with the JSON of a `gives` or an `or_gives`; without
    either, with text of `media_type`. What a `direct` one takes can make its command; a part of its path is
    the id of a session.
    """

    method: str
    path: str
    need: Need
    handler: Handler
    takes: type[Any] | None = None
    gives: type[Any] | None = None
    or_gives: type[Any] | None = None
    media_type: str = "text/plain"
    status: int = 200
    query: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    direct: Direct[Any] | None = None

    @property
    def has_part(self) -> bool:
        """Whether the path has a part in braces."""
        return "{" in self.path


class Router:
    """Finds the route of a call."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Take the table, where the first of several matching routes counts."""
        self._exact: dict[tuple[str, str], Route] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        self._direct: dict[tuple[str, str], Route] = {}
        for route in routes:
            if route.direct is not None:
                self._direct[route.method, _PART.sub("", route.path)] = route
            if route.has_part:
                self._patterns.append((_pattern(route.path), route))
            else:
                self._exact[route.method, route.path] = route

    def direct(self, method: str, target: str) -> Route | None:
        """Return the route of a call that the fast lane may carry out, with an empty part for an id."""
        return self._direct.get((method, target))

    def resolve(self, call: Call) -> Route:
        """Return the route, and set the call's path value and query. Raises CallRefused."""
        return self._exact.get((call.method, call.raw_path)) or self._resolve_parts(call)

    def _resolve_parts(self, call: Call) -> Route:
        """Resolve a path with a query, with parts in braces, or with nothing behind it.

        A path of the table is never a name: who sends GET to that of an action hears that it takes POST, and
        not that a lock of this name is free.
        """
        target = call.raw_path if call.raw_path.startswith("/") else call.rel_url.raw_path_qs
        path, _, query = target.partition("?")
        method = "GET" if call.method == "HEAD" else call.method
        found = [route for (_, exact), route in self._exact.items() if exact == path]
        values = {}
        for pattern, route in () if found else self._patterns:
            if match := pattern.fullmatch(path):
                found.append(route)
                values[route.method] = match.group(1)
        for route in found:
            if route.method == method:
                call.path_value = _unquoted(values.get(method, ""))
                call.query_values = _query_values(query, route.query) if query else {}
                return route
        if not found:
            raise CallRefused("not-found", "there is nothing under this path; see /openapi.json")
        known = {route.method for route in found}
        methods = ", ".join(sorted(known | {"HEAD"} if "GET" in known else known))
        raise CallRefused("method-not-allowed", f"{call.method}: this path takes {methods}", allow=methods)


def _pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a path. A name or a key may extend over several parts."""
    before, _, rest = path.partition("{")
    parameter, _, after = rest.partition("}")
    return re.compile(
        re.escape(before) + ("(.*)" if parameter in {"name", "key"} else "([^/]+)") + re.escape(after)
    )


def _unquoted(text: str) -> str:
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise CallRefused("invalid-request", "path: is not valid UTF-8") from None


def _query_values(query: str, allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the query as a dictionary. Raises CallRefused for a parameter that the route does not take."""
    try:
        pairs = urllib.parse.parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError as exc:
        raise CallRefused("invalid-request", f"query: cannot be read: {exc}") from None
    values: dict[str, str] = {}
    for key, value in pairs:
        if key not in allowed:
            known = f"; there are {', '.join(allowed)}" if allowed else ""
            raise CallRefused("invalid-request", f"{key}: unknown query parameter{known}")
        if key in values:
            raise CallRefused("invalid-request", f"{key}: is given twice")
        values[key] = value
    return values
