"""Where settings come from: flags, HOLDFAST_* variables, a TOML file. Texts, with their origin.

Flags win over variables, variables over the file. cluster/config.py parses the texts.
"""

import argparse
import difflib
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from cluster.build import this_build
from cluster.errors import ConfigError

NUMBERS: Final = frozenset(
    {
        "heartbeat_ms",
        "election_ms_min",
        "election_ms_max",
        "compact_entries",
        "request_timeout_ms",
        "head_timeout_ms",
        "idle_timeout_ms",
        "connections_per_address",
        "requests_per_second",
        "state_bytes_max",
    }
)
"""The settings that are whole numbers."""
FRACTIONS: Final = frozenset({"trace_share"})
"""The settings that are numbers of 0 to 1."""
SWITCHES: Final = frozenset({"join", "insecure_http", "insecure_peers", "insecure_redis"})
"""The settings that are true or false. All others are strings."""

LISTS: Final = frozenset({"http", "allow_no_deadline", "allow_priority"})
"""The settings whose flag may be given several times; otherwise commas separate the parts."""

# Every setting with its placeholder and help: flag --node-id, variable HOLDFAST_NODE_ID, key node_id.
_SETTINGS: Final[dict[str, tuple[str, str]]] = {
    "node_id": ("ID", "name of this node, unique and never reused (default: n1)"),
    "data_dir": ("DIR", "directory for the files of this node alone (default: ./holdfast-data)"),
    "http": (
        "HOST:PORT | unix:/PATH",
        "listen here for clients, at an address, a Unix socket or one of each (default: 127.0.0.1:7700)",
    ),
    "redis": ("HOST:PORT", "listen here for lock clients of Redis (default: none; see docs/faces.md)"),
    "peer": ("HOST:PORT", "listen here for other nodes (default: own entry of --peers, or 127.0.0.1:7800)"),
    "peers": ("ID=HOST:PORT,...", "all nodes of the cluster, including this one (default: a single node)"),
    "join": ("", "join a running cluster, to which this node is being added; see `holdfast cluster add`"),
    "secret": ("TEXT", "secret of all nodes, 16 bytes or more; other users of the machine can see flags"),
    "secret_file": ("FILE", "read the secret from this file; a newline at its end is ignored"),
    "advertise_http": ("URL", "URL that clients use for this node (default: made from --http)"),
    "tls_cert": ("FILE", "speak only TLS 1.3 with clients, with the certificates in this file (PEM)"),
    "tls_key": ("FILE", "the private key of that certificate (PEM)"),
    "tls": (
        "STEP",
        "accept or require: while clients go over to TLS, accept plain HTTP too (default: require)",
    ),
    "tls_client_ca": (
        "FILE",
        "accept only clients with a certificate signed by one of these authorities (PEM)",
    ),
    "tls_revoked": ("FILE", "refuse clients whose certificate has one of these serial numbers"),
    "peer_cert": ("FILE", "speak TLS 1.3 with other nodes, with the certificates in this file (PEM)"),
    "peer_key": ("FILE", "the private key of that certificate (PEM)"),
    "peer_ca": ("FILE", "accept only nodes with a certificate signed by one of these authorities (PEM)"),
    "peer_revoked": ("FILE", "refuse nodes whose certificate has one of these serial numbers"),
    "peer_tls": (
        "STEP",
        "off, accept, dial or require: steps of a running cluster to TLS (default: require)",
    ),
    "tokens": (
        "FILE",
        "accept only the callers in this file, each with its rights; see `holdfast token --help`",
    ),
    "insecure_http": ("", "let other machines reach --http although there is no TLS, or no login"),
    "insecure_peers": (
        "",
        "let other machines reach --peer although nodes do not require TLS of each other",
    ),
    "insecure_redis": ("", "let other machines reach --redis although there is no TLS, or no login"),
    "heartbeat_ms": ("MS", "interval of the leader's heartbeats (default: 100)"),
    "election_ms_min": ("MS", "shortest silence after which a node wants to lead (default: 500)"),
    "election_ms_max": ("MS", "longest such silence (default: 1000)"),
    "compact_entries": ("COUNT", "entries in the journal before it is compacted (default: 20000)"),
    "request_timeout_ms": ("MS", "answer within this time, not counting waits in queues (default: 5000)"),
    "head_timeout_ms": ("MS", "the head of a request must come within this time (default: 10000)"),
    "idle_timeout_ms": (
        "MS",
        "close a connection after this time without a request (default: 75000)",
    ),
    "connections_per_address": ("COUNT", "connections that one address may have (default: half of all)"),
    "requests_per_second": (
        "COUNT",
        "requests a second from one principal, or without --tokens one address (default: any number)",
    ),
    "allow_host": ("NAME,...", "answer to these names, .DOMAIN for all below, * for any (default: own ones)"),
    "allow_origin": (
        "ORIGIN,...",
        "web pages that may call, such as https://admin.example.com (default: its own)",
    ),
    "allow_no_deadline": (
        "PREFIX,...",
        "names below which holds may have no deadline, * for all (default: none); the same on all nodes",
    ),
    "allow_priority": (
        "PREFIX,...",
        "names below which requests may have a priority, * for all (default: none); the same on all nodes",
    ),
    "state_bytes_max": ("BYTES", "memory for the state (default: a quarter of the memory, up to 4 GiB)"),
    "otlp_endpoint": (
        "URL",
        "send traces to this collector (OTLP/HTTP), such as http://127.0.0.1:4318 (default: to none)",
    ),
    "trace_share": (
        "SHARE",
        "of calls that bring no traceparent, record this share, 0 to 1 (default: 0)",
    ),
    "log_level": ("LEVEL", "debug, info, warning or error (default: info)"),
    "log_format": ("FORMAT", "text (key=value) or json (default: text)"),
}

