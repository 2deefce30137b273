"""Who gets which events, with which ids: prefixes, resuming from every id, feeding, falling back, cuts."""

import asyncio
import json
import random
from typing import Any

import msgspec
import pytest

from cluster.observing.event_log import EventLog, Position, WatchCut
from http_api.v1 import event_feeds, event_text
from http_api.v1.event_feeds import EventFeeds
from http_api.v1.event_text import OfSession, Topic, render
from lockapi import answers, cursors, views
from lockstate.words.events import CellEvent, CellEventKind, Event, EventKind
from lockstate.words.ids import OwnerName, SessionId
from lockstate.words.kinds import HoldKind
from lockstate.words.modes import Mode, Scope
from tests.unit.http_api.serving import until


def event(revision: int, name: str, kind: EventKind = EventKind.GRANTED, **more: Any) -> Event:
    """Return an event; its session id is a secret."""
    return Event(revision, 5, kind, name, Mode.EXCLUSIVE, OwnerName("me"), 7, SessionId("secret"), 12, **more)


def block(revision: int, *names: str) -> tuple[Event, ...]:
    """Return the events of an entry."""
    return tuple(event(revision, name) for name in names)


HISTORY = (
    block(2, "db/a"),
    block(3, "db/a", "other", "db/b", "other", "db/c", "other"),
    block(5, "other"),
    block(8, "db/a", "db/a"),
)


def parse(text: bytes) -> list[tuple[str, str, dict[str, Any]]]:
    """Return id, event and data of each block of a stream."""
    found = []
    for part in text.decode().split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in part.split("\n"))
        found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def ids(text: bytes) -> list[str]:
    """Return the ids of a stream's blocks."""
    return [event_id for event_id, _, _ in parse(text)]


class Client:
    """A watcher. `is_slow` means that it cannot take more."""

    def __init__(self, topic: Topic, since: int = 0, caller: str = "") -> None:
        self.topic, self.position, self.caller = topic, Position.behind(since), caller
        self.got: list[bytes] = []
        self.cuts: list[WatchCut] = []
        self.is_slow = False

    def feed(self, text: bytes) -> bool:
        """Take news."""
        self.got.append(text)
        return not self.is_slow

    def look(self) -> None:
        """Do nothing: what is watched is always there."""

    def cut(self, reason: WatchCut) -> None:
        """Record the end."""
        self.cuts.append(reason)

    @property
    def ids(self) -> list[str]:
        """Return the ids of what it got."""
        return ids(b"".join(self.got))


def fed(feeds: EventFeeds, topic: Topic, since: int = 0) -> Client:
    """Return a watcher that is up to date."""
    client = Client(topic, since)
    feeds.add(client)
    assert feeds.is_up_to_date(client)
    feeds.start_feeding(client)
    return client


async def until_one_has_news(clients: list[Client]) -> None:
    """Let the loop run, one turn at a time: nobody gets anything in the turn in which this ends."""
    while not any(client.got for client in clients):  # noqa: ASYNC110 - an event would wake up a turn later
        await asyncio.sleep(0)


def test_the_last_of_a_revision_has_its_id() -> None:
    """All but the last matching event of a revision have numbered ids; the last has the revision's own."""
    assert ids(render(HISTORY, "", Position(0))) == [
        *("2", "3.1", "3.2", "3.3", "3.4", "3.5", "3", "5", "8.1", "8"),
    ]
    assert ids(render(HISTORY, "db/", Position(0))) == ["2", "3.1", "3.3", "3", "8.1", "8"]
    assert ids(render(HISTORY, "nothing", Position(0))) == []


@pytest.mark.parametrize("resumed", ["", "db/"])
@pytest.mark.parametrize("watched", ["", "db/", "db/b", "other"])
def test_every_id_is_a_place_to_resume(watched: str, resumed: str) -> None:
    """From each id the rest comes, every event once; with another prefix, what is behind it."""
    whole = parse(render(HISTORY, watched, Position(0)))
    for index, (event_id, _, _) in enumerate(whole):
        position = cursors.position_of(event_id)
        assert position is not None
        assert parse(render(HISTORY, watched, position)) == whole[index + 1 :]
        others = parse(render(HISTORY, resumed, Position(0)))
        rest = parse(render(HISTORY, resumed, position))
        assert rest == others[len(others) - len(rest) :]


