"""A client from one URL, as configuration files have it: the nodes in the URL, all else as keywords."""

import os
from typing import Final, TypedDict
from urllib.parse import urlsplit

from holdfast.operations.node_urls import is_unix
from holdfast.transport.tls import Tls
from holdfast.values.durations import Seconds
from holdfast.values.metrics import Metrics

_SCHEMES: Final = {"holdfast": "http", "holdfasts": "https", "http": "http", "https": "https"}


class ClientOptions(TypedDict, total=False):
    """The keywords of a client. See `Client`."""

    timeout: Seconds
    owner: str | None
    tls: Tls | None
    metrics: Metrics | None
    token: str | None
    token_file: str | os.PathLike[str] | None
    insecure_plain_token: bool
    stream: bool


def urls_of(url: str) -> list[str]:
    """Return the URLs of the nodes that one URL names. Raises ValueError."""
    if is_unix(url):
        return [url]
    parts = urlsplit(url)
    scheme = _SCHEMES.get(parts.scheme)
    if scheme is None or not parts.netloc:
        raise ValueError(f"{url!r} is not the URL of a cluster; write it like holdfast://10.0.0.1,10.0.0.2")
    if "@" in parts.netloc or parts.query or parts.path.strip("/"):
        raise ValueError(
            "the URL of a cluster has hosts and ports only: token=, token_file= and all else are keywords"
        )
    return [_node(scheme, host.strip()) for host in parts.netloc.split(",") if host.strip()]


def _node(scheme: str, host: str) -> str:
    has_port = host.rpartition("]")[2].count(":") == 1
    return f"{scheme}://{host}" if has_port else f"{scheme}://{host}:7700"
