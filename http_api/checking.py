"""`holdfast-node --check-config`: whether a node could start with these settings, and what is wrong if not.

Every check is that of a start, in the function that a start calls. Nothing is started, written or changed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cluster import exposure
from cluster.config import Address, NodeConfig, load
from cluster.config_sources import CHECK_CONFIG, DIAL
from cluster.errors import AddressInUse, ConfigError, StartupError, advice_on
from cluster.file_watch import readers
from cluster.observing import memory
from cluster.peers import links, peer_tls_watch
from cluster.peers.peer_probe import probe
from cluster.peers.peer_tls_watch import PeerTlsWatch
from cluster.peers.space_watch import needed_bytes
from cluster.start_check import Directory, look_at_directory
from cluster.storage.disk_space import disk_space
from cluster.tls.watch import SOON_DAYS, TlsFilesWatch, told_end
from cluster.unix_path import url_of
from http_api import listeners, starting, tls_watch, tokens_watch, unix_socket
from http_api.unix_socket import SocketInUse

if TYPE_CHECKING:
    from http_api.otlp import SpanExport

_MIB: Final = 1 << 20

T = TypeVar("T")


def is_asked(words: Sequence[str]) -> bool:
    """Whether a command line asks for a check. No setting takes such a word as its value."""
    return CHECK_CONFIG in words


def run(words: Sequence[str], environ: Mapping[str, str], say: Callable[[str], None] = print) -> int:
    """Check what a start with this command line would find; return the exit code: 0 if it could start."""
    # What a start would log on its way is told as findings.
    logging.getLogger().addHandler(logging.NullHandler())
    report = Report(say)
    config = report.made(lambda: load(words, environ))
    if config is not None:
        asyncio.run(_check(config, report, dials=DIAL in words))
    warned = f", with {report.warnings} warnings" if report.warnings else ""
    say("this node cannot start with these settings" if report.errors else f"this node could start{warned}")
    return ConfigError.exit_code if report.errors else 0


class Report:
    """What was found: a line each, which begins with ok, warning or error."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self.warnings = self.errors = 0

    def ok(self, text: str) -> None:
        """Say what is well."""
        self._say(f"ok: {text}")

    def warn(self, text: str) -> None:
        """Say what keeps no node from starting, and is hardly meant; nothing of an empty text."""
        if text:
            self.warnings += 1
            self._say(f"warning: {text}")

    def fail(self, error: StartupError) -> None:
        """Say why a start would fail, and what to do."""
        self.errors += 1
        advice = advice_on(error)
        self._say(f"error: {error}{'. ' if advice else ''}{advice}")

    def in_use(self, error: AddressInUse | SocketInUse, *, is_running: bool) -> None:
        """Say that a place is taken: an error, unless the node runs and may have it."""
        if is_running:
            self.warn(f"{error}: most likely this node, which runs")
        else:
            self.fail(error)

    @contextlib.contextmanager
    def part(self) -> Iterator[None]:
        """Take what ends a start for a finding, and go on."""
        try:
            yield
        except StartupError as error:
            self.fail(error)

    def made(self, step: Callable[[], T]) -> T | None:
        """Return what a step makes, or None if it would end a start, which is its finding then."""
        try:
            return step()
        except StartupError as error:
            self.fail(error)
            return None


async def _check(config: NodeConfig, report: Report, *, dials: bool) -> None:
    _check_settings(config, report)
    clients_tls = report.made(lambda: tls_watch.watch_of(config))
    if clients_tls is not None:
        _check_certificates(clients_tls, report)
        report.warn(clients_tls.unnamed(config.advertise_http))
    peers_tls = report.made(lambda: peer_tls_watch.watch_of(config))
    if peers_tls is not None:
        _check_certificates(peers_tls, report)
    report.made(lambda: _check_tokens(config, report))
    export = report.made(lambda: starting.export_of(config))
    directory = report.made(lambda: _check_directory(config, report))
    if directory is not None and peers_tls is not None:
        report.made(partial(_check_cluster, directory, peers_tls))
    is_running = directory is not None and directory.is_running
    _check_clients_places(config, report, is_running=is_running)
    if config.takes_peers:
        await _check_peer_port(config, report, directory)
    _check_room(config, report)
    if dials:
        await _dial(config, report, peers_tls)
        if export is not None:
            await _dial_collector(export, report, config.otlp_endpoint)


def _check_settings(config: NodeConfig, report: Report) -> None:
    peers = ", ".join(config.peers) or "none, a cluster of its own"
    report.ok(f"settings: node {config.node_id}, peers: {peers}")
    for warning in config.warnings:
        report.warn(warning)
    if config.secret_file is not None:
        who = readers(config.secret_file)
        where = f"secret_file: {str(config.secret_file)!r}"
        if who:
            report.warn(f"{where}: {who} can read it; chmod 600 it")
        report.ok(
            f"{where}: a secret of {len(config.secret)} bytes{' and another one' * bool(config.rotation)}"
        )


def _check_certificates(watch: TlsFilesWatch[Any], report: Report) -> None:
    """Tell what certificates there are. That they can be used, their watch has found out."""
    for setting, days in watch.days_left():
        if days < SOON_DAYS:
            report.warn(f"{setting}: {days} days left: {told_end(days)}")
        else:
            report.ok(f"{setting}: {days} days left")
    report.warn(watch.open_key())