@pytest.mark.parametrize("kind", EventKind)
@pytest.mark.parametrize("mode", Mode)
def test_what_is_common_looks_as_everything_else(kind: EventKind, mode: Mode) -> None:
    """The short way to the text of an event gives what the long one does, whatever stands in it."""
    special: list[dict[str, Any]] = [
        {},
        {"scope": Scope.SUBTREE},
        {"reason": "broken"},
        {"of": HoldKind.SEMAPHORE, "permits": 2},
        {"of": HoldKind.ELECTION, "value": "v"},
        {"value": "note"},
        {"ticket": 3},
        {"principal": "ci"},
        {"principal": 'c"i', "scope": Scope.SUBTREE},
        {"principal": "ci", "by": "admin"},
        {"by": "admin"},
        {"owner": OwnerName("")},
        {"owner": OwnerName('quote " and \\ and \u00e9 \u2028')},
        {"name": 'db/"%d%b"\u00fc'},
    ]
    for fields in special:
        told = msgspec.structs.replace(event(2**60, "db/a", kind), mode=mode, **fields)
        text = answers.encode(views.event_of(told)).decode()
        assert event_text.encode(told).decode() == f"event: {kind}\ndata: {text}\n\n"


def test_the_json_of_names_is_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for ever new names, or for long ones, takes no more memory than that."""
    kept: dict[str, bytes] = {}
    monkeypatch.setattr(event_text, "_JSON", kept)
    monkeypatch.setattr(event_text, "KEPT_COUNT_MAX", 10)
    for number in range(100):
        name = f"n{number}" if number % 2 else f"n{number}" * event_text.KEPT_BYTES_MAX
        assert f'"name":"{name}"'.encode() in event_text.encode(event(3, name))
        assert len(kept) <= 10
        assert all(len(text) <= event_text.KEPT_BYTES_MAX for text in (*kept, *kept.values()))
    assert "n99" in kept


def test_an_event_is_told_without_secrets() -> None:
    """Each kind of hold has its own fields; a session has none of a hold's; ids of sessions are not shown."""
    told = [
        event(4, "a"),
        event(4, "s", EventKind.FORCED, of=HoldKind.SEMAPHORE, permits=3, reason="stuck\nfor ever"),
        event(4, "e", EventKind.ELECTED, of=HoldKind.ELECTION, value=""),
        event(4, "t/u", EventKind.QUEUED, scope=Scope.SUBTREE),
        event(4, "", EventKind.SESSION_EXPIRED),
    ]
    text = render([tuple(told)], "", Position(0))
    assert b"secret" not in text
    common = {"revision": 4, "owner": "me", "reason": "", "at_ms": 5, "lasted_ms": 12}
    hold = {**common, "token": 7}
    lock = {**hold, "kind": "lock", "mode": "exclusive", "scope": "node"}
    assert [(kind, data) for _, kind, data in parse(text)] == [
        ("granted", {**lock, "event": "granted", "name": "a"}),
        (
            "forced",
            {
                **hold, "event": "forced", "kind": "semaphore", "name": "s", "permits": 3,
                "reason": "stuck\nfor ever",
            },
        ),
        ("elected", {**hold, "event": "elected", "kind": "election", "name": "e", "value": ""}),
        ("queued", {**lock, "event": "queued", "name": "t/u", "scope": "subtree"}),
        ("session-expired", {**common, "event": "session-expired", "name": ""}),
    ]  # fmt: skip


async def test_those_who_are_fed_get_what_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each prefix gets its own events, a prefix of a prefix too, and an event is encoded once for all."""
    encoded: list[str] = []
    plain = event_text.encode

    def encode(event: Event) -> bytes:
        encoded.append(event.name)
        return plain(event)

    monkeypatch.setattr(event_feeds, "encode", encode)
    log = EventLog(asyncio.get_running_loop())
    log.append(HISTORY[0])
    await asyncio.sleep(0)
    assert not encoded, "nobody watches"
    feeds = EventFeeds(log)
    clients = {prefix: [fed(feeds, prefix, 2) for _ in range(3)] for prefix in ("", "db/", "db/b", "db/a/x")}
    for entry in HISTORY[1:]:
        log.append(entry)
    everything, below, one, nothing = clients.values()
    await until(lambda: everything[0].got)
    assert len(encoded) == 9, "nine events, whoever watches"
    for group in clients.values():
        for client in group:
            assert b"".join(client.got) == render(HISTORY[1:], client.topic, Position(0))
    assert [client.ids for client in (below[0], one[0], nothing[0])] == [
        ["3.1", "3.3", "3", "8.1", "8"],
        ["3"],
        [],
    ]
    assert all(client.cuts == [] for group in clients.values() for client in group)


async def test_much_news_is_handed_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes at once reaches fed watchers in pieces of some entries, without further news."""
    monkeypatch.setattr(event_feeds, "FED_COUNT_MAX", 2)
    monkeypatch.setattr(event_text, "PIECE_COUNT_MAX", 2)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    client = fed(feeds, "")
    for revision in range(1, 6):
        log.append(block(revision, "a"))
    await until(lambda: "5" in client.ids)
    assert [ids(text) for text in client.got] == [["1", "2"], ["3", "4"], ["5"]]


