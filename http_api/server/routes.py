"""From method and path to a route: a dictionary for plain paths, a few patterns for the rest."""

import re
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from api.node import ServingNode
from api.problems import ProblemError
from http_api.server.call import Call, Reply

Handler = Callable[[ServingNode, Call], Awaitable[Reply]]

_QUERY_FIELDS_MAX = 16

_LATER = re.compile(r"\w+ /v1/stream(/.*)?")
"""Calls that this API will have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One call: where it is, what answers it, and what /openapi.json says about it.

    It answers with JSON that looks like `gives`, or like `or_gives`; without either, with `media_type`.
    """

    method: str
    path: str
    handler: Handler
    takes: type[Any] | None = None
    gives: type[Any] | None = None
    or_gives: type[Any] | None = None
    media_type: str = "text/plain"
    status: int = 200
    query: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


class Router:
    """Finds the route of a call."""

    def __init__(self, routes: Iterable[Route]) -> None:
        """Take the table; later routes of the same shape come after earlier ones."""
        self._exact: dict[tuple[str, str], Route] = {}
        self._patterns: list[tuple[re.Pattern[str], Route]] = []
        for route in routes:
            if "{" in route.path:
                self._patterns.append((_pattern(route.path), route))
            else:
                self._exact[route.method, route.path] = route

    def resolve(self, call: Call) -> Route:
        """Return the route, and set the call's path value and query. Raises ProblemError."""
        return self._exact.get((call.method, call.raw_path)) or self._resolve_parts(call)

    def _resolve_parts(self, call: Call) -> Route:
        """Resolve a path with a query, with parts in braces, or with nothing behind it."""
        target = call.raw_path if call.raw_path.startswith("/") else call.rel_url.raw_path_qs
        path, _, query = target.partition("?")
        method = "GET" if call.method == "HEAD" else call.method
        if _LATER.fullmatch(f"{method} {path}"):
            raise ProblemError("not-found", f"{path} comes with a later version")
        found = [route for (_, exact), route in self._exact.items() if exact == path]
        values = {}
        for pattern, route in self._patterns:
            if match := pattern.fullmatch(path):
                found.append(route)
                values[route.method] = match.group(1)
        for route in found:
            if route.method == method:
                call.path_value = _unquoted(values.get(method, ""))
                call.query_values = _query_values(query, route.query) if query else {}
                return route
        if not found:
            raise ProblemError("not-found", "there is nothing under this path; see /openapi.json")
        known = {route.method for route in found}
        methods = ", ".join(sorted(known | {"HEAD"} if "GET" in known else known))
        raise ProblemError("method-not-allowed", f"{call.method}: this path takes {methods}", allow=methods)


def _pattern(path: str) -> re.Pattern[str]:
    """Return the pattern of a path. Names of locks may go over several parts."""
    before, _, rest = path.partition("{")
    parameter, _, after = rest.partition("}")
    return re.compile(re.escape(before) + ("(.*)" if parameter == "name" else "([^/]+)") + re.escape(after))


def _unquoted(text: str) -> str:
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ProblemError("invalid-request", "path: is not valid UTF-8") from None


def _query_values(query: str, allowed: tuple[str, ...]) -> dict[str, str]:
    """Return the query as a dictionary. Raises ProblemError for what the route does not know."""
    try:
        pairs = urllib.parse.parse_qsl(
            query, keep_blank_values=True, errors="strict", max_num_fields=_QUERY_FIELDS_MAX
        )
    except ValueError as exc:
        raise ProblemError("invalid-request", f"query: cannot be read: {exc}") from None
    values: dict[str, str] = {}
    for key, value in pairs:
        if key not in allowed:
            known = f"; there are {', '.join(allowed)}" if allowed else ""
            raise ProblemError("invalid-request", f"{key}: unknown query parameter{known}")
        if key in values:
            raise ProblemError("invalid-request", f"{key}: is given twice")
        values[key] = value
    return values
