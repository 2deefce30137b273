"""The configuration of a node: one frozen value, checked once.

`load` makes it from flags, environment, file and defaults. Every wrong value is refused by a ConfigError that
names the setting, its value, where it came from, and what is allowed.
"""

import dataclasses
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

from cluster import config_secrets, unix_path
from cluster.config_secrets import SECRET_BYTES_MIN, Secrets, SecretsUnreadable
from cluster.config_sources import FRACTIONS, NUMBERS, Given, WrongValueError, collect, misspelled

STATE_BYTES_LEAST: Final = 16 << 20
"""Bytes of the lowest bound on the state, as in lockstate/words/limits.py."""
DATA_DIR: Final = "holdfast-data"
"""Where a node has its data, unless something else is said."""
NODES_COUNT_MAX: Final = 7
"""The most nodes that a cluster may have: more make every write slower and nothing safer."""

_LABEL_CHARS_MAX: Final = 63
"""Characters between two dots of a host name."""
_PORT_MAX: Final = 65_535
_DIGITS_MAX: Final = 15
_NODE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_ALLOWED_HOST: Final = re.compile(r"\*|\.?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_ALLOWED_ORIGIN: Final = re.compile(r"\*|null|[a-z][a-z0-9+.-]*://[^/\s@]+")
_ALLOWED_PREFIX: Final = re.compile(r"\*|[^/]+(?:/[^/]+)*")
_WILDCARDS: Final = ("0.0.0.0", "::")  # noqa: S104 - recognised here, bound to only when asked for

_RANGES: Final = {
    "heartbeat_ms": (10, 10_000),
    "election_ms_min": (10, 60_000),
    "election_ms_max": (10, 120_000),
    "compact_entries": (100, 10_000_000),
    "request_timeout_ms": (50, 60_000),
    "head_timeout_ms": (100, 600_000),
    "idle_timeout_ms": (1_000, 24 * 3_600_000),
    "connections_per_address": (0, 1_000_000),
    "requests_per_second": (0, 1_000_000),
    "state_bytes_max": (0, 1 << 50),
}
_PEER_FILES: Final = ("peer_cert", "peer_key", "peer_ca")
_FILES: Final = (
    "tls_cert", "tls_key", "tls_client_ca", "tls_revoked", "tokens", *_PEER_FILES, "peer_revoked"
)  # fmt: skip
_FRACTION: Final = re.compile(r"0|1|[01]?\.[0-9]{1,9}|1\.0*")
_WORDS: Final = {
    "tls": ("accept", "require"),
    "peer_tls": ("off", "accept", "dial", "require"),
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("text", "json"),
}

_T = TypeVar("_T")


class Address(NamedTuple):
    """Where to listen or connect."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "host:port" or "[ipv6]:port". Raise ValueError, whose message says what is allowed."""
        host, colon, port = text.strip().rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            raise ValueError("an IPv6 address needs brackets, such as [::1]:7700")
        if not colon or not host or any(character.isspace() or character in "[]/@" for character in host):
            raise ValueError("must be HOST:PORT, such as 127.0.0.1:7700")
        if not (port.isascii() and port.isdigit() and int(port) <= _PORT_MAX):
            raise ValueError(f"must be HOST:PORT with a port of 0 to {_PORT_MAX}")
        return cls(host, int(port))

    def __str__(self) -> str:
        """Write the address as `parse` reads it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """All that a node has to know before it starts. Raises WrongValueError when made of wrong values.

    `peers` maps the id of every node of a new cluster, this one included, to its peer address; with no other
    entry the node is a cluster of its own. Later the member list in the log counts instead, and `peers`, if
    given at all, must not contradict it. A node that is to `join` a running cluster finds the members there.
    `peer` is where this node listens for the others (unless `is_peer_given` its own address in the log comes
    first), `http` where for clients (None: only at `http_unix`), and `advertise_http` the URL under which
    clients reach it.
    """

    node_id: str
    data_dir: Path
    http: Address | None
    peer: Address
    peers: Mapping[str, Address]
    secret: bytes = field(repr=False)
    advertise_http: str
    heartbeat_ms: int = 100
    election_ms_min: int = 500
    election_ms_max: int = 1000
    compact_entries: int = 20_000
    request_timeout_ms: int = 5_000
    head_timeout_ms: int = 10_000
    idle_timeout_ms: int = 75_000
    connections_per_address: int = 0
    requests_per_second: int = 0
    """Requests that this node takes of one principal, or of one address; 0 for any number."""
    http_unix: Path | None = None
    """The Unix socket at which this node listens for clients."""
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    allow_no_deadline: tuple[str, ...] = ()
    """The prefixes of names for which holds may have no deadline; "*" stands for all."""
    allow_priority: tuple[str, ...] = ()
    """The prefixes of names for which requests may have a priority; "*" stands for all."""
    state_bytes_max: int = 0
    insecure_http: bool = False
    """Whether others may reach `http` although there is no TLS, or nobody has to say who they are."""
    redis: Address | None = None
    """Where this node listens for clients of Redis; None for nowhere."""
    insecure_redis: bool = False
    """Whether others may reach `redis` although there is no TLS, or nobody has to say who they are."""
    insecure_peers: bool = False
    """Whether others may reach `peer` although nodes speak without TLS with each other."""
    join: bool = False
    is_peer_given: bool = True
    log_level: str = "info"
    log_format: str = "text"
    otlp_endpoint: str = ""
    """The URL of a collector of traces; without it nothing is recorded."""
    trace_share: float = 0.0
    """Of calls that bring no `traceparent`, the share that is recorded."""
    misspelled: tuple[str, ...] = field(default=(), repr=False)
    """What was found wrong with variables that are nearly those of settings."""
    secret_file: Path | None = None
    """Where the secret was read from; it is read again when it changes."""
    rotation: Secrets | None = field(default=None, repr=False)
    """What the file says, if the secret is being exchanged: the current one is `secret`."""
    tls_cert: Path | None = None
    """The certificate that clients are shown; without it they are served without TLS."""
    tls_key: Path | None = None
    tls: str = "require"
    """Whether clients must speak TLS (`require`), or may still speak plain HTTP as well (`accept`)."""
    tls_client_ca: Path | None = None
    """The authorities of which one must have signed the certificate of each client."""
    tls_revoked: Path | None = None
    """The certificates of clients that count no longer."""
    peer_cert: Path | None = None
    """The certificate that this node shows its peers; without it links have no TLS."""
    peer_key: Path | None = None
    peer_ca: Path | None = None
    """The authorities of which one must have signed the certificate of each peer."""
    peer_revoked: Path | None = None
    """The certificates of peers that count no longer."""
    peer_tls: str = "off"
    """How far the cluster has gone to links with TLS (peers/peer_tls.py): `require`, or a step before."""
    tokens: Path | None = None
    """Who may call, and what they may do where; without it everybody may do everything."""

    def __post_init__(self) -> None:
        """Refuse what is out of bounds or does not fit together."""
        check_node_id("node_id", self.node_id)
        self._check_peers()
        self._check_secret()
        _check_url(self.advertise_http)
        for setting, (smallest, largest) in _RANGES.items():
            value = getattr(self, setting)
            if not smallest <= value <= largest:
                raise WrongValueError(setting, value, f"must be {smallest} to {largest}")
        for setting, words in _WORDS.items():
            if getattr(self, setting) not in words:
                raise WrongValueError(setting, getattr(self, setting), f"must be one of {', '.join(words)}")
        if 0 < self.state_bytes_max < STATE_BYTES_LEAST:
            allowed = f"must be 0 (by the available memory), or {STATE_BYTES_LEAST} or more"
            raise WrongValueError("state_bytes_max", self.state_bytes_max, allowed)
        self._check_elections()
        self._check_tls()
        self._check_traces()

    def _check_peers(self) -> None:
        """Refuse a cluster that is empty, or that this node is not part of."""
        told = format_peers(self.peers)
        for node_id in self.peers:
            check_node_id("peers", node_id)
        if self.join and not set(self.peers) - {self.node_id}:
            raise WrongValueError("peers", told, "must name the members of the cluster that this node joins")
        if self.peers and self.node_id not in self.peers and not self.join:
            raise WrongValueError("peers", told, f"must name this node too, node_id {self.node_id!r}")
        if len(self.peers) > NODES_COUNT_MAX:
            raise WrongValueError("peers", told, f"must name 1 to {NODES_COUNT_MAX} nodes")
        if len(set(self.peers.values())) < len(self.peers):
            raise WrongValueError("peers", told, "two nodes cannot have the same address")
        if not self.is_single and not all(address.port for address in self.peers.values()):
            raise WrongValueError("peers", told, "a port of 0 is for a single node only")

    def _check_secret(self) -> None:
        """Refuse a secret that can be guessed; a node of its own needs none."""
        if self.secret and len(self.secret) < SECRET_BYTES_MIN:
            shown = f"<{len(self.secret)} bytes>"
            raise WrongValueError("secret", shown, f"must have {SECRET_BYTES_MIN} bytes or more")
        if not self.is_single and not self.secret:
            raise WrongValueError("secret", "", "the nodes of a cluster need one, the same on all of them")

    def _check_elections(self) -> None:
        """Refuse elections that one lost heartbeat could start, or that all nodes would start at once."""
        least = 3 * self.heartbeat_ms
        if self.election_ms_min <= least:
            allowed = f"must be above 3 * heartbeat_ms = {least}"
            raise WrongValueError("election_ms_min", self.election_ms_min, allowed)
        if self.election_ms_max <= self.election_ms_min:
            allowed = f"must be above election_ms_min = {self.election_ms_min}"
            raise WrongValueError("election_ms_max", self.election_ms_max, allowed)

    def _check_tls(self) -> None:
        """Refuse half of what TLS needs: nobody asked for it to be served without."""
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_key" if self.tls_key is None else "tls_cert"
            raise WrongValueError(missing, "", "a certificate and its key are given together")
        if self.tls_client_ca is not None and self.tls_cert is None:
            raise WrongValueError("tls_client_ca", str(self.tls_client_ca), "needs tls_cert and tls_key")
        if self.tls == "accept":
            self._check_tls_accept()
        if self.tls_cert is not None and self.http is None:
            raise WrongValueError(
                "tls_cert", str(self.tls_cert), "needs a HOST:PORT in http: that speaks TLS"
            )
        if self.http_unix is not None and self.tls_client_ca is not None and self.tokens is None:
            allowed = (
                "needs tokens, since tls_client_ca is given: nobody shows a certificate at a Unix socket"
            )
            raise WrongValueError("http", unix_path.url_of(self.http_unix), allowed)
        if self.tls_revoked is not None and self.tls_client_ca is None:
            raise WrongValueError("tls_revoked", str(self.tls_revoked), "needs tls_client_ca")
        missing_files = [setting for setting in _PEER_FILES if getattr(self, setting) is None]
        if missing_files and len(missing_files) < len(_PEER_FILES):
            raise WrongValueError(missing_files[0], "", f"{', '.join(_PEER_FILES)} are given together")
        if missing_files and self.peer_tls != "off":
            raise WrongValueError("peer_tls", self.peer_tls, f"needs {', '.join(_PEER_FILES)}")
        if missing_files and self.peer_revoked is not None:
            raise WrongValueError("peer_revoked", str(self.peer_revoked), f"needs {', '.join(_PEER_FILES)}")

    def _check_tls_accept(self) -> None:
        """Refuse the step towards TLS where there is none, or where it would let strangers in."""
        if self.tls_cert is None:
            raise WrongValueError("tls", self.tls, "needs tls_cert and tls_key")
        if self.tls_client_ca is not None and self.tokens is None:
            allowed = "needs tokens, since tls_client_ca is given: nobody shows a certificate over plain HTTP"
            raise WrongValueError("tls", self.tls, allowed)

    def _check_traces(self) -> None:
        """Refuse a collector that cannot be one, and a share of nothing."""
        if self.otlp_endpoint:
            _check_collector(self.otlp_endpoint)
        if not 0 <= self.trace_share <= 1:
            raise WrongValueError("trace_share", self.trace_share, "must be a number of 0 to 1")
        if self.trace_share and not self.otlp_endpoint:
            raise WrongValueError("trace_share", self.trace_share, "needs otlp_endpoint")

    @property
    def requires_tls(self) -> bool:
        """Whether clients are served over TLS only, but for those at a Unix socket."""
        return self.tls_cert is not None and self.tls == "require"

    @property
    def requires_peer_tls(self) -> bool:
        """Whether nothing is said between this node and its peers without TLS.

        Frames alone are sealed, and not encrypted; while a cluster goes over to TLS, some links have none.
        """
        return self.peer_tls == "require"

    @property
    def is_single(self) -> bool:
        """Whether this node begins as a cluster of its own."""
        return len(self.peers) <= 1 and not self.join

    @property
    def takes_peers(self) -> bool:
        """Whether this node listens for others: a cluster of one does if it has all that growing needs."""
        return not self.is_single or (bool(self.secret) and self.peer.port != 0)

    @property
    def secrets(self) -> Secrets:
        """Return the secrets that this node accepts."""
        return self.rotation or Secrets(self.secret)

    @property
    def hosts(self) -> tuple[str, ...]:
        """Return the names by which clients may call this node: those that its configuration has."""
        own = [address.host for address in (self.http, self.redis, self.peer) if address is not None]
        advertised = urllib.parse.urlsplit(self.advertise_http).hostname or ""
        return (*self.allow_hosts, *own, advertised, *(address.host for address in self.peers.values()))

    @property
    def founders(self) -> "Mapping[str, Address]":
        """Return the nodes that a new cluster begins with, and where they listen for each other."""
        return self.peers or {self.node_id: self.peer}

    @property
    def shown(self) -> dict[str, str]:
        """Return the settings as texts, without the secrets: their fields have no repr."""
        return {each.name: _shown(getattr(self, each.name)) for each in fields(self) if each.repr}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is allowed but hardly meant, for the log."""
        found = list(self.misspelled)
        count = len(self.peers)
        if count > 1 and count % 2 == 0 and not self.join:
            found.append(f"peers: {count} nodes survive no more failures than {count - 1}; use an odd number")
        if self.peer_cert is not None and self.peer_tls == "off":
            found.append("peer_tls: off: peer_cert, peer_key and peer_ca are not used")
        if self.requires_tls and urllib.parse.urlsplit(self.advertise_http).scheme == "http":
            found.append(
                f"advertise_http: {self.advertise_http}: this node speaks only TLS: should it be https://?"
            )
        return tuple(found)


def check_member(node_id: str, peer: str) -> Address:
    """Return the address of a node to be added. Raises WrongValueError about `id` or `peer`."""
    check_node_id("id", node_id)
    address = _parse_address("peer", peer)
    if not address.port:
        raise WrongValueError("peer", peer, "needs a port above 0: the other nodes connect to it")
    if address.host in _WILDCARDS:
        raise WrongValueError("peer", peer, "must be an address that the other nodes can reach")
    return address


def check_node_id(setting: str, node_id: str) -> str:
    """Return `node_id` if it can be one. Raises WrongValueError."""
    if not _NODE_ID.fullmatch(node_id):
        allowed = "a node id is 1 to 63 letters, digits, '.', '_' or '-', and starts with a letter or digit"
        raise WrongValueError(setting, node_id, allowed)
    return node_id


class NodePlace(NamedTuple):
    """Which node, where its data are, and which nodes its cluster has, if that was given."""

    node_id: str
    data_dir: Path
    peers: Mapping[str, Address]


def load_place(argv: Sequence[str], environ: Mapping[str, str]) -> NodePlace:
    """Return what a configuration says of a node's place, which alone is looked at. Raises ConfigError."""
    given = collect(argv, environ)
    return _told(given, _place)


def load(argv: Sequence[str], environ: Mapping[str, str]) -> NodeConfig:
    """Return the configuration. Raises ConfigError; --help and --version print and exit.

    Args:
        argv: the flags, without the program's name.
        environ: the environment; only HOLDFAST_* is looked at.
    """
    given = collect(argv, environ)
    return dataclasses.replace(_told(given, _build), misspelled=misspelled(environ))


def _told(given: Mapping[str, Given], build: Callable[[Mapping[str, Given]], _T]) -> _T:
    """Return what is built of texts; say of a wrong one where it came from."""
    try:
        return build(given)
    except WrongValueError as wrong:
        source = given.get(wrong.setting)
        if source is None and wrong.setting == "secret":
            source = given.get("secret_file")
        origin = source.origin if source else "default"
        raise WrongValueError(wrong.setting, wrong.value, wrong.allowed, origin) from None


def format_peers(peers: Mapping[str, Address | str]) -> str:
    """Write `peers` as the flag takes them."""
    return ",".join(f"{node_id}={address}" for node_id, address in peers.items())


def _shown(value: object) -> str:
    """Return the value of a setting as a text, empty if there is none."""
    if isinstance(value, Mapping):
        return format_peers(value)
    if isinstance(value, bool):
        return str(value).lower()
    is_list = isinstance(value, tuple) and not isinstance(value, Address)
    return ",".join(value) if is_list else "" if value is None else str(value)  # type: ignore[arg-type]


def _place(given: Mapping[str, Given]) -> NodePlace:
    """Turn texts into a NodePlace. Raises WrongValueError."""
    node_id = check_node_id("node_id", given["node_id"].text if "node_id" in given else "n1")
    peers = _parse_peers(given["peers"].text) if "peers" in given else {}
    if peers and node_id not in peers:
        raise WrongValueError("peers", format_peers(peers), f"must name this node too, node_id {node_id!r}")
    if len(peers) > NODES_COUNT_MAX:
        raise WrongValueError("peers", format_peers(peers), f"must name 1 to {NODES_COUNT_MAX} nodes")
    if len(set(peers.values())) < len(peers):
        raise WrongValueError("peers", format_peers(peers), "two nodes cannot have the same address")
    for peer_id, address in peers.items():
        check_node_id("peers", peer_id)
        if not address.port or address.host in _WILDCARDS:
            raise WrongValueError("peers", str(address), "must be an address that the other nodes can reach")
    data_dir = given["data_dir"].text if "data_dir" in given else DATA_DIR
    if not data_dir:
        raise WrongValueError("data_dir", data_dir, "must name a directory")
    return NodePlace(node_id, Path(data_dir), peers)


def _build(given: Mapping[str, Given]) -> NodeConfig:
    """Turn texts into a NodeConfig. Raises WrongValueError."""

    def text(setting: str, default: str) -> str:
        return given[setting].text if setting in given else default

    node_id = text("node_id", "n1")
    peers = _parse_peers(text("peers", ""))
    peer = _parse_address("peer", text("peer", str(peers.get(node_id, "127.0.0.1:7800"))))
    http, http_unix = _parse_http(text("http", "127.0.0.1:7700"))
    join = _parse_switch("join", text("join", "false"))
    data_dir = text("data_dir", DATA_DIR)
    if not data_dir:
        raise WrongValueError("data_dir", data_dir, "must name a directory")
    secrets = _secrets(given)
    # The rest keeps the defaults of NodeConfig where nothing is given.
    rest: dict[str, Any] = {name: _parse_number(name, given[name].text) for name in NUMBERS if name in given}
    rest |= {name: given[name].text for name in _WORDS if name in given}
    rest |= {name: _parse_fraction(name, given[name].text) for name in FRACTIONS if name in given}
    rest |= {name: _parse_file(name, given[name].text) for name in _FILES if name in given}
    if "peer_cert" in given:
        rest.setdefault("peer_tls", "require")
    return NodeConfig(
        node_id=node_id,
        data_dir=Path(data_dir),
        http=http,
        http_unix=http_unix,
        peer=peer,
        is_peer_given="peer" in given or node_id in peers,
        peers=peers,
        secret=secrets.current,
        secret_file=Path(given["secret_file"].text) if "secret_file" in given else None,
        rotation=secrets if secrets.other else None,
        join=join,
        insecure_http=_parse_switch("insecure_http", text("insecure_http", "false")),
        redis=_parse_address("redis", given["redis"].text) if "redis" in given else None,
        insecure_redis=_parse_switch("insecure_redis", text("insecure_redis", "false")),
        insecure_peers=_parse_switch("insecure_peers", text("insecure_peers", "false")),
        allow_hosts=_parse_list("allow_host", text("allow_host", ""), _ALLOWED_HOST, "a name, .DOMAIN or *"),
        allow_origins=_parse_list(
            "allow_origin", text("allow_origin", ""), _ALLOWED_ORIGIN, "SCHEME://HOST[:PORT], null or *"
        ),
        otlp_endpoint=text("otlp_endpoint", ""),
        allow_no_deadline=_parse_prefixes("allow_no_deadline", text("allow_no_deadline", "")),
        allow_priority=_parse_prefixes("allow_priority", text("allow_priority", "")),
        advertise_http=text(
            "advertise_http",
            _reachable_url(http, http_unix, peers.get(node_id), has_tls="tls_cert" in given),
        ).rstrip("/"),
        **rest,
    )


def _parse_http(text: str) -> tuple[Address | None, Path | None]:
    """Read where clients come: a HOST:PORT, a Unix socket, or one of each with a comma between them."""
    parts = [part.strip() for part in text.split(",")]
    paths = [_parse_unix("http", part) for part in parts if unix_path.is_unix(part)]
    addresses = [_parse_address("http", part) for part in parts if not unix_path.is_unix(part)]
    if len(addresses) > 1 or len(paths) > 1:
        raise WrongValueError("http", text, "must be one HOST:PORT, one unix:/PATH, or one of each")
    return next(iter(addresses), None), next(iter(paths), None)


def _parse_unix(setting: str, text: str) -> Path:
    try:
        return unix_path.parse(text)
    except ValueError as exc:
        raise WrongValueError(setting, text, str(exc)) from None


def _parse_address(setting: str, text: str) -> Address:
    try:
        address = Address.parse(text)
    except ValueError as exc:
        raise WrongValueError(setting, text, str(exc)) from None
    if not address.host.isprintable() or any(
        not 0 < len(label) <= _LABEL_CHARS_MAX for label in _labels(address.host)
    ):
        raise WrongValueError(setting, text, "must be HOST:PORT with the name or address of a host")
    return address


def _labels(host: str) -> list[str]:
    """Return the parts of a host name. One dot at its end says that it is complete."""
    return host.removesuffix(".").split(".")


def _parse_peers(text: str) -> dict[str, Address]:
    """Read "n1=host:port,n2=host:port"."""
    peers: dict[str, Address] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        node_id, equals, address = part.partition("=")
        if not equals:
            raise WrongValueError("peers", part, "must be ID=HOST:PORT, separated by commas")
        if node_id in peers:
            raise WrongValueError("peers", text, f"names {node_id!r} twice")
        peers[node_id] = _parse_address("peers", address)
    return peers


def _parse_list(setting: str, text: str, allowed: re.Pattern[str], what: str) -> tuple[str, ...]:
    """Read what is separated by commas."""
    parts = tuple(filter(None, (part.strip() for part in text.split(","))))
    for part in parts:
        if not allowed.fullmatch(part):
            raise WrongValueError(setting, text, f"{part!r} must be {what}")
    return parts


def _parse_prefixes(setting: str, text: str) -> tuple[str, ...]:
    """Read names of which each stands for itself and all below it."""
    return _parse_list(setting, text, _ALLOWED_PREFIX, "a name without a slash at its end, or *")


def _parse_number(setting: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX):
        raise WrongValueError(setting, text, "must be a whole number")
    return int(text)


def _parse_fraction(setting: str, text: str) -> float:
    if not _FRACTION.fullmatch(text):
        raise WrongValueError(setting, text, "must be a number of 0 to 1, such as 0.01")
    return float(text)


def _parse_switch(setting: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise WrongValueError(setting, text, "must be true or false")
    return text == "true"


def _secrets(given: Mapping[str, Given]) -> Secrets:
    """Return the secrets; the current one is empty when there is none."""
    if "secret" in given:
        return Secrets(given["secret"].text.encode("utf-8", "surrogateescape"))
    if "secret_file" not in given:
        return Secrets(b"")
    path = given["secret_file"].text
    try:
        return config_secrets.read(Path(path))
    except SecretsUnreadable as error:
        raise WrongValueError("secret_file", path, str(error)) from None


def _parse_file(setting: str, text: str) -> Path:
    if not text:
        raise WrongValueError(setting, text, "must name a file")
    return Path(text)


def _reachable_url(http: Address | None, unix: Path | None, own: Address | None, *, has_tls: bool) -> str:
    """Return the URL of `http`; when that listens everywhere, with our host among the peers."""
    if http is None:
        assert unix is not None, "a node listens somewhere"
        return unix_path.url_of(unix)
    host = http.host
    if host in _WILDCARDS:
        host = own.host if own is not None and own.host not in _WILDCARDS else "127.0.0.1"
    return f"{'https' if has_tls else 'http'}://{Address(host, http.port)}"


def _check_collector(url: str) -> None:
    """Refuse what nothing could be sent to; credentials go into headers, not into a URL that logs show."""
    try:
        parts = urllib.parse.urlsplit(url)
        has_port = parts.port is None or parts.port > 0  # raises ValueError when it is not a port
    except ValueError:
        has_port, parts = False, urllib.parse.urlsplit("")
    is_url = parts.scheme in ("http", "https") and parts.hostname and has_port
    if not is_url or parts.username is not None or parts.query or parts.fragment:
        shown = url if "@" not in url else "<hidden>"
        allowed = "must be http://HOST:PORT or https://HOST:PORT, with a path if the collector has one"
        raise WrongValueError("otlp_endpoint", shown, allowed)


def _check_url(url: str) -> None:
    """Refuse what clients could not put a path behind."""
    if unix_path.is_unix(url):
        _parse_unix("advertise_http", url)
        return
    try:
        parts = urllib.parse.urlsplit(url)
        port = parts.port or 0  # raises ValueError when it is not a port
    except ValueError:
        parts, port = None, 0
    is_base = parts and not (parts.path or parts.query or parts.fragment or parts.username)
    if not (parts and is_base and parts.scheme in ("http", "https") and parts.hostname and port >= 0):
        raise WrongValueError(
            "advertise_http", url, "must be http://HOST:PORT, https://HOST:PORT or unix:/PATH"
        )