async def test_who_began_after_the_last_event_costs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watchers that begin at a revision without events share the text of what comes, as all others do."""
    encoded: list[str] = []
    plain = event_text.encode

    def encode(event: Event) -> bytes:
        encoded.append(event.name)
        return plain(event)

    monkeypatch.setattr(event_feeds, "encode", encode)
    log = EventLog(asyncio.get_running_loop())
    log.append(HISTORY[0])
    feeds = EventFeeds(log)
    clients = [fed(feeds, "db/", since) for since in (2, 3, 4, 4)]
    log.append(HISTORY[3])
    await until(lambda: all(client.got for client in clients))
    assert encoded == ["db/a", "db/a"]
    assert all(client.ids == ["8.1", "8"] for client in clients)


async def test_who_is_ahead_of_the_feed_gets_nothing_twice() -> None:
    """A watcher that resumes within what was not handed out yet begins exactly where it was."""
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    first = fed(feeds, "db/")
    for entry in HISTORY:
        log.append(entry)
    ahead = Client("db/")
    ahead.position = Position(3, 3)
    feeds.add(ahead)
    assert feeds.is_up_to_date(ahead)
    feeds.start_feeding(ahead)
    await until(lambda: first.got and ahead.got)
    assert first.ids == ["2", "3.1", "3.3", "3", "8.1", "8"]
    assert ahead.ids == ["3", "8.1", "8"]
    log.append(block(9, "db/z"))
    await until(lambda: "9" in ahead.ids)
    assert first.ids[6:] == ahead.ids[3:] == ["9"]


async def test_who_is_slow_is_not_fed_and_knows_its_place() -> None:
    """A watcher that cannot take more keeps the place behind what it got, and the others are fed on."""
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    slow, quick = fed(feeds, ""), fed(feeds, "")
    slow.is_slow = True
    log.append(block(1, "a"))
    await until(lambda: quick.got)
    log.append(block(2, "a"))
    await until(lambda: len(quick.got) == 2)
    assert slow.ids == ["1"]
    assert slow.position == Position.behind(1)
    assert not feeds.is_up_to_date(slow)
    slow.position = Position.behind(2)
    feeds.start_feeding(slow)
    log.append(block(3, "a"))
    await until(lambda: len(quick.got) == 3)
    assert slow.ids == ["1", "3"]


async def test_the_loop_goes_on_between_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece goes to some watchers at a time, and in the end to each of them once and in order."""
    monkeypatch.setattr(event_feeds, "SLICE_S", 0)
    monkeypatch.setattr(event_feeds, "FED_COUNT_MAX", 6)
    monkeypatch.setattr(event_text, "PIECE_COUNT_MAX", 1)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    clients = [fed(feeds, prefix) for prefix in ("db/", "other", "", "", "nothing")]
    for entry in HISTORY:
        log.append(entry)
    seen = set()
    while len(clients[2].got + clients[3].got) < 4:
        seen.add(tuple(len(client.got) for client in clients))
        await asyncio.sleep(0)
    assert len(seen) > 6, f"one at a time: {seen}"
    await until(lambda: bool(clients[0].got and clients[1].got))
    for client in clients:
        assert b"".join(client.got) == render(HISTORY, client.topic, Position(0))


