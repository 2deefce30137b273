"""The sockets at which a node serves clients: bound before anything else, and in use once the node runs."""

import asyncio
import contextlib
import dataclasses
import errno
import socket
import urllib.parse
from collections.abc import Callable, Iterator, Sequence

from aiohttp import web

from cluster import exposure, unix_path
from cluster.config import Address, NodeConfig
from cluster.errors import AddressInUse, StartupError
from cluster.start_check import check_unused
from http_api import unix_socket
from http_api.server.connections import HttpServer
from http_api.unix_socket import SocketInUse


class Listeners:
    """What is bound, and then served."""

    def __init__(
        self,
        config: NodeConfig,
        tcp: socket.socket | None,
        unix: tuple[str, socket.socket] | None,
        redis: socket.socket | None = None,
    ) -> None:
        """Know the socket of each address, and that with the URL of the Unix socket, as far as there are."""
        self._tcp, self._unix, self._redis = tcp, unix, redis
        self._has_tls = config.tls_cert is not None
        self._site: web.BaseSite | None = None
        self._servers: list[asyncio.Server] = []

    @property
    def addresses(self) -> list[Address]:
        """The addresses that other machines may reach, with the ports that the system chose."""
        return [] if self._tcp is None else [Address(*self._tcp.getsockname()[:2])]

    @property
    def redis_addresses(self) -> list[Address]:
        """The addresses at which clients of Redis come."""
        return [] if self._redis is None else [Address(*self._redis.getsockname()[:2])]

    @property
    def urls(self) -> str:
        """Where clients are served, with commas, as they are told the nodes of a cluster."""
        scheme = "https" if self._has_tls else "http"
        urls = [f"{scheme}://{address}" for address in self.addresses]
        return ",".join(urls if self._unix is None else [*urls, self._unix[0]])

    def told(self, config: NodeConfig) -> NodeConfig:
        """Return `config` with the port that the system chose, when it was asked to."""
        if config.redis is not None:
            config = dataclasses.replace(config, redis=self.redis_addresses[0])
        if config.http is None or config.http.port:
            return config
        (address,) = self.addresses
        advertised = urllib.parse.urlsplit(config.advertise_http)
        url = config.advertise_http
        if advertised.port == 0:
            url = f"{advertised.scheme}://{Address(advertised.hostname or config.http.host, address.port)}"
        return dataclasses.replace(config, http=Address(config.http.host, address.port), advertise_http=url)

    async def serve(self, server: HttpServer, runner: web.ServerRunner, backlog: int) -> None:
        """Take connections from now on; the kernel keeps so many until then."""
        if self._tcp is not None:
            self._site = web.SockSite(runner, self._tcp, backlog=backlog)
            await self._site.start()
        if self._unix is not None:
            loop = asyncio.get_running_loop()
            # Beneath it there never is TLS: nobody is on the path.
            self._servers.append(
                await loop.create_unix_server(server.without_tls, sock=self._unix[1], backlog=backlog)
            )

    async def serve_redis(self, make: Callable[[], asyncio.Protocol], backlog: int) -> None:
        """Take connections of clients of Redis from now on, if there is an address for them."""
        if self._redis is not None:
            loop = asyncio.get_running_loop()
            self._servers.append(await loop.create_server(make, sock=self._redis, backlog=backlog))

    async def stop(self) -> None:
        """Take no more; those that are there go on."""
        if self._site is not None:
            await self._site.stop()
        for server in self._servers:
            server.close()


def exposure_warning(config: NodeConfig, addresses: Sequence[Address], setting: str = "http") -> str:
    """Return what is to be warned of who may reach these addresses of `setting`; empty if nothing is.

    Raises ConfigError if others may, and more is needed for that, or the leave of the operator.
    """
    return exposure.check_clients(
        addresses,
        has_tls=config.requires_tls,
        has_principals=config.tokens is not None or config.tls_client_ca is not None,
        is_allowed=config.insecure_http if setting == "http" else config.insecure_redis,
        setting=setting,
    )


@contextlib.contextmanager
def bound(config: NodeConfig) -> Iterator[Listeners]:
    """Bind the sockets, which do not listen yet, and let go of them at the end. Raises StartupError."""
    with contextlib.ExitStack() as stack:
        try:
            listeners = _bound(config, stack)
        except (AddressInUse, SocketInUse):
            check_unused(config.data_dir)  # a node that is started twice is told that, and is not tried again
            raise
        yield listeners


def _bound(config: NodeConfig, stack: contextlib.ExitStack) -> Listeners:
    tcp = None if config.http is None else stack.enter_context(contextlib.closing(bind_tcp(config.http)))
    unix = None
    if config.http_unix is not None:
        listener = stack.enter_context(unix_socket.bound(config.http_unix))
        unix = unix_path.url_of(config.http_unix), listener
    redis = None
    if config.redis is not None:
        redis = stack.enter_context(contextlib.closing(bind_tcp(config.redis, "redis")))
    return Listeners(config, tcp, unix, redis)


def bind_tcp(address: Address, setting: str = "http") -> socket.socket:
    """Return a bound socket for what `setting` says, which does not listen yet. Raises StartupError."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as exc:
        raise StartupError(f"{setting}: {address}: {exc.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except OSError as exc:
        listener.close()
        error = AddressInUse if exc.errno == errno.EADDRINUSE else StartupError
        raise error(f"{setting}: {address}: cannot listen: {exc.strerror}") from None
    return listener