VARIABLE_PREFIX: Final = "HOLDFAST_"
_NEAR: Final = 0.8
"""How much alike, of 1, an unknown variable and one of a setting must be for the first to be a slip."""
_NO_SLIPS: Final = frozenset({"TOKEN", "SECRETS"})
"""Variables of what clients start, and of deploy/, that are nearly those of settings."""

_EPILOG: Final = """\
Each flag has a variable (--node-id: HOLDFAST_NODE_ID) and a key in the file (node_id = "n1").
Flags win over variables, variables over the file.

examples:
  one node, to try things:
    holdfast-node
  one of three nodes:
    holdfast-node --node-id n1 --data-dir /var/lib/holdfast --secret-file /etc/holdfast/secret \\
        --http 10.0.0.1:7700 --tls-cert n1.pem --tls-key n1-key.pem --tokens tokens \\
        --peer-cert n1-peer.pem --peer-key n1-peer-key.pem --peer-ca peers-ca.pem \\
        --peers n1=10.0.0.1:7800,n2=10.0.0.2:7800,n3=10.0.0.3:7800
  the same from a file:
    holdfast-node --config /etc/holdfast/node.toml

when a majority of the data is lost (see `holdfast-node restore --help` and `recover --help`):
  holdfast-node restore FILE               make a new cluster of a backup
  holdfast-node recover --data-dir DIR --into NEW_DIR
                                           make a new cluster of the directory that is left
"""


class WrongValueError(ConfigError):
    """A setting has a value that is not allowed."""

    def __init__(self, setting: str, value: object, allowed: str, origin: str = "") -> None:
        """Keep the parts, so that the origin can be added where it is known."""
        self.setting, self.value, self.allowed = setting, value, allowed
        super().__init__(f"{setting}: {value!r}{f' ({origin})' if origin else ''}: {allowed}")


CHECK_CONFIG: Final = "--check-config"
"""The flag with which a node does not start, and says whether it could."""
DIAL: Final = "--dial"
"""The flag with which it dials its peers, too."""


class Given(NamedTuple):
    """The text of a setting, and where it was found."""

    text: str
    origin: str


def collect(argv: Sequence[str], environ: Mapping[str, str]) -> dict[str, Given]:
    """Return every setting that was given. Raises ConfigError; --help and --version print and exit."""
    flags = vars(_parser().parse_args(argv))
    if flags.pop("dial") and not flags["check_config"]:
        raise ConfigError(f"{DIAL}: goes with {CHECK_CONFIG}; see holdfast-node --help")
    flags.pop("check_config")
    config_file = flags.pop("config") or environ.get(f"{VARIABLE_PREFIX}CONFIG")
    layers = [
        _from_file(Path(config_file)) if config_file else {},
        {
            setting: Given(environ[variable], f"variable {variable}")
            for setting in _SETTINGS
            if (variable := f"{VARIABLE_PREFIX}{setting.upper()}") in environ
        },
        {
            name: Given(",".join(text) if name in LISTS else text, f"flag {_flag(name)}")
            for name, text in flags.items()
            if text is not None
        },
    ]
    given: dict[str, Given] = {}
    for layer in layers:
        if "secret" in layer and "secret_file" in layer:
            both = f"{layer['secret'].origin} and {layer['secret_file'].origin}"
            raise ConfigError(f"secret: given twice ({both}): choose one")
        if "secret" in layer or "secret_file" in layer:
            given.pop("secret", None)
            given.pop("secret_file", None)
        given |= layer
    return given


