"""The commands of `holdfast cert`: certificates for clusters without an authority of their own."""

import argparse
import re
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final

from holdfast.cli.parsing import CommandParser
from holdfast.cli.printing import print_lines
from holdfast.values.whole_file import written

if TYPE_CHECKING:
    from holdfast.cli.certificates import Issued

CA_DAYS: Final = 3650
DAYS: Final = 365
DAYS_MAX: Final = 36_500

_CA: Final = "ca"
_PEER: Final = "-peer"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
"""A name is also the name of its files."""
_CERT_MODE: Final = 0o644


def add_parser(commands: CommandParser) -> None:
    """Describe the commands."""
    cert = commands.command(
        "cert",
        "make certificates for nodes and clients",
        description="Make a certificate authority of your own, and certificates for nodes and clients. Each"
        " command makes two files, NAME.pem and NAME-key.pem; keys are readable by their owner only. Needs no"
        " node.",
    )
    ca = cert.command(
        "ca", "make the authority: ca.pem, which everybody needs, and ca-key.pem, a secret", alone=run
    )
    ca.add_argument("--name", metavar="NAME", default="Holdfast", help="its name (default: Holdfast)")
    node = cert.command("node", "make the certificate of a node", alone=run)
    node.add_argument("name", metavar="NAME", type=_name, help="the node, such as n1; also names the files")
    node.add_argument(
        "hosts", metavar="HOST", nargs="+", help="a host name or address that clients will use for the node"
    )
    peer = cert.command(
        "peer",
        "make the certificate that a node shows to other nodes",
        alone=run,
        description="Make NAME-peer.pem and NAME-peer-key.pem, by which the nodes of a cluster know a node.",
    )
    peer.add_argument("name", metavar="NODE_ID", type=_name, help="the id of the node, such as n1")
    peer.add_argument(
        "--cluster",
        metavar="NAME",
        action="append",
        required=True,
        help="a name for the cluster, the same in the certificates of all its nodes, or its id; give it twice"
        " for both",
    )
    client = cert.command("client", "make the certificate of a client", alone=run)
    client.add_argument("name", metavar="NAME", type=_name, help="the client; also names the files")
    for kind, days in {ca: CA_DAYS, node: DAYS, peer: DAYS, client: DAYS}.items():
        kind.add_argument(
            "--days", metavar="N", type=_days, default=days, help=f"days until it expires (default: {days})"
        )
        kind.add_argument(
            "--dir", metavar="DIR", type=Path, default=Path(), help="where the files are (default: here)"
        )
        kind.add_argument("--force", action="store_true", help="replace existing files")


def run(arguments: argparse.Namespace) -> int:
    """Make the files and say which. Raises ValueError and OSError."""
    made = _load()
    directory: Path = arguments.dir
    name: str = _CA if arguments.action == "ca" else arguments.name
    # A node may have a certificate for its clients as well.
    stem = f"{name}{_PEER}" if arguments.action == "peer" else name
    cert, key = directory / f"{stem}.pem", directory / f"{stem}-key.pem"
    if not arguments.force:
        # Told before anything is made. That nothing is replaced is seen to when the files are written.
        for path in (cert, key):
            if path.exists():
                raise ValueError(f"{path} is there already: name another --dir, or replace it with --force")
    issued: Issued
    match arguments.action:
        case "ca":
            issued = made.new_authority(arguments.name, days=arguments.days)
        case "node":
            authority = _authority(made, directory)
            issued = made.for_node(authority, name, arguments.hosts, days=arguments.days)
        case "peer":
            authority = _authority(made, directory)
            issued = made.for_peer(authority, name, arguments.cluster, days=arguments.days)
        case _:
            issued = made.for_client(_authority(made, directory), name, days=arguments.days)
    directory.mkdir(parents=True, exist_ok=True)
    # The key first: without its certificate it is worth nothing, and a repetition says that it is there.
    # It is that of the inner block, which ends first.
    try:
        with (
            written(cert, _CERT_MODE, replaces=arguments.force) as new,
            written(key, replaces=arguments.force) as new_key,
        ):
            new.write(issued.certificate)
            new_key.write(issued.key)
    except FileExistsError as error:
        raise ValueError(
            f"{error.filename2 or error.filename} is there already: replace it with --force"
        ) from None
    print_lines([f"{cert} and {key}, until {made.end_of(issued.certificate):%Y-%m-%d}"])
    return 0


def _load() -> ModuleType:
    """Return what makes certificates. Raises ValueError if its package is missing."""
    try:
        from holdfast.cli import certificates  # noqa: PLC0415 - only these commands need cryptography
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "cryptography":
            raise
        advice = "`holdfast cert` needs the package cryptography: pip install 'holdfast-locks[cert]'"
        raise ValueError(advice) from None
    return certificates


def _authority(made: ModuleType, directory: Path) -> "Issued":
    """Read the authority of a directory. Raises ValueError."""
    try:
        issued: Issued = made.Issued(
            (directory / f"{_CA}.pem").read_bytes(), (directory / f"{_CA}-key.pem").read_bytes()
        )
    except FileNotFoundError as error:
        what = f"{error.filename} is not there: make an authority first, with `holdfast cert ca`"
        raise ValueError(what) from None
    return issued


def _name(text: str) -> str:
    """Read a name that files can have."""
    if not _NAME.fullmatch(text) or text in {_CA, f"{_CA}-key"} or text.endswith("-key"):
        raise argparse.ArgumentTypeError(
            f"{text!r}: a name has 1 to 63 letters, digits, '.', '_', '@' or '-', begins with a letter or"
            " digit, does not end in -key, and is another one than ca"
        )
    return text


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= DAYS_MAX):
        raise argparse.ArgumentTypeError(f"{text!r}: a number of days from 1 to {DAYS_MAX}")
    return int(text)
