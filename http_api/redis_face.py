"""The Redis face of a node, put together: `redis_api` with places, callers and rates of the HTTP server."""

import asyncio
from collections.abc import Callable

from cluster.build import this_build
from http_api.server.authentication import Authentication
from http_api.server.connections import HttpServer
from http_api.server.request_rates import RequestRates
from http_api.server.tls_gate import REDIS, TlsGate
from lockapi.gateway import Gateway
from redis_api.commands import quick, table
from redis_api.connection import Commands
from redis_api.server import RedisServer
from redis_api.shared.client import Face


def build(
    request_timeout_ms: int,
    server: HttpServer,
    gateway: Gateway,
    authentication: Authentication,
    rates: RequestRates,
    *,
    starting: Callable[[], str],
) -> tuple[RedisServer, Callable[[], asyncio.Protocol]]:
    """Return the server for clients of Redis, and what makes the protocol of each connection.

    `starting` returns how far a node is that still starts, "" once it serves. With TLS for HTTP this port
    speaks it as well.
    """
    face = Face(
        authentication,
        rates,
        request_timeout_ms / 1000,
        gateway,
        this_build().version,
        starting,
    )
    redis = RedisServer(face, server.room, Commands(table.answer, quick.begin, quick.finish), server.watch)
    door = server.tls
    if door is None:
        return redis, redis.make
    return redis, lambda: TlsGate(door, server.room, redis.make, REDIS)