def misspelled(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence about each variable that is none of a setting, and nearly one."""
    known = [*(setting.upper() for setting in _SETTINGS), "CONFIG"]
    names = [
        variable.removeprefix(VARIABLE_PREFIX)
        for variable in sorted(environ)
        if variable.startswith(VARIABLE_PREFIX)
    ]
    found = []
    for name in names:
        near = difflib.get_close_matches(name, known, 1, _NEAR)
        if near and name not in {*known, *_NO_SLIPS}:
            found.append(
                f"{VARIABLE_PREFIX}{name}: no such variable, so nothing was done with it; did you mean"
                f" {VARIABLE_PREFIX}{near[0]}?"
            )
    return tuple(found)


def _from_file(path: Path) -> dict[str, Given]:
    """Read settings from a TOML file. Raises ConfigError, also for keys that are not settings."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise ConfigError(f"config: {str(path)!r}: cannot be read: {exc.strerror}") from None
    except ValueError as exc:
        raise ConfigError(f"config: {str(path)!r}: is not a TOML file: {exc}") from None
    settings = {}
    for key, value in table.items():
        origin = f"key {key} in {path}"
        if key not in _SETTINGS:
            # Without its value: it may be a misspelled secret.
            near = difflib.get_close_matches(key, _SETTINGS, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(_SETTINGS)}"
            raise ConfigError(f"{origin}: no such setting{hint}")
        settings[key] = Given(_file_text(key, value, origin), origin)
    return settings


def _file_text(key: str, value: object, origin: str) -> str:
    """Return a value of the file as a flag would say it. `peers` may be a table."""
    if key == "peers" and isinstance(value, dict):
        return ",".join(f"{node_id}={address}" for node_id, address in value.items())
    if key in NUMBERS and (not isinstance(value, int) or isinstance(value, bool)):
        raise WrongValueError(key, value, "must be a whole number", origin)
    if key in FRACTIONS and (not isinstance(value, int | float) or isinstance(value, bool)):
        raise WrongValueError(key, value, "must be a number of 0 to 1", origin)
    if key in SWITCHES and not isinstance(value, bool):
        raise WrongValueError(key, value, "must be true or false", origin)
    if key not in NUMBERS | FRACTIONS | SWITCHES and not isinstance(value, str):
        raise WrongValueError(key, "<hidden>" if key == "secret" else value, "must be a string", origin)
    return str(value).lower() if key in SWITCHES else str(value)


class _Parser(argparse.ArgumentParser):
    """A parser that raises instead of ending the process."""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        raise ConfigError(f"{message}; see holdfast-node --help")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="holdfast-node",
        description="Run one node of a Holdfast cluster, a distributed lock service.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--config", metavar="FILE", help="read settings from this TOML file")
    for setting, (metavar, text) in _SETTINGS.items():
        if setting in SWITCHES:
            parser.add_argument(_flag(setting), dest=setting, action="store_const", const="true", help=text)
        elif setting in LISTS:
            parser.add_argument(_flag(setting), dest=setting, action="append", metavar=metavar, help=text)
        else:
            parser.add_argument(_flag(setting), dest=setting, metavar=metavar, help=text)
    parser.add_argument(
        CHECK_CONFIG,
        action="store_true",
        help="start nothing and change nothing: check all that a start needs with these settings, say what is"
        " wrong, and end with 0 if it could start, else with 2",
    )
    parser.add_argument(
        DIAL, action="store_true", help=f"with {CHECK_CONFIG}: see who answers at --peers and --otlp-endpoint"
    )
    parser.add_argument("--version", action="version", version=f"holdfast-node {this_build().version}")
    return parser


def _flag(setting: str) -> str:
    return "--" + setting.replace("_", "-")
