"""What watchers of one prefix were sent: kept once, because all of them must be sent the same bytes.

Cheap enough for thousands of watchers in one process: bytes that the first one brought are only compared for
all others. What the whole says is checked afterwards, once. Parses Server-Sent Events in the form in which
/v1/watch writes them, and takes nothing else.
"""

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec

_EVENT: Final = re.compile(rb"id: (\d+)(?:\.(\d+))?\nevent: ([a-z-]+)\ndata: (.+)")
_ID: Final = re.compile(rb"^id: (\d+)(?:\.(\d+))?$", re.MULTILINE)
_CUT: Final = re.compile(rb'event: cut\ndata: \{"reason":"([a-z-]+)"\}')
_END: Final = b"\n\n"
SHOWN_MAX: Final = 5
"""Of what is wrong, show so much."""


class Told(NamedTuple):
    """A change, as its client's answer and as its event describe it."""

    revision: int
    kind: str
    name: str
    token: int


class Transcript:
    """The events that were sent to anybody so far, as bytes without anything between them."""

    def __init__(self) -> None:
        self.data = bytearray()

    def ends(self) -> list[int]:
        """Return where each event ends."""
        return [found.end() for found in re.finditer(_END, self.data)]


class Reader:
    """One watcher's place in the transcript: `offset` bytes of it have reached the watcher.

    `fault` says what was wrong first, after which nothing is read; `cut` why the node ended the stream.
    """

    def __init__(self, transcript: Transcript) -> None:
        self._transcript = transcript
        self._rest = b""
        self.offset = 0
        self.has_begun = False
        self.cut = ""
        self.fault = ""
        self.marks: list[tuple[int, int]] = []
        """The ids of heartbeats, which promise that all before has been sent: offset and revision."""

    def take(self, data: bytes) -> None:
        """Read what the connection brought."""
        data = self._rest + data if self._rest else data
        end = data.rfind(_END) + len(_END)
        if end < len(_END):
            self._rest = data
            return
        self._rest = data[end:]
        whole = data[:end]
        if self._transcript.data.startswith(whole, self.offset):
            self.offset += len(whole)
        elif not self.fault:
            self._take_blocks(whole.split(_END)[:-1])

    def _take_blocks(self, blocks: Iterable[bytes]) -> None:
        """Read blocks, some of which are not events or are new to all watchers."""
        known = self._transcript.data
        for block in blocks:
            if block.startswith(b"id: ") and b"\nevent: " in block:
                event = block + _END
                if self.offset == len(known):
                    known += event
                elif not known.startswith(event, self.offset):
                    self.fault = f"at byte {self.offset} another event than others got: {block.decode()!r}"
                    return
                self.offset += len(event)
            elif found := _CUT.fullmatch(block):
                self.cut = found[1].decode()
            elif found := _ID.search(block):
                self.has_begun = True
                self.marks.append((self.offset, int(found[1])))
            else:
                self.fault = f"no event: {block.decode(errors='replace')!r}"
                return


class _Data(msgspec.Struct):
    revision: int
    event: str
    name: str
    token: int


_data: Final = msgspec.json.Decoder(_Data)


def check(data: bytes, told: Iterable[Told], *, is_whole: bool) -> list[str]:
    """Return what is wrong with a transcript: it must have all that is `told`, each once and in order.

    One that is not whole may end anywhere, but before that it must have everything, too.
    """
    ids: list[tuple[int, int]] = []
    found: Counter[Told] = Counter()
    for block in data.split(_END)[:-1]:
        event = _EVENT.fullmatch(block)
        if event is None:
            return [f"no event: {block.decode(errors='replace')!r}"]
        ids.append((int(event[1]), int(event[2] or 0)))
        body = _data.decode(event[4])
        found[Told(body.revision, body.event, body.name, body.token)] += 1
        if (body.revision, body.event.encode()) != (ids[-1][0], event[3]):
            return [f"id, event and data say different things: {block.decode()!r}"]
    wanted = Counter(told)
    if not is_whole:
        end = ids[-1][0] if ids else 0
        wanted, found = (
            Counter({one: count for one, count in counter.items() if one.revision < end})
            for counter in (wanted, found)
        )
    elif ids and ids[-1][1] > 0:
        return [f"ends within a revision, with {_text(ids[-1])}"]
    return [
        *(f"out of order: {then} comes after {first}" for first, then in _misplaced(ids)),
        *(f"lost, or sent too seldom: {missing}" for missing in wanted - found),
        *(f"sent too often: {more}" for more in found - wanted),
    ]


def _misplaced(ids: Sequence[tuple[int, int]]) -> Iterable[tuple[str, str]]:
    """Yield pairs of neighbours that are none: of a revision come 1, 2 and so on, the last one as 0."""
    if ids and ids[0][1] > 1:
        yield "the beginning", _text(ids[0])
    for first, then in pairwise(ids):
        same = first[0] == then[0] and first[1] > 0 and then[1] in (0, first[1] + 1)
        next_one = first[0] < then[0] and first[1] == 0 and then[1] in (0, 1)
        if not same and not next_one:
            yield _text(first), _text(then)


def _text(event_id: tuple[int, int]) -> str:
    return f"{event_id[0]}.{event_id[1]}" if event_id[1] else f"{event_id[0]}"


def check_marks(data: bytes, ends: Sequence[int], marks: Iterable[tuple[int, int]]) -> list[str]:
    """Return which heartbeats promised too much, or went back: all up to their id had been sent then."""
    revisions = [int(found[1]) for found in _ID.finditer(data)]
    faults = []
    for offset, revision in sorted(set(marks)):
        sent = bisect_right(ends, offset)
        if sent and revisions[sent - 1] > revision:
            faults.append(f"the heartbeat {revision} comes after the event {revisions[sent - 1]}")
        if sent < len(revisions) and revisions[sent] <= revision:
            faults.append(f"the heartbeat {revision} comes before the event {revisions[sent]}")
    return faults


def shown(faults: Sequence[str]) -> list[str]:
    """Return the first of many faults, and how many more there are."""
    more = [f"and {len(faults) - SHOWN_MAX} more like these"] if len(faults) > SHOWN_MAX else []
    return [*faults[:SHOWN_MAX], *more]