async def test_who_leaves_before_its_turn_knows_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that has not got a piece yet has only reached what is before it, and can go on from there."""
    monkeypatch.setattr(event_feeds, "SLICE_S", 0)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    clients = [fed(feeds, "", 1) for _ in range(2)]
    log.append(block(2, "a"))
    await until_one_has_news(clients)
    had, due = sorted(clients, key=lambda client: not client.got)
    assert not due.got
    assert [feeds.reached(client) for client in (had, due)] == [Position.behind(2), Position.behind(1)]
    feeds.stop_feeding(due)
    assert due.position == Position.behind(1)
    assert not feeds.is_up_to_date(due)
    log.append(block(3, "a"))
    await until(lambda: "3" in had.ids)
    assert (had.ids, due.ids) == (["2", "3"], [])


async def test_a_snapshot_cuts_who_was_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the history begins anew amid a piece, watchers that have not got it are cut and never get it."""
    monkeypatch.setattr(event_feeds, "SLICE_S", 0)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    clients = [fed(feeds, "", 1) for _ in range(2)]
    log.append(block(2, "a"))
    await until_one_has_news(clients)
    log.restart(2)
    had, due = sorted(clients, key=lambda client: not client.got)
    assert (had.cuts, due.cuts) == ([], [WatchCut.FELL_BEHIND])
    feeds.remove(due)
    log.append(block(3, "a"))
    await until(lambda: "3" in had.ids)
    assert (had.ids, due.got) == (["2", "3"], [])


async def test_a_snapshot_cuts_those_who_missed_something() -> None:
    """Behind a snapshot only watchers that were up to date go on; the others must resume elsewhere."""
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    missed, ahead = fed(feeds, "", 1), fed(feeds, "", 20)
    log.restart(20)
    assert (missed.cuts, ahead.cuts) == ([WatchCut.FELL_BEHIND], [])
    feeds.remove(missed)
    log.append(block(21, "a"))
    await until(lambda: ahead.got)
    assert ahead.ids == ["21"]


async def test_more_news_than_the_log_keeps_cuts_who_is_fed() -> None:
    """When more happens at once than is kept, all are cut; nothing is left out in silence."""
    log = EventLog(asyncio.get_running_loop(), count_max=3)
    feeds = EventFeeds(log)
    client = fed(feeds, "")
    for revision in range(1, 6):
        log.append(block(revision, "a"))
    await until(lambda: client.cuts)
    assert (client.cuts, client.got) == ([WatchCut.SLOW_READER], [])


async def rounds() -> None:
    """Let everything happen that does not wait for a time."""
    for _ in range(20):
        await asyncio.sleep(0)


def rest_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rest after the first piece last for the whole test, and no pause."""
    monkeypatch.setattr(event_feeds, "REST_FACTOR", 1e12)
    monkeypatch.setattr(event_feeds, "REST_S_MAX", 1e6)
    monkeypatch.setattr(event_feeds, "PAUSE_FACTOR", 0)


async def test_after_a_piece_the_next_one_gathers_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first news come at once; what happens during the rest is one write to each, when it is over."""
    monkeypatch.setattr(event_feeds, "REST_FACTOR", 1e12)
    monkeypatch.setattr(event_feeds, "REST_S_MAX", 0.3)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    clients = [fed(feeds, "db/"), fed(feeds, "")]
    log.append(block(1, "db/a"))
    await rounds()
    assert [client.ids for client in clients] == [["1"], ["1"]]
    for revision in range(2, 9):
        log.append(block(revision, "db/a"))
        await rounds()
    assert [feeds.reached(client) for client in clients] == [Position.behind(1)] * 2
    await until(lambda: all("8" in client.ids for client in clients))
    assert [[ids(text) for text in client.got[1:]] for client in clients] == [[[*"2345678"]]] * 2


@pytest.mark.parametrize(("name", "most"), [("PIECE_COUNT_MAX", 4), ("PIECE_BYTES_MAX", 700)])
async def test_a_full_piece_does_not_wait(monkeypatch: pytest.MonkeyPatch, name: str, most: int) -> None:
    """However long the rest: neither memory nor what a client has to take at once grows with it."""
    rest_for_ever(monkeypatch)
    monkeypatch.setattr(event_text, name, most)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    client = fed(feeds, "")
    for revision in range(1, 8):
        log.append(block(revision, "a"))
        await rounds()
    assert [ids(text) for text in client.got[:2]] == [["1"], [*"2345"]]
    assert feeds.reached(client) >= Position.behind(5)


