"""Which connections clients have, which end for others, and which are for probes only."""

import logging

import pytest

from cluster.peers.strangers import origin_of
from http_api.server.connection_limits import (
    LOCAL_COUNT_MAX,
    SPARE_COUNT_MAX,
    ConnectionPlaces,
    ConnectionRefusal,
    Place,
    PlaceLimits,
)
from http_api.server.quiet import QUIET_S

STRANGERS = ("192.0.2.1", "192.0.2.2", "192.0.2.3")
HERE = "127.0.0.1"


class Client:
    """A connection that knows whether it was ended."""

    def __init__(self) -> None:
        self._ended = False

    def end(self) -> None:
        """Close it."""
        self._ended = True

    def has_ended(self) -> bool:
        """Whether it was closed."""
        return self._ended


class Room:
    """A room with a clock that the test sets."""

    def __init__(self, **limits: float) -> None:
        self.now_s = 100.0
        self.room = ConnectionPlaces(PlaceLimits(**limits), origin_of, lambda: self.now_s)  # type: ignore[arg-type]

    def come(self, address: str = STRANGERS[0]) -> tuple[Place, Client]:
        """Let a client connect."""
        client = Client()
        return self.room.come(client, address), client

    def busy(self, address: str = STRANGERS[0]) -> tuple[Place, Client]:
        """Let a client connect and ask for something that takes long."""
        place, client = self.come(address)
        place.begin()
        return place, client

    def idle(self, address: str = STRANGERS[0]) -> tuple[Place, Client]:
        """Let a client connect, ask, and keep its connection."""
        place, client = self.busy(address)
        place.rest()
        return place, client

    def counted(self) -> dict[str, float]:
        """Return the figures that are not 0, by the name and the reason."""
        figures = {}
        for name, _, _, labels, value in self.room.samples():
            short = name.removeprefix("holdfast_http_connections").strip("_")
            figures[f"{short} {labels.get('reason', '')}".strip()] = value
        return {name: value for name, value in figures.items() if value}


def test_of_a_full_room_the_longest_silent_one_goes() -> None:
    """Somebody who opens connections and says nothing keeps nobody out."""
    room = Room(count_max=3, per_address_max=3)
    resting = room.idle()[1]
    silent = [room.come()[1] for _ in range(2)]
    room.now_s += QUIET_S
    place, client = room.come(STRANGERS[1])
    assert place.refused is None
    assert [silent[0].has_ended(), silent[1].has_ended(), resting.has_ended()] == [True, False, False]
    room.now_s += QUIET_S
    place.begin()
    assert room.come(STRANGERS[1])[0].refused is None
    assert silent[1].has_ended()
    assert room.come(STRANGERS[1])[0].refused is None
    assert resting.has_ended()
    assert not client.has_ended()
    assert room.counted() == {"": 3, "max": 3, "ended_total room": 3}


def test_a_new_connection_has_a_moment_and_a_busy_one_all_it_needs() -> None:
    """Those whose request is on its way, or under way, do not end for others: these are for probes only."""
    room = Room(count_max=2)
    busy, young = room.busy()[1], room.come(STRANGERS[1])[1]
    place, _ = room.come(STRANGERS[2])
    assert place.refused is ConnectionRefusal.FULL
    assert not busy.has_ended()
    assert not young.has_ended()
    room.now_s += QUIET_S
    assert room.come(STRANGERS[2])[0].refused is None
    assert young.has_ended()
    assert not busy.has_ended()


def test_a_spare_one_that_ends_makes_no_room() -> None:
    """A connection for probes took nobody's place, so its end gives none away."""
    room = Room(count_max=1)
    room.busy()
    spare = room.come(STRANGERS[1])[1]
    room.now_s += QUIET_S
    assert room.come(STRANGERS[2])[0].refused is ConnectionRefusal.FULL
    assert spare.has_ended()
    assert room.counted()[""] == 1


def test_of_spare_ones_the_oldest_ends() -> None:
    """Whoever fills them does not keep probes out."""
    room = Room(count_max=1)
    room.busy()
    spare = [room.come(STRANGERS[1])[1] for _ in range(SPARE_COUNT_MAX + 1)]
    assert [client.has_ended() for client in spare] == [True] + [False] * SPARE_COUNT_MAX


def test_one_address_has_a_share() -> None:
    """Above it one of its own connections goes, or the new one is for probes; others have their room."""
    room = Room(count_max=4)
    busy = room.busy()[1]
    resting = room.idle()[1]
    room.now_s += QUIET_S
    assert room.busy()[0].refused is None
    assert resting.has_ended()
    assert room.come()[0].refused is ConnectionRefusal.ADDRESS
    assert room.come(STRANGERS[1])[0].refused is None
    assert not busy.has_ended()
    assert room.counted() == {"": 3, "max": 4, "ended_total address": 1, "refused_total address": 1}


def test_one_principal_has_a_share() -> None:
    """Wherever it calls from. Above it one of its resting connections goes, or the new one is for probes."""
    room = Room(count_max=6)
    others, theirs = room.idle()[1], room.idle(HERE)
    theirs[0].belongs_to("worker")
    room.now_s += QUIET_S
    for address in (*STRANGERS, HERE):
        place, _ = room.busy(address)
        place.belongs_to("worker")
        place.belongs_to("worker")
        assert place.refused is (ConnectionRefusal.PRINCIPAL if address == HERE else None)
    assert theirs[1].has_ended()
    assert not others.has_ended()
    figures = {"": 4, "max": 6, "ended_total principal": 1, "refused_total principal": 1}
    assert room.counted() == figures
    boss, _ = room.busy(HERE)
    boss.belongs_to("boss")
    assert boss.refused is None
    place.gone()
    assert room.counted()[""] == 5


