"""Who makes room for whom at the peers' port: by address, by age, and members last."""

import pytest

from cluster.peers.strangers import ALL_MAX, PER_ADDRESS_MAX, Strangers, origin_of

NOBODY: frozenset[str] = frozenset()
MEMBERS = frozenset({"10.0.0.1", "10.0.0.2"})


@pytest.mark.parametrize(
    ("address", "origin"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("node-1.example", "node-1.example"),
        ("", ""),
    ],
)
def test_one_machine_is_one_origin(address: str, origin: str) -> None:
    """However many IPv6 addresses it has, and however its IPv4 address is written."""
    assert origin_of(address) == origin


def test_one_address_has_little_room() -> None:
    """Its own oldest goes, and nobody else's."""
    strangers: Strangers[int] = Strangers()
    assert strangers.come(-1, "10.0.0.8", NOBODY) is None
    for number in range(PER_ADDRESS_MAX):
        assert strangers.come(number, "10.0.0.9", NOBODY) is None
    assert strangers.come(100, "10.0.0.9", NOBODY) == 0
    assert strangers.come(101, "10.0.0.9", NOBODY) == 1
    assert len(strangers) == PER_ADDRESS_MAX + 1


def test_all_addresses_together_have_a_bound() -> None:
    """The oldest of all goes; who proved itself, or left, counts no longer."""
    strangers: Strangers[int] = Strangers()
    for number in range(ALL_MAX):
        assert strangers.come(number, f"10.1.0.{number}", MEMBERS) is None
    assert strangers.come(100, "10.2.0.1", MEMBERS) == 0
    strangers.gone(1)
    strangers.gone(1)
    assert strangers.come(101, "10.2.0.2", MEMBERS) is None
    assert strangers.come(102, "10.2.0.3", MEMBERS) == 2
    assert len(strangers) == ALL_MAX


def test_strangers_do_not_touch_the_room_of_members() -> None:
    """A flood from ten thousand machines displaces no handshake of a member, and members displace nobody."""
    strangers: Strangers[object] = Strangers()
    assert strangers.come("member", "10.0.0.1", MEMBERS) is None
    for number in range(10_000):
        assert strangers.come(number, f"10.{number >> 8}.1.{number & 255}", MEMBERS) != "member"
    assert strangers.come("another", "10.0.0.2", MEMBERS) is None
    assert len(strangers) == ALL_MAX + 2
    for number in range(PER_ADDRESS_MAX - 1):
        assert strangers.come((number,), "10.0.0.1", MEMBERS) is None
    assert strangers.come("again", "10.0.0.1", MEMBERS) == "member", "its own, and the oldest of them"
