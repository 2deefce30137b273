"""Who reaches an address that a node listens on, and whether it may start like that.

Decided on the addresses that were bound: whatever a name, a wildcard or an advertised URL says, these are
what others can reach. What is open without TLS, or to everybody, is open because somebody asked for that.
"""

import ipaddress
from collections.abc import Sequence

from cluster.config import Address
from cluster.errors import ConfigError

_CLIENTS_LACK = {
    (False, False): (
        "there is no TLS and no login: whoever reaches this address may take and release every lock and"
        " change the members"
    ),
    (False, True): "there is no TLS: whoever is on the path to this address can read tokens, and use them",
    (True, False): (
        "there is no login: whoever reaches this address may take and release every lock and change the"
        " members"
    ),
}
"""By whether a node has TLS, and knows its callers."""
_CLIENTS_NEED = {
    (False, False): "--tls-cert and --tls-key, and --tokens or --tls-client-ca",
    (False, True): "--tls-cert and --tls-key",
    (True, False): "--tokens or --tls-client-ca",
}


def check_clients(bound: Sequence[Address], *, has_tls: bool, has_principals: bool, is_allowed: bool) -> str:
    """Return what is to be warned of where a node listens for clients; empty if nothing is.

    Args:
        bound: the addresses that were bound.
        has_tls: whether clients need TLS.
        has_principals: whether callers have to be known, by a token or a certificate.
        is_allowed: whether the operator has asked for it to be open.

    Raises ConfigError if others reach it, something is missing, and nobody has asked for that.
    """
    has = has_tls, has_principals
    if has == (True, True):
        return ""
    return _check("http", bound, _CLIENTS_LACK[has], _CLIENTS_NEED[has], is_allowed=is_allowed)


def check_peers(bound: Sequence[Address], *, has_tls: bool, is_allowed: bool) -> str:
    """Return what is to be warned of where a node listens for other nodes; empty if nothing is.

    Arguments and errors are those of `check_clients`.
    """
    if has_tls:
        return ""
    lack = (
        "there is no TLS between nodes: whoever is on the path between two of them can read what they say,"
        " and use the hold_ids and session_ids in it"
    )
    need = "--peer-cert, --peer-key and --peer-ca"
    return _check("peer", bound, lack, need, is_allowed=is_allowed)


def is_open(host: str) -> bool:
    """Whether others than this machine may reach a host. A name counts: it may lead anywhere."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return True
    # An IPv4 address in the clothes of IPv6: not every Python knows which of them are loopback.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return not (mapped or address).is_loopback


def _check(setting: str, bound: Sequence[Address], lack: str, need: str, *, is_allowed: bool) -> str:
    reached = ", ".join(str(address) for address in bound if is_open(address.host))
    if not reached:
        return ""
    if is_allowed:
        return f"{setting}: {reached}: {lack}; see docs/security.md"
    flag = {"http": "insecure-http", "peer": "insecure-peers"}[setting]
    variable = f"HOLDFAST_{flag.upper().replace('-', '_')}"
    raise ConfigError(
        f"{setting}: {reached}: others than this machine can reach this address, and {lack}. Either give it"
        f" {need}, or bind it to 127.0.0.1; or allow that by --{flag} ({variable}=true): see 'Safe defaults'"
        " in docs/security.md"
    )