def _check_cluster(directory: Directory, tls: PeerTlsWatch) -> None:
    """Refuse a certificate for peers of another cluster than that of the directory. Raises ConfigError."""
    is_founding = not directory.joins and directory.is_log_empty and not directory.is_running
    tls.belong(lambda: directory.cluster_id, is_founding=is_founding)


def _check_tokens(config: NodeConfig, report: Report) -> None:
    watch = tokens_watch.watch_of(config)
    if watch is None:
        return
    for warning in watch.warnings():
        report.warn(warning)
    report.ok(f"tokens: {str(config.tokens)!r}: {watch.count} principals")


def _check_directory(config: NodeConfig, report: Report) -> Directory:
    """Tell what the data directory is. Raises StartupError."""
    found, path = look_at_directory(config), config.data_dir
    if found.is_running:
        report.warn(
            f"data_dir: {path}: {config.node_id} runs in it now (`fuser {path}` shows its pid): stop it"
            " before it is started with these settings. Its log was not compared with them"
        )
    elif found.is_new:
        report.ok(f"data_dir: {path}: it has no data yet, and would become the directory of {config.node_id}")
    else:
        cluster = f"cluster {found.cluster_id}" if found.cluster_id else "no cluster yet"
        report.ok(f"data_dir: {path}: it is that of {config.node_id}, of {cluster}")
    differs = found.differing(config)
    if differs is not None:
        report.warn(
            f"peers: {differs.configured!r}: the members are {differs.members!r}: these count; `peers` only"
            " says where else to dial them"
        )
    return found


def _check_clients_places(config: NodeConfig, report: Report, *, is_running: bool) -> None:
    """Find out whether the places for clients are free, and may be open."""
    path = config.http_unix
    for setting, address in (("http", config.http), ("redis", config.redis)):
        if address is None:
            continue
        with report.part():
            try:
                reached = _bound(address, setting)
                report.ok(f"{setting}: {address}: it can listen there")
            except AddressInUse as error:
                report.in_use(error, is_running=is_running)
                # Another port of the same address is as open.
                reached = _bound(address._replace(port=0), setting)
            report.warn(listeners.exposure_warning(config, [reached], setting))
    if path is not None:
        with report.part():
            try:
                unix_socket.check(path)
                report.ok(f"http: {url_of(path)}: it can listen there")
            except SocketInUse as error:
                report.in_use(error, is_running=is_running)


def _bound(address: Address, setting: str) -> Address:
    """Bind an address for clients, let go of it, and return what it stands for. Raises StartupError."""
    with contextlib.closing(listeners.bind_tcp(address, setting)) as bound:
        return Address(*bound.getsockname()[:2])


async def _check_peer_port(config: NodeConfig, report: Report, directory: Directory | None) -> None:
    """Find out whether the address for peers is free, and may be open."""
    listen = config.peer if directory is None else directory.listens_at(config)
    with report.part():
        try:
            reached = await links.bound_at(listen)
            report.ok(f"peer: {listen}: it can listen there")
        except AddressInUse as error:
            report.in_use(error, is_running=directory is not None and directory.is_running)
            reached = await links.bound_at(listen._replace(port=0))
        report.warn(
            exposure.check_peers(reached, has_tls=config.requires_peer_tls, is_allowed=config.insecure_peers)
        )


def _check_room(config: NodeConfig, report: Report) -> None:
    """Look at memory and disk."""
    bound_bytes = memory.state_bytes_max()
    if config.state_bytes_max > bound_bytes:
        report.warn(
            f"state_bytes_max: {config.state_bytes_max}: this machine bears {bound_bytes} bytes, a quarter of"
            " the memory for the node: with a full state it may be killed; give it more memory, or less state"
        )
    else:
        report.ok(f"state_bytes_max: {(config.state_bytes_max or bound_bytes) // _MIB} MiB for the state")
    try:
        space = disk_space(config.data_dir)
    except OSError as error:
        report.warn(f"data_dir: the space on its disk cannot be measured: {error}")
        return
    if space.free < needed_bytes(space):
        report.warn(
            f"data_dir: {space.free} bytes are free on its disk, and {needed_bytes(space)} are needed: make"
            " room: a node stops when a write fails"
        )
    else:
        report.ok(f"data_dir: {space.free // _MIB} MiB free on its disk")


async def _dial(config: NodeConfig, report: Report, tls: PeerTlsWatch | None) -> None:
    """Say who answers at the addresses of the peers, all at once."""
    others = {peer_id: address for peer_id, address in config.peers.items() if peer_id != config.node_id}
    if not others:
        report.ok("peers: there are none to be dialed")
    probes = [
        probe(config.node_id, peer_id, address, tls.tls if tls is not None else None)
        for peer_id, address in others.items()
    ]
    for found in await asyncio.gather(*probes):
        (report.ok if found.is_well else report.warn)(f"peers: {found.peer_id}: {found.text}")


async def _dial_collector(export: "SpanExport", report: Report, endpoint: str) -> None:
    """Say whether the collector of traces takes what it is sent."""
    why = await asyncio.to_thread(export.dial)
    if why:
        report.warn(f"otlp_endpoint: {endpoint}: {why}: a node drops the traces that it cannot send")
    else:
        report.ok(f"otlp_endpoint: {endpoint}: a collector of traces takes what it is sent")
