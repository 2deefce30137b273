"""Which addresses are open, and what may be open: refused, allowed with a warning, or nothing to say."""

import pytest

from cluster import exposure
from cluster.config import Address
from cluster.errors import ConfigError

HERE = (
    "127.0.0.1",
    "127.8.9.1",
    "127.255.255.254",
    "::1",
    "::1%lo",
    "0:0:0:0:0:0:0:1",
    "::ffff:127.0.0.1",
    "::ffff:7f00:1",
)
OPEN = (
    "0.0.0.0",  # noqa: S104 - the value under test
    "::",
    "10.0.0.1",
    "192.168.1.1",
    "169.254.1.1",
    "203.0.113.7",
    "128.0.0.1",
    "126.255.255.255",
    "255.255.255.255",
    "fe80::1",
    "fe80::1%eth0",
    "fd00::1",
    "2001:db8::1",
    "::2",
    "::ffff:10.0.0.1",
    "::ffff:0.0.0.0",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    # Names lead nobody knows where, whatever they look like.
    "localhost",
    "localhost.example",
    "127.1",
    "0",
    "2130706433",
    "127.0.0.1.nip.example",
    "",
)
EVERYWHERE = [Address("0.0.0.0", 7700)]  # noqa: S104 - the value under test


@pytest.mark.parametrize("host", HERE)
def test_loopback_is_not_open(host: str) -> None:
    """In all its spellings, as the system may tell them of a bound address."""
    assert not exposure.is_open(host)


@pytest.mark.parametrize("host", OPEN)
def test_everything_else_is_open(host: str) -> None:
    """Wildcards, private and link-local addresses, and names."""
    assert exposure.is_open(host)


@pytest.mark.parametrize("host", OPEN)
def test_what_is_open_is_refused_until_it_is_allowed(host: str) -> None:
    """With the exit code of what only a person can help, and both ways out; then with a warning."""
    bound = [Address("127.0.0.1", 1), Address(host, 2)]
    with pytest.raises(ConfigError) as refused:
        exposure.check_clients(bound, has_tls=False, has_principals=False, is_allowed=False)
    assert refused.value.exit_code == 2
    said = str(refused.value)
    assert said.startswith(f"http: {Address(host, 2)}: ")
    assert "no TLS and no login" in said
    assert "--tls-cert and --tls-key, and --tokens or --tls-client-ca, or bind it to 127.0.0.1" in said
    assert "--insecure-http (HOLDFAST_INSECURE_HTTP=true)" in said
    warning = exposure.check_clients(bound, has_tls=False, has_principals=False, is_allowed=True)
    assert warning.startswith(f"http: {Address(host, 2)}: there is no TLS and no login")


@pytest.mark.parametrize("host", OPEN)
def test_so_it_is_between_nodes(host: str) -> None:
    """With a flag of its own."""
    bound = [Address(host, 2)]
    with pytest.raises(ConfigError, match=r"^peer: .*--insecure-peers \(HOLDFAST_INSECURE_PEERS=true\)"):
        exposure.check_peers(bound, has_tls=False, is_allowed=False)
    assert "no TLS between nodes" in exposure.check_peers(bound, has_tls=False, is_allowed=True)
    assert exposure.check_peers(bound, has_tls=True, is_allowed=False) == ""


@pytest.mark.parametrize("is_allowed", [False, True])
def test_loopback_needs_nothing(*, is_allowed: bool) -> None:
    """And to allow what nobody reaches gives no warning."""
    bound = [Address(host, 1) for host in HERE]
    for has_tls in (False, True):
        assert exposure.check_peers(bound, has_tls=has_tls, is_allowed=is_allowed) == ""
        for has_principals in (False, True):
            assert not exposure.check_clients(
                bound, has_tls=has_tls, has_principals=has_principals, is_allowed=is_allowed
            )


@pytest.mark.parametrize(
    ("has_tls", "has_principals", "lack", "need"),
    [
        (False, True, "can read tokens", "Either give it --tls-cert and --tls-key, or bind"),
        (True, False, "there is no login", "Either give it --tokens or --tls-client-ca, or bind"),
    ],
)
def test_half_of_it_is_not_enough(*, has_tls: bool, has_principals: bool, lack: str, need: str) -> None:
    """The message says which half lacks."""
    with pytest.raises(ConfigError) as refused:
        exposure.check_clients(EVERYWHERE, has_tls=has_tls, has_principals=has_principals, is_allowed=False)
    assert lack in str(refused.value)
    assert need in str(refused.value)
    assert lack in exposure.check_clients(
        EVERYWHERE, has_tls=has_tls, has_principals=has_principals, is_allowed=True
    )


def test_tls_and_principals_may_be_reached_by_all() -> None:
    """That is what they are for; whether it was allowed besides does not matter."""
    for is_allowed in (False, True):
        said = exposure.check_clients(EVERYWHERE, has_tls=True, has_principals=True, is_allowed=is_allowed)
        assert said == ""
