"""The HTTP face of a node, put together: the calls of version 1 behind one server."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from typing import Final

from cluster.observing.samples import Sample
from cluster.peers.strangers import origin_of
from cluster.tracing import Tracer
from http_api.server.access_log import AccessLog
from http_api.server.authentication import Authentication
from http_api.server.callers import Callers
from http_api.server.connection_limits import ConnectionPlaces, PlaceLimits
from http_api.server.connections import HttpServer, make_server
from http_api.server.fast_lane import FastLane
from http_api.server.metrics import RequestCounts
from http_api.server.middleware import Front
from http_api.server.request_rates import RequestRates
from http_api.server.routes import Router
from http_api.server.start_gate import StartGate
from http_api.server.tls_gate import TlsDoor
from http_api.ui.routes import STARTING_PAGES, Rates, ui_routes
from http_api.v1 import schema
from http_api.v1.handlers import cluster
from http_api.v1.table import make_routes
from lockapi.gateway import Gateway
from lockapi.node import ServingNode

_DEFAULT_ROOM: Final = PlaceLimits()


def build_server(
    node: ServingNode,
    request_timeout_ms: int,
    room_limits: PlaceLimits = _DEFAULT_ROOM,
    callers: Callers | None = None,
    *,
    fast_lane: bool = True,
    tls: TlsDoor | None = None,
    authentication: Authentication | None = None,
    rates: RequestRates | None = None,
    activity: Rates = tuple,
    gate: StartGate | None = None,
    settings: Mapping[str, str] | None = None,
    tracer: Tracer | None = None,
    others: Callable[[], Iterable[Sample]] = tuple,
) -> HttpServer:
    """Return the server of `node`, to be run by aiohttp's ServerRunner. Needs a running event loop.

    Without `fast_lane` all calls take the way through aiohttp; the answers are the same.
    With `tls` the server speaks nothing else. Without `authentication` everybody may do everything, and
    without `rates` as often as they like. `activity` returns the rates that the page for people draws. While
    the `gate` is closed, no call reaches the node. `settings` of the node are what operators are shown. With
    a `tracer` calls are recorded. `others` are more samples for /metrics.
    """
    known = authentication or Authentication(Gateway(node))
    room = ConnectionPlaces(room_limits, origin_of)
    known.trace.origin_of = origin_of
    rates = rates or RequestRates()
    counts = RequestCounts(
        lambda: chain(
            room.samples(),
            known.samples(),
            rates.samples(),
            () if tls is None else tls.samples(),
            others(),
        )
    )
    access_log = AccessLog(counts)
    routes = make_routes(counts, known.trace, lambda: room.connections, settings)
    page = ui_routes(known, lambda gateway: cluster.status_of(gateway, lambda: room.connections), activity)
    router = Router((*routes, *page))
    shared = known, router, access_log, request_timeout_ms, callers or Callers()
    lane = FastLane(*shared, rates=rates, decode=schema.decode, tracer=tracer) if fast_lane else None
    gate = gate or StartGate()
    gate.pages = STARTING_PAGES
    front = Front(*shared, rates=rates, gate=gate, tracer=tracer)
    server = make_server(front, room, None if gate.is_closed else lane, tls)
    gate.on_open = partial(server.use_lane, lane)
    return server