async def test_who_comes_and_goes_while_a_piece_is_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who leaves has reached what is before the piece; who joins gets what it lacks, and nothing twice."""
    rest_for_ever(monkeypatch)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    stays, leaves = fed(feeds, "db/"), fed(feeds, "db/")
    log.append(block(1, "db/a"))
    await rounds()
    log.append(block(2, "db/a", "db/b", "other"))
    await rounds()
    feeds.stop_feeding(leaves)
    assert leaves.position == Position.behind(1)
    assert not feeds.is_up_to_date(leaves)
    joins, other = fed(feeds, "db/", 2), fed(feeds, "", 2)
    log.append(block(3, "db/a", "other"))
    await rounds()
    monkeypatch.setattr(event_text, "PIECE_COUNT_MAX", 1)
    log.append(block(4, "other"))
    await until(lambda: other.got and joins.got and len(stays.got) == 2)
    assert (stays.ids, joins.ids) == (["1", "2.1", "2", "3"], ["3"])
    assert (other.ids, leaves.ids) == (["3.1", "3", "4"], ["1"])


async def test_a_snapshot_cuts_those_for_whom_something_was_gathered(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not handed out before the history begins anew never is."""
    rest_for_ever(monkeypatch)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    client, ahead = fed(feeds, ""), fed(feeds, "", 9)
    log.append(block(1, "a"))
    await rounds()
    log.append(block(2, "a"))
    await rounds()
    log.restart(9)
    assert (client.cuts, ahead.cuts) == ([WatchCut.FELL_BEHIND], [])
    feeds.remove(client)
    monkeypatch.setattr(event_text, "PIECE_COUNT_MAX", 1)
    log.append(block(10, "a"))
    await until(lambda: ahead.got)
    assert (client.ids, ahead.ids) == (["1"], ["10"])


async def test_who_is_cut_is_told_nothing_behind_the_gap() -> None:
    """Also before it knows: its client would resume behind what it has missed."""
    log = EventLog(asyncio.get_running_loop(), count_max=2)
    feeds = EventFeeds(log)
    fell, ahead = fed(feeds, ""), fed(feeds, "", 9)
    log.restart(9)
    log.append(block(10, "a"))
    await until(lambda: ahead.got)
    for revision in range(11, 15):
        log.append(block(revision, "a"))
    await until(lambda: ahead.cuts)
    log.append(block(15, "a"))
    await rounds()
    assert (fell.cuts, fell.got) == ([WatchCut.FELL_BEHIND], [])
    assert (ahead.cuts, ahead.ids) == ([WatchCut.SLOW_READER], ["10"])


async def test_a_log_with_little_room_is_gathered_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest that is longer than what the log keeps loses nobody: what happens meanwhile is gathered."""
    rest_for_ever(monkeypatch)
    log = EventLog(asyncio.get_running_loop(), count_max=2)
    feeds = EventFeeds(log)
    client = fed(feeds, "")
    for revision in range(1, 30):
        log.append(block(revision, "a"))
        await rounds()
    monkeypatch.setattr(event_text, "PIECE_COUNT_MAX", 1)
    log.append(block(30, "a"))
    await until(lambda: len(client.ids) == 30)
    assert client.cuts == []


@pytest.mark.parametrize("seed", range(20))
async def test_nobody_misses_anything_or_gets_it_twice(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Whoever comes, falls back, catches up and comes again at whatever moment: all of it, once, in order."""
    choose = random.Random(seed)
    monkeypatch.setattr(event_feeds, "SLICE_S", choose.choice([0, 0.005]))
    monkeypatch.setattr(event_feeds, "FED_COUNT_MAX", choose.choice([1, 5, 500]))
    monkeypatch.setattr(event_text, "PIECE_COUNT_MAX", choose.choice([1, 20, 4_000]))
    monkeypatch.setattr(event_feeds, "REST_FACTOR", choose.choice([0, 19, 1e12]))
    monkeypatch.setattr(event_feeds, "REST_S_MAX", 0.005)
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    history: list[tuple[Event, ...]] = []
    topics: list[Topic] = ["", "a", "ab", "abc", "b", "zz", OfSession("secret")]
    clients = [Client(topic) for topic in topics * 3]
    began: dict[Client, Position] = {}
    for _ in range(600):
        client = choose.choice(clients)
        if choose.random() < 0.5:
            names = choose.choices(["a", "ab/x", "abc", "abcd", "b", "c"], k=choose.randint(1, 4))
            history.append(block(len(history) + 1, *names))
            log.append(history[-1])
        elif client not in began:
            began[client] = client.position = Position.behind(choose.randint(0, len(history)))
            feeds.add(client)
        elif client in feeds._fed.get(client.topic, {}):
            client.is_slow = choose.random() < 0.5
            if choose.random() < 0.5:
                feeds.stop_feeding(client)
        elif feeds.is_up_to_date(client):
            client.is_slow = False
            feeds.start_feeding(client)
        else:
            blocks = log.read(client.position, 7)
            client.got.append(render(blocks, client.topic, client.position))
            client.position = Position.behind(blocks[-1][0].revision)
        if choose.random() < 0.3:
            await asyncio.sleep(choose.choice([0, 0, 0.001]))
    end = Position.behind(len(history))

    def is_over(client: Client) -> bool:
        is_fed = client in feeds._fed.get(client.topic, {})
        return not is_fed or feeds.reached(client) >= end

    await until(lambda: all(is_over(client) for client in began))
    for client, position in began.items():
        is_fed = client in feeds._fed.get(client.topic, {})
        rest = b"" if is_fed else render(history, client.topic, client.position)
        assert b"".join(client.got) + rest == render(history, client.topic, position)


