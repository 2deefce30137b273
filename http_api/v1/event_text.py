"""Events as text: pieces of the stream of Server-Sent Events that watchers of one topic get, all the same."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from cluster.observing.event_log import AnyEvent, Block, Position, revision_of
from lockapi import answers, cells, cursors, views
from lockstate.words.events import CellEvent, Event, EventKind
from lockstate.words.kinds import HoldKind

PIECE_COUNT_MAX: Final = 12_000
"""Events of a piece that is handed out without more of them, or one turn of sorting more."""
PIECE_BYTES_MAX: Final = 64 * 1024
"""Bytes for one watcher in a piece that is handed out without more of them: longer ones save nothing."""

_PLAIN: Final = (
    'event: {kind}\ndata: {{"revision":%d,"event":"{kind}","kind":"lock","name":%b,"mode":"{mode}"'
    ',"scope":"{scope}","owner":%b,"token":%d,"reason":"","at_ms":%d,"lasted_ms":%d}}\n\n'
)
_TEMPLATES: Final[dict[tuple[str, str, str], bytes]] = {}
"""How most events look, by kind, mode and scope: those of locks, without anything special."""
_COMMON: Final = frozenset({EventKind.GRANTED, EventKind.RELEASED, EventKind.EXPIRED})
"""The kinds of those events."""
KEPT_COUNT_MAX: Final = 10_000
"""Names and owners whose JSON is kept."""
KEPT_BYTES_MAX: Final = 100
"""Bytes of the longest that is kept."""
_JSON: Final[dict[str, bytes]] = {}


class OfSession(NamedTuple):
    """What belongs to a session, or to a hold that lives without one: its secret id."""

    lease_id: str


Topic = str | OfSession
"""What is watched: the names that begin with a prefix, or a session."""


def _concerns(event: AnyEvent, topic: Topic) -> bool:
    if isinstance(topic, str):
        return event.name.startswith(topic)
    return isinstance(event, Event) and event.session_id == topic.lease_id


def render(blocks: Sequence[Block], topic: Topic, position: Position) -> bytes:
    """Return the events behind `position` that concern `topic`, as a piece of the stream."""
    parts: list[bytes] = []
    for block in blocks[bisect_left(blocks, position.revision, key=revision_of) :]:
        revision = block[0].revision
        bodies = [
            (number, encode(event))
            for number, event in enumerate(block, 1)
            if _concerns(event, topic) and (revision, number) > position
        ]
        if bodies:
            parts.append(with_ids(revision, bodies))
    return b"".join(parts)


def with_ids(revision: int, bodies: Sequence[tuple[int, bytes]]) -> bytes:
    """Give events of one revision their ids. The last has the revision's own: nothing of it is missing."""
    last = _id(revision) + bodies[-1][1]
    if len(bodies) == 1:
        return last
    parts = [_id(revision, number) + body for number, body in bodies[:-1]]
    return b"".join([*parts, last])


def _id(revision: int, number: int = 0) -> bytes:
    return b"id: %b\n" % cursors.of_event(revision, number).encode()


def encode(event: AnyEvent) -> bytes:
    """Return an event as it is in the stream, without its id."""
    if type(event) is Event and event.kind in _COMMON and _is_plain(event):
        key = event.kind, event.mode, event.scope
        template = _TEMPLATES.get(key)
        if template is None:
            kind, mode, scope = key
            template = _TEMPLATES[key] = _PLAIN.format(kind=kind, mode=mode, scope=scope).encode()
        name, owner = event.name, event.owner
        text = template % (
            event.revision,
            _JSON.get(name) or _json(name),
            _JSON.get(owner) or _json(owner),
            event.token,
            event.now_ms,
            event.lasted_ms,
        )
        return _with_principal(text, event.principal) if event.principal else text
    shown = cells.event_of(event) if isinstance(event, CellEvent) else views.event_of(event)
    return b"event: %b\ndata: %b\n\n" % (event.kind.encode(), answers.encode(shown))


def _is_plain(event: Event) -> bool:
    """Whether nothing stands in an event of a lock that has no place in a template."""
    if event.of is not HoldKind.LOCK or not event.owner:
        return False
    return not (event.reason or event.ticket or event.value or event.by)


def _with_principal(text: bytes, principal: str) -> bytes:
    """Return the text of a plain event with whom it belongs to, which comes last."""
    return b'%b,"principal":%b}\n\n' % (text[:-3], _JSON.get(principal) or _json(principal))


def _json(text: str) -> bytes:
    """Return a name or an owner as JSON, and keep it if it is short: most come again soon."""
    encoded = answers.encode(text)
    if len(encoded) <= KEPT_BYTES_MAX:
        if len(_JSON) >= KEPT_COUNT_MAX:
            _JSON.clear()
        _JSON[text] = encoded
    return encoded


class Piece:
    """What is handed out at a time: the entries behind `before`, and their text for each topic."""

    def __init__(self, before: Position) -> None:
        self.before = before
        self.blocks: list[Block] = []
        self.is_full = False
        self._count = 0
        self._texts: dict[Topic, bytearray | bytes] = {}

    def add(self, block: Block, matching: Mapping[Topic, Sequence[tuple[int, bytes]]]) -> None:
        """Add the events of an entry, with their numbers, to each topic that they concern."""
        if not matching:
            return
        self.blocks.append(block)
        revision, texts, longest_bytes = block[0].revision, self._texts, 0
        last_id = _id(revision)
        for topic, bodies in matching.items():
            text = texts.get(topic)
            if text is None:
                text = texts[topic] = bytearray()
            # Nearly always: where much happens, an entry has one event for a topic that is not everything.
            if len(bodies) == 1:
                text += last_id
                text += bodies[0][1]
            else:
                text += with_ids(revision, bodies)
            longest_bytes = max(longest_bytes, len(text))
            self._count += len(bodies)
        self.is_full = self.is_full or longest_bytes >= PIECE_BYTES_MAX or self._count >= PIECE_COUNT_MAX

    @property
    def topics(self) -> Sequence[Topic]:
        """Return the topics that something concerns."""
        return tuple(self._texts)

    def text_for(self, topic: Topic, position: Position) -> bytes:
        """Return what a watcher at `position` does not have yet: the same for nearly all of its topic.

        Nothing is added afterwards.
        """
        if position > Position(self.blocks[0][0].revision):
            return render(self.blocks, topic, position)
        text = self._texts[topic]
        if isinstance(text, bytearray):
            text = self._texts[topic] = bytes(text)
        return text
