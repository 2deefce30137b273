"""Whether this node is what the others are: states and logs are compared all the time, and a wrong one stops.

Nodes tell each other once a second what the fingerprints of their states were at some revisions: the newest,
and the newest multiples of 16, 64, ... 4096. So at any rate of entries there is one that nodes share,
although they do not speak at the same moment. Where logs part, the replica notices (log_digest); the entry is
then in dispute, and everybody who has it tells the digest there.

What a majority has is right (digest_reports). A node that differs stops, a leader too, and the cluster goes
on. Where no majority can be found, as with two nodes, somebody is wrong and nobody knows who: after DOUBT_S
this node takes no requests any more, because its answer might give a lock to two clients; it goes on
replicating, so that a third node can decide.
"""

import logging
from array import array
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Final

from cluster.consensus.digest_reports import DIGESTS_MAX, DigestReport, majority, nodes_with
from cluster.consensus.log_digest import Difference, DigestView
from cluster.errors import LogDiverged, NodeFailed, StateDiverged
from lockstate.tables import fingerprint

logger = logging.getLogger(__name__)

RING: Final = 8192
"""Fingerprints that are kept of each kind. A power of two, and more than twice the largest step."""
KEPT_BITS: Final = 4
"""Every multiple of two to this is kept. A fingerprint costs the more, the more often it is asked for: what
comes and goes between two of them is never looked at."""
ASKED_MAX: Final = 64
"""Other revisions that are kept: those that were the newest when this node spoke, or a peer spoke of them."""
STEP_BITS: Final = (0, 4, 6, 8, 10, 12)
"""The revisions that are told: the newest multiple of two to each of these."""
COARSE_BITS: Final = 8
"""Of older revisions, those that are multiples of two to this are kept, as many as of the newest: a peer that
is seconds behind speaks of them."""
TOLD_MAX: Final = 16
"""Multiples of each step that are kept of what one peer told. It tells one a second of each, so this is for
how many seconds nodes may lag behind each other and still be compared."""
DISPUTE_S: Final = 60.0
"""The time, in seconds, for which a disputed entry is told after it was mentioned last."""
DOUBT_S: Final = 5.0
"""The time, in seconds, after which a difference that no majority decides ends this node's service: before
that, the others may not have spoken yet."""
LOOK_S: Final = 1.0
"""The time, in seconds, between two looks at what was told before this node had it itself."""

_KEPT_MASK: Final = (1 << KEPT_BITS) - 1
_COARSE_MASK: Final = (1 << COARSE_BITS) - 1
_Entry = tuple[int, int]
"""Index and term."""


def _newest_of_each_step(told: Mapping[int, int]) -> dict[int, int]:
    """Return what is kept of what a peer told: of each step the newest multiples."""
    newest_first = sorted(told, reverse=True)
    kept: set[int] = set()
    for bits in STEP_BITS:
        mask = (1 << bits) - 1
        kept.update(islice((revision for revision in newest_first if not revision & mask), TOLD_MAX))
    return {revision: told[revision] for revision in kept}