@pytest.mark.parametrize(("pressure", "told"), [(0.0, 0), (1.0, 20)])
async def test_there_is_no_pause_before_what_would_be_dropped(
    pressure: float, told: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Feeding rests between two turns of work, but not if the log is about to drop what nobody has yet."""
    monkeypatch.setattr(event_feeds, "PAUSE_FACTOR", 1e9)
    monkeypatch.setattr(event_feeds, "FED_COUNT_MAX", 1)
    log = EventLog(asyncio.get_running_loop())
    monkeypatch.setattr(log, "pressure", lambda _: pressure)
    client = fed(EventFeeds(log), "")
    for revision in range(1, 21):
        log.append(block(revision, "a"))
    if told:
        await until(lambda: len(client.ids) == told)
    else:
        for _ in range(1_000):
            await asyncio.sleep(0)
    assert len(client.ids) == told


async def test_a_stopping_node_cuts_everybody() -> None:
    """Every watcher, fed or not, hears why it ends; those that left are not counted any more."""
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    client, left, catching_up = fed(feeds, ""), fed(feeds, "a"), Client("")
    feeds.add(catching_up)
    assert log.watchers == 3
    feeds.remove(left)
    log.end()
    assert (client.cuts, catching_up.cuts, left.cuts) == (
        [WatchCut.SHUTTING_DOWN],
        [WatchCut.SHUTTING_DOWN],
        [],
    )
    feeds.remove(client)
    feeds.remove(catching_up)
    assert log.watchers == 0


async def test_there_is_a_largest_number_of_watchers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The feeds say when they are full, also for one principal, and have room again when a watcher leaves."""
    monkeypatch.setattr(event_feeds, "WATCHERS_COUNT_MAX", 4)
    feeds = EventFeeds(EventLog(asyncio.get_running_loop()))

    def full() -> list[bool]:
        return [feeds.is_full_for(caller) for caller in ("bob", "boss", "")]

    bobs = [Client("", caller="bob") for _ in range(2)]
    for client in bobs:
        assert full() == [False, False, False]
        feeds.add(client)
    assert full() == [True, False, False]
    others = [Client("") for _ in range(2)]
    for client in others:
        feeds.add(client)
    assert full() == [True, True, True]
    feeds.remove(bobs[0])
    assert full() == [False, False, False]
    for client in (bobs[1], *others):
        feeds.remove(client)
    assert not feeds._counts["bob"]


async def test_sessions_are_fed_beside_prefixes() -> None:
    """Who watches a session gets its events of all names, and none of cells; who watches names, theirs."""
    of = [("a", "s1"), ("b", "s2"), ("a", "s2"), ("", "s1")]
    changed = CellEvent(2, 5, CellEventKind.PUT, b"a", 1, 1)
    events = [msgspec.structs.replace(event(2, name), session_id=SessionId(who)) for name, who in of]
    log = EventLog(asyncio.get_running_loop())
    feeds = EventFeeds(log)
    topics: tuple[Topic, ...] = (OfSession("s1"), OfSession("s2"), "a", OfSession("a"))
    clients = [fed(feeds, topic) for topic in topics]
    log.append((*events, changed))
    await until(lambda: all(client.got for client in clients[:3]))
    assert [client.ids for client in clients] == [["2.1", "2"], ["2.2", "2"], ["2.1", "2.3", "2"], []]
    for client, topic in zip(clients, topics, strict=True):
        assert b"".join(client.got) == render([(*events, changed)], topic, Position(0))
        feeds.remove(client)
