"""Whether other machines can reach an address that a node listens on, and whether it may start then.

The bound addresses decide, whatever a name, a wildcard or an advertised URL says. An address without TLS,
or without a login, is open only if the operator allowed it.
"""

import ipaddress
from collections.abc import Sequence

from cluster.config import Address
from cluster.errors import ConfigError

_CLIENTS_LACK = {
    (False, False): (
        "there is no TLS and no login: anybody that reaches this address may take and release every lock and"
        " change the members"
    ),
    (False, True): "there is no TLS: anybody on the path to this address can read tokens, and use them",
    (True, False): (
        "there is no login: anybody that reaches this address may take and release every lock and change the"
        " members"
    ),
}
"""By whether a node has TLS, and knows its callers."""
_CLIENTS_NEED = {
    (False, False): "--tls-cert and --tls-key, and --tokens or --tls-client-ca",
    (False, True): "--tls-cert and --tls-key",
    (True, False): "--tokens or --tls-client-ca",
}


def check_clients(
    bound: Sequence[Address],
    *,
    has_tls: bool,
    has_principals: bool,
    is_allowed: bool,
    setting: str = "http",
) -> str:
    """Return a warning about the addresses for clients; empty if none is needed.

    Args:
        bound: the addresses that were bound.
        has_tls: whether clients must use TLS.
        has_principals: whether callers must identify themselves, by a token or a certificate.
        is_allowed: whether the operator allows the addresses to be open.
        setting: the setting that has the addresses, http or redis.

    Raises ConfigError if other machines can reach them, and something is missing and not allowed.
    """
    has = has_tls, has_principals
    if has == (True, True):
        return ""
    return _check(setting, bound, _CLIENTS_LACK[has], _CLIENTS_NEED[has], is_allowed=is_allowed)


def check_peers(bound: Sequence[Address], *, has_tls: bool, is_allowed: bool) -> str:
    """Return a warning about the addresses for other nodes; empty if none is needed.

    Arguments and errors: see `check_clients`.
    """
    if has_tls:
        return ""
    lack = (
        "there is no TLS between nodes: anybody on the path between two of them can read their traffic, and"
        " use the hold_ids and session_ids in it"
    )
    need = "--peer-cert, --peer-key and --peer-ca"
    return _check("peer", bound, lack, need, is_allowed=is_allowed)


def is_open(host: str) -> bool:
    """Whether other machines may reach a host. A name counts: it may resolve to any address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    # An IPv4 address mapped into IPv6: not every Python knows which of them are loopback.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return not (mapped or address).is_loopback


def _check(setting: str, bound: Sequence[Address], lack: str, need: str, *, is_allowed: bool) -> str:
    reached = ", ".join(str(address) for address in bound if is_open(address.host))
    if not reached:
        return ""
    if is_allowed:
        return f"{setting}: {reached}: {lack}; see docs/security.md"
    flag = {"http": "insecure-http", "redis": "insecure-redis", "peer": "insecure-peers"}[setting]
    variable = f"HOLDFAST_{flag.upper().replace('-', '_')}"
    raise ConfigError(
        f"{setting}: {reached}: other machines can reach this address, and {lack}. Either give it"
        f" {need}, or bind it to 127.0.0.1; or allow that by --{flag} ({variable}=true): see 'Safe defaults'"
        " in docs/security.md"
    )