def test_a_connection_is_counted_for_the_principal_that_proved_itself_last() -> None:
    """A proxy's connection, or one whose token has got another name: the share before is given back."""
    room = Room(count_max=2)
    place, _ = room.busy()
    for name in ("one", "other", "one"):
        place.belongs_to(name)
        assert place.refused is None
    place.gone()
    again, _ = room.busy(STRANGERS[1])
    again.belongs_to("one")
    assert again.refused is None


def test_the_share_can_be_chosen() -> None:
    """Many clients may come from behind one address; it cannot be more than all."""
    room = Room(count_max=4, per_address_max=3)
    assert [room.busy()[0].refused for _ in range(4)] == [None, None, None, ConnectionRefusal.ADDRESS]
    assert PlaceLimits(count_max=4, per_address_max=9).share == 4
    assert PlaceLimits(count_max=1).share == 1
    assert PlaceLimits(count_max=4, per_address_max=3).principal_share == 3
    assert PlaceLimits(count_max=4, per_address_max=1).principal_share == 2


def test_one_machine_is_one_address() -> None:
    """The addresses of one IPv6 prefix share, and so do the two ways of writing one of IPv4."""
    room = Room(count_max=2)
    assert room.busy("2001:db8::1")[0].refused is None
    assert room.busy("2001:db8::2")[0].refused is ConnectionRefusal.ADDRESS
    assert room.busy("192.0.2.9")[0].refused is None
    assert room.busy("::ffff:192.0.2.9")[0].refused is ConnectionRefusal.ADDRESS


@pytest.mark.parametrize("address", [HERE, "127.1.2.3", "::1", "::ffff:127.0.0.1", "", "unix"])
def test_this_machine_has_a_reserve_and_no_share(address: str) -> None:
    """When strangers have all connections, whoever is logged in on the machine can still look and act."""
    room = Room(count_max=2, per_address_max=1)
    for stranger in STRANGERS[:2]:
        room.busy(stranger)
    assert room.busy(STRANGERS[2])[0].refused is ConnectionRefusal.FULL
    assert {room.busy(address)[0].refused for _ in range(LOCAL_COUNT_MAX)} == {None}
    assert room.busy(address)[0].refused is ConnectionRefusal.FULL


def test_a_head_has_to_come_in_time() -> None:
    """The time counts from the connection, or the first byte of a later request, however many follow."""
    room = Room(head_s=10, idle_s=75)
    place, client = room.idle()
    late = room.come()[1]
    room.now_s += 9
    place.heard()
    room.room.look()
    assert not late.has_ended()
    room.now_s += 1
    room.room.look()
    assert late.has_ended()
    for _ in range(8):
        room.now_s += 1
        place.heard()
        room.room.look()
        assert not client.has_ended()
    room.now_s += 1
    room.room.look()
    assert client.has_ended()
    assert room.counted()["ended_total head"] == 2


def test_a_connection_may_rest_for_a_while() -> None:
    """The time counts from the last answer; while an answer is awaited none does."""
    room = Room(head_s=10, idle_s=75)
    place, client = room.busy()
    resting = room.idle()[1]
    room.now_s += 75
    room.room.look()
    assert resting.has_ended()
    assert not client.has_ended()
    place.rest()
    room.now_s += 74.9
    room.room.look()
    assert not client.has_ended()
    room.now_s += 0.1
    room.room.look()
    assert client.has_ended()


def test_an_end_counts_once() -> None:
    """A connection that was ended is gone; that it says so itself, later, changes nothing."""
    room = Room(count_max=4)
    place, client = room.come()
    place.unread()
    assert client.has_ended()
    place.unread()
    place.gone()
    place.rest()
    place.heard()
    assert room.room.is_empty
    assert room.counted() == {"max": 4, "ended_total unread": 1}


@pytest.fixture(name="lines")
def lines_fixture(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """Catch what the room says."""
    caplog.set_level(logging.WARNING, "http_api")
    return caplog


def test_each_kind_of_trouble_has_one_line_a_minute(lines: pytest.LogCaptureFixture) -> None:
    """The lines say whom and how many it concerns, and a flood does not fill the log."""
    room = Room(count_max=4, per_address_max=2, head_s=10)
    for _ in range(100):
        room.busy()
    for address in STRANGERS[1:] * 3:
        room.busy(address)
    assert lines.text.count("event=connections-of-address address='192.0.2.1' limit=2 refused=0 ended=0") == 1
    assert lines.text.count("event=connections-full in_use=4 limit=4 refused=0 ended=0 detail=") == 1
    room.now_s += 60
    room.room.look()
    room.busy()
    assert lines.text.count("event=connections-of-address address='192.0.2.1' limit=2 refused=98") == 1
    assert lines.text.count("event=connections-silent ") == 0
    room = Room(count_max=4)
    for address in (HERE, *STRANGERS):
        room.busy(address)[0].belongs_to("worker")
    line = "event=connections-of-principal principal='worker' limit=2 refused=0 ended=0"
    assert lines.text.count("event=connections-of-principal") == lines.text.count(line) == 1


def test_silent_connections_are_told_by_their_address(lines: pytest.LogCaptureFixture) -> None:
    """Somebody who holds connections and says nothing is named."""
    room = Room(head_s=10)
    for address in STRANGERS * 10:
        room.come(address)
    room.now_s += 10
    room.room.look()
    assert lines.text.count("event=connections-silent") == 1
    assert "event=connections-silent address='192.0.2.1' ended=1 detail=" in lines.text
    room.come(STRANGERS[2])
    room.now_s += 60
    room.room.look()
    assert "event=connections-silent address='192.0.2.3' ended=31 detail=" in lines.text