class Divergence:
    """Compares one node with the others. It is told of every revision, and of what peers say."""

    def __init__(
        self,
        node_id: str,
        log: DigestView,
        voters: Callable[[], frozenset[str]],
        now_s: Callable[[], float],
        *,
        newest: Callable[[], int],
        stop: Callable[[NodeFailed], None],
        tell: Callable[[], None],
    ) -> None:
        """Compare by what these tell and do.

        `newest` returns the fingerprint of the newest revision; `stop` ends this node, which is wrong; `tell`
        lets the peers hear the `report` at once.
        """
        self._node_id = node_id
        self._log = log
        self._voters = voters
        self._now_s = now_s
        self._newest_fingerprint = newest
        self._stop = stop
        self._tell = tell
        self._ring = array("Q", bytes(8 * RING))
        self._coarse_ring = array("Q", bytes(8 * RING))
        self._asked: dict[int, int] = {}
        self._oldest = self._newest = 0
        self._states: dict[str, dict[int, int]] = {}
        self._entries: dict[str, dict[_Entry, int]] = {}
        self._disputed: dict[_Entry, float] = {}
        self._doubted_since_s: float | None = None
        self._is_doubt_told = False
        self._looked_s = 0.0
        self.differing: frozenset[str] = frozenset()
        """The peers that differed from this node when they were compared last."""

    # -- what this node is ----------------------------------------------------------------------------------

    def restarted(self, revision: int) -> None:
        """Begin anew with a loaded state."""
        self._oldest = revision
        self._asked.clear()
        self.applied(revision)

    def applied(self, revision: int) -> None:
        """Record that this is the newest revision now, and its fingerprint if it is one of those kept."""
        self._newest = revision
        if revision & _KEPT_MASK:
            return
        its_fingerprint = self._newest_fingerprint()
        self._ring[(revision >> KEPT_BITS) % RING] = its_fingerprint
        if not revision & _COARSE_MASK:
            self._coarse_ring[(revision >> COARSE_BITS) % RING] = its_fingerprint

    def _own(self, revision: int) -> int | None:
        """Return the fingerprint of this node's state at a revision, None if it is not known."""
        if not self._oldest <= revision <= self._newest:
            return None
        if revision & _KEPT_MASK:
            return self._own_asked(revision)
        if revision >> KEPT_BITS > (self._newest >> KEPT_BITS) - RING:
            return self._ring[(revision >> KEPT_BITS) % RING]
        if revision & _COARSE_MASK or revision >> COARSE_BITS <= (self._newest >> COARSE_BITS) - RING:
            return None
        return self._coarse_ring[(revision >> COARSE_BITS) % RING]

    def _own_asked(self, revision: int) -> int | None:
        """Return the fingerprint of a revision that is kept only if somebody asks while it is the newest."""
        if revision == self._newest and revision not in self._asked:
            self._asked[revision] = self._newest_fingerprint()
            if len(self._asked) > ASKED_MAX:
                del self._asked[next(iter(self._asked))]
        return self._asked.get(revision)

    def report(self) -> DigestReport:
        """Return what the peers shall know."""
        told = {self._newest >> bits << bits for bits in STEP_BITS}
        states = [(revision, own) for revision in told if (own := self._own(revision)) is not None]
        return DigestReport(
            fingerprint.VERSION, states, [(*entry, own) for entry, own in self._own_disputed()]
        )

    def _own_disputed(self) -> Iterator[tuple[_Entry, int]]:
        """Yield the disputed entries that are in this log, with its digest there."""
        for entry in list(self._disputed):
            own = self._log.digest_at(entry[0])
            if own is not None and self._log.term_at(entry[0]) == entry[1]:
                yield entry, own

    # -- what others say ------------------------------------------------------------------------------------

    def parted(self, peer_id: str, difference: Difference) -> None:
        """Record that a leader's history is another one: ask everybody who has that entry."""
        entry = (difference.index, difference.term)
        if entry not in self._disputed:
            logger.critical(
                "event=log-differs peer=%s index=%d term=%d own=%016x theirs=%016x",
                peer_id,
                difference.index,
                difference.term,
                difference.own,
                difference.theirs,
            )
        self._entries.setdefault(peer_id, {})[entry] = difference.theirs
        self._dispute([entry])
        self._judge()

    def heard(self, peer_id: str, report: DigestReport) -> None:
        """Take what a peer says of itself."""
        if report.version == fingerprint.VERSION and report.states:
            told = self._states.setdefault(peer_id, {})
            told.update(report.states)
            self._states[peer_id] = _newest_of_each_step(told)
        entries = self._entries[peer_id] = {(index, term): digest for index, term, digest in report.entries}
        self._dispute([entry for entry, theirs in entries.items() if self._differs(entry, theirs)])
        self._judge()

    def _differs(self, entry: _Entry, theirs: int) -> bool:
        """Whether this log has the entry with another digest."""
        index, term = entry
        return self._log.term_at(index) == term and self._log.digest_at(index) not in (None, theirs)

    def lost(self, peer_id: str) -> None:
        """Forget what a peer said: it may come back with another state."""
        self._states.pop(peer_id, None)
        self._entries.pop(peer_id, None)

    def _dispute(self, entries: list[_Entry]) -> None:
        """Tell the digests of these entries from now on."""
        now_s = self._now_s()
        is_news = False
        for entry in entries:
            is_news |= entry not in self._disputed
            self._disputed.pop(entry, None)
            self._disputed[entry] = now_s
        for entry, since_s in list(self._disputed.items()):
            if now_s - since_s > DISPUTE_S or len(self._disputed) > DIGESTS_MAX:
                del self._disputed[entry]
        if is_news:
            self._tell()

    def look(self) -> None:
        """Compare again now and then: with what was told ahead of this node, and until a doubt counts."""
        now_s = self._now_s()
        if self._states and now_s - self._looked_s >= LOOK_S:
            self._looked_s = now_s
            self._judge()

    # -- what follows from it -------------------------------------------------------------------------------

    @property
    def is_in_doubt(self) -> bool:
        """Whether states have differed for so long, without a majority, that this one may be wrong."""
        return self._doubted_since_s is not None and self._now_s() - self._doubted_since_s >= DOUBT_S

    @property
    def doubted_s(self) -> float:
        """Return for how long a difference has been undecided; 0 if there is none."""
        return 0.0 if self._doubted_since_s is None else self._now_s() - self._doubted_since_s

    def _judge(self) -> None:
        failure = self._judge_entries() or self._judge_states()
        if failure is not None:
            self._stop(failure)

    def _judge_entries(self) -> LogDiverged | None:
        """Return why this log is wrong; None if it is not, or nobody knows."""
        for entry, own in self._own_disputed():
            told = {peer_id: theirs[entry] for peer_id, theirs in self._entries.items() if entry in theirs}
            right = majority({**told, self._node_id: own}, self._voters())
            if right is not None and right != own:
                index, term = entry
                return LogDiverged(
                    f"the log of this node has another history than that of the majority, at entry {index}"
                    f" of term {term}: digest {own:016x} here, {right:016x} on {nodes_with(told, right)}."
                    " Nothing of theirs was acknowledged or applied here. Do not delete anything yet: if"
                    " they run on older copies of their directories, this one has what was acknowledged. If"
                    " not, this directory is of another cluster or its disk is damaged: replace this node"
                    " (see 'Nodes that differ' in docs/operating.md)"
                )
        return None

    def _judge_states(self) -> StateDiverged | None:
        """Return why this state is wrong; None if it is not, or nobody knows."""
        differing: dict[str, int] = {}
        undecided: dict[str, int] = {}
        for peer_id, told in self._states.items():
            common = [
                (revision, own) for revision in sorted(told) if (own := self._own(revision)) is not None
            ]
            if not common or told[common[-1][0]] == common[-1][1]:
                continue
            differing[peer_id] = undecided[peer_id] = common[-1][0]
            for revision, own in common:
                if told[revision] == own:
                    continue
                everybody = self._told_at(revision)
                right = majority({**everybody, self._node_id: own}, self._voters())
                if right is not None and right != own:
                    return StateDiverged(
                        "the state of this node differs from that of the majority at revision"
                        f" {revision}: fingerprint {own:016x} here, {right:016x} on"
                        f" {nodes_with(everybody, right)}. Start this node once more: it makes its state"
                        " anew of snapshot and log. If it stops again, its disk is damaged: replace this"
                        " node (see 'Nodes that differ' in docs/operating.md)"
                    )
                if right is not None:
                    undecided.pop(peer_id, None)
        self._note(differing, undecided)
        return None

    def _told_at(self, revision: int) -> dict[str, int]:
        """Return the fingerprints that peers have told of a revision."""
        return {peer_id: told[revision] for peer_id, told in self._states.items() if revision in told}

    def _note(self, differing: dict[str, int], undecided: dict[str, int]) -> None:
        """Record who differs, and say so when that changes."""
        for peer_id in differing.keys() - self.differing:
            revision = differing[peer_id]
            logger.critical(
                "event=state-differs peer=%s revision=%d own=%016x theirs=%016x decided=%s",
                peer_id,
                revision,
                self._own(revision),
                self._states[peer_id][revision],
                peer_id not in undecided,
            )
        self.differing = frozenset(differing)
        # Whoever only catches up decides nothing, and may be wrong without harm.
        if not undecided.keys() & self._voters():
            if self._is_doubt_told:
                logger.warning("event=doubt-over")
            self._doubted_since_s, self._is_doubt_told = None, False
            return
        if self._doubted_since_s is None:
            self._doubted_since_s = self._now_s()
        if self.is_in_doubt and not self._is_doubt_told:
            self._is_doubt_told = True
            logger.critical(
                "event=in-doubt peers=%s detail=%r",
                ",".join(sorted(undecided)),
                "states differ, no majority says which is right, and no requests are accepted",
            )
