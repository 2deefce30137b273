"""Where the nodes of a cluster are: their URLs as callers give them, and what is made of these. No I/O."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

NODES_VARIABLE = "HOLDFAST_NODES"
"""The environment variable that names the nodes, separated by commas."""
DEFAULT_PORT = 7700
"""The port that a node listens on for clients unless it is told another one."""
EXAMPLE_NODE = f"http://127.0.0.1:{DEFAULT_PORT}"
EXAMPLE_SOCKET = "unix:/run/holdfast.sock"
DEFAULT_NODES = ",".join(f"127.0.0.1:{DEFAULT_PORT + i}" for i in range(3))
"""One node on this machine with its default port, or three as `scripts/cluster up` starts them."""
_UNIX = "unix:"
_OVER_SOCKET = "http://localhost"
"""What requests over a Unix socket are addressed to: a node knows itself by this name."""


def node_urls(
    nodes: str | Iterable[str] | None, environment: Mapping[str, str], *, has_tls: bool = False
) -> tuple[str, ...]:
    """Return the URLs of nodes, without a slash at the end.

    They are given as a list or as one string with commas; None means what HOLDFAST_NODES says, and without it
    the nodes on this machine. HOST:PORT and HOST are short for a URL: of https if the client `has_tls`.
    `unix:/PATH` is the Unix socket of a node on this machine.
    Raises ValueError.
    """
    if nodes is None:
        nodes = environment.get(NODES_VARIABLE) or DEFAULT_NODES
    if isinstance(nodes, str):
        nodes = [node for node in nodes.split(",") if node.strip()]
    urls = tuple(_node_url(node.strip(), "https" if has_tls else "http") for node in nodes)
    if not urls:
        raise ValueError(f"nodes: name at least one, such as {EXAMPLE_NODE}")
    return urls


def only_plain(urls: Iterable[str]) -> str:
    """Return the first URL without TLS of a host that has none with it; empty if there is none.

    A node that is to go over to TLS has both until it has done so. Unix sockets need none.
    """
    parts = {url: urlsplit(url) for url in urls if not is_unix(url)}
    hosts = {each.hostname for each in parts.values() if each.scheme == "https"}
    return next((url for url, each in parts.items() if each.hostname not in hosts), "")


def _node_url(node: str, scheme: str) -> str:
    """Return the URL of one node. Raises ValueError."""
    if is_unix(node):
        return _unix_url(node)
    is_short = "://" not in node
    url = (f"{scheme}://{node}" if is_short else node).rstrip("/")
    try:
        parts = urlsplit(url)
        is_whole = url.split() == [url] and parts.hostname
        if parts.scheme in ("http", "https") and is_whole and parts.port != 0:
            return url if parts.port or not is_short else f"{url}:{DEFAULT_PORT}"
    except ValueError:
        """The port is not a number; below."""
    raise ValueError(f"{node!r} is not the URL of a node; write it like {EXAMPLE_NODE}")


def _unix_url(node: str) -> str:
    """Return the URL of a Unix socket. Raises ValueError."""
    path = node.removeprefix(_UNIX)
    if not path.startswith("/") or path.endswith("/") or node.split() != [node] or "," in node:
        raise ValueError(
            f"{node!r} is not the URL of a node: write unix: and the path of its socket, which begins with a"
            f" slash and has no spaces and commas, like {EXAMPLE_SOCKET}"
        )
    return node


def is_unix(url: str) -> bool:
    """Whether a URL is meant to be that of a Unix socket."""
    return url.startswith(_UNIX)


def socket_path(url: str) -> str:
    """Return the path of the Unix socket at which a node listens; empty if it has an address."""
    return url.removeprefix(_UNIX) if is_unix(url) else ""


def request_url(url: str, path: str) -> str:
    """Return the URL of a request to a node, whose connection is made to its address or its socket."""
    return f"{_OVER_SOCKET if is_unix(url) else url}{path}"
