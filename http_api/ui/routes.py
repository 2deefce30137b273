"""The calls of the page: the overview, its files, who the caller is, and what is at `/`.

They do not belong to version 1, nor to /openapi.json: nothing but the page itself uses them.
What it shows besides the overview, and all that it changes, goes through version 1 with its user's token.
"""

import html
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from aiohttp import hdrs

from cluster.observing.status import ClusterStatus
from holdfast.token_lines import Right
from http_api.server.authentication import Authentication, Unauthenticated
from http_api.server.call import Call, Reply
from http_api.server.refusals import CallRefused
from http_api.server.routes import Route
from http_api.ui import overview
from http_api.ui.assets import assets
from lockapi import answers, needs
from lockapi.gateway import Gateway

UI: Final = "/ui"
ROOT: Final = "/"
_HTML: Final = "text/html; charset=utf-8"
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Nothing from elsewhere, nothing inline, and in nobody's frame: a name that is HTML stays text."""
_GUARD: Final = (
    f"Content-Security-Policy: {_POLICY}\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
)
_PRIVATE: Final = f"{_GUARD}Cache-Control: no-store\r\n"

_START: Final = """\
This is a node of Holdfast, a distributed lock service.

/ui                        for people with a browser
/v1/...                    for programs: /openapi.json describes it, docs/http-api.md is its manual
/livez, /readyz, /metrics  for monitoring: docs/operating.md

`holdfast status` shows the cluster in a terminal.
"""
"""What somebody is told who asks for nothing in particular."""
_STARTING: Final = """\
<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="refresh" content="2">
<title>Starting · Holdfast</title>
</head>
<body>
<h1>This node is starting</h1>
<p>{how_far}</p>
<p>This page looks again every two seconds, and is the overview once the node answers.</p>
</body>
</html>
"""

Rates = Callable[[], Sequence[tuple[float, float, float]]]


def ui_routes(
    authentication: Authentication, status_of: Callable[[Gateway], ClusterStatus], rates: Rates
) -> tuple[Route, ...]:
    """Return the calls, for one server. `rates` are those of `Activity`."""
    overview.template()
    assets()

    async def get_overview(gateway: Gateway, call: Call) -> Reply:
        """Return the overview as the caller may see it.

        A browser sends no token when a person types the address: then the page shows what everybody may know,
        and asks for one.
        """
        if hdrs.AUTHORIZATION in call.headers:
            caller = authentication.of_call(call)
        else:
            try:
                caller = authentication.caller(b"", call.place, call.transport)
            except Unauthenticated:
                return _page(overview.public(gateway))
        may_count = caller.rights.on_the_whole(Right.METRICS)
        return _page(overview.whole(caller, status_of(caller), rates() if may_count else None))

    return (
        Route(method="GET", path=ROOT, need=needs.OPEN, handler=_get_root),
        Route(method="GET", path=UI, need=needs.OPEN, handler=get_overview, media_type="text/html"),
        Route(method="GET", path=f"{UI}/", need=needs.OPEN, handler=_get_redirect, media_type="text/html"),
        Route(method="GET", path=f"{UI}/caller", need=needs.KNOWN, handler=_get_caller, gives=dict),
        Route(
            method="GET", path=f"{UI}/{{name}}", need=needs.OPEN, handler=_get_asset, media_type="text/plain"
        ),
    )  # fmt: skip


def _page(text: str) -> Reply:
    return Reply(text.encode(), content_type=_HTML, headers=_PRIVATE)


def _starting(how_far: str) -> Reply:
    """Return the page of a node that has not read its state yet. Its files cannot be had meanwhile."""
    text = _STARTING.format(how_far=html.escape(how_far))
    return Reply(text.encode(), 503, _HTML, _PRIVATE)


STARTING_PAGES: Final[Mapping[str, Callable[[str], Reply]]] = {
    UI: _starting,
    f"{UI}/": _starting,
    ROOT: _starting,
}
"""What a browser is shown while the node starts, by path."""


async def _get_root(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001
    """Lead a browser to the page, and say to everybody else what there is."""
    if call.is_of_browser:
        return Reply(b"", 307, _HTML, f"{_PRIVATE}Location: ui\r\n")
    return Reply(_START.encode(), content_type="text/plain; charset=utf-8", headers=_PRIVATE)


async def _get_redirect(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001 - all handlers look alike
    """Lead to the address below which the page finds its files."""
    return Reply(b"", 308, _HTML, f"{_PRIVATE}Location: ../ui\r\n")


async def _get_caller(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001
    """Return whom the caller asks, who it is, and its rights by prefix: the page offers what they allow."""
    node_id = gateway.node.status().node_id
    told = {"node_id": node_id, "principal": gateway.principal.name, "rights": gateway.rights.by_prefix()}
    return Reply(answers.encode(told), headers=_PRIVATE)


async def _get_asset(gateway: Gateway, call: Call) -> Reply:  # noqa: ARG001
    """Return a file of the page. A browser asks each time: after an upgrade it is another one."""
    asset = assets().get(call.path_value)
    if asset is None:
        raise CallRefused("not-found", "the page has no such file")
    return Reply(asset.body, content_type=asset.media_type, headers=f"{_GUARD}Cache-Control: no-cache\r\n")
