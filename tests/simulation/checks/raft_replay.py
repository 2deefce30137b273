"""A second opinion: replays the trace of a run against figure 2 of the Raft paper, knowing none of our code.

Each event is a list: what happens, at which node, and facts in plain words (world/raft_trace.py writes them).

    recovers       term, vote, entries, voters of the list below the log, index of the snapshot, commit index
    loses-disk
    votes          term, vote: the node changes them
    appends        index, term, digest; the voters if the entry is a member list, else None
    cuts           the first index that goes; clears: the whole log; compacts: the first index that stays
    restores       index of the snapshot, voters of its member list
    syncs          term, vote, last index: on disk now
    sends          the other node, the message in the words of the wire (of entries: index and term);
    receives       the same
    commits        index; applies: index, term, digest
    counts         the other voters, as the node counts them

Who leads is seen in the log: the node that makes the first entry of a term. The rules: one leader in a term,
elected by a majority of votes that arrived; a leader only appends, and sends what its log has; equal index
and term mean equal logs; a leader has all that is committed; one vote in a term, for a log as good as the
own one, on disk before it is told, as is every entry that is acknowledged, and kept over every crash; a
leader commits entries of its own term that a majority of the list in its log has, and others commit what a
leader did; what is applied is equal everywhere; members change one at a time, by a leader that has committed
in its term, and what counts is the list in the log.

A log may begin with a list of members before the first term: that of the founding. All whom it names put the
same there by themselves before they take part, and it is committed.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NoReturn

from tests.simulation.checks.raft_node import Entry, NodeTold, entry_of, is_majority
from tests.simulation.checks.report import Report

CHECKER: Final = "raft-replay"
FOUNDED: Final = (2, 0)
"""The place and the term of the list that a founded cluster begins with."""
REMEMBERED: Final = 20_000
"""So far behind the newest committed index facts of entries are kept."""
PRUNED_EVERY: Final = 1_000


class RaftReplay:
    """The events of one run, in the order in which they happened; objects to what Raft forbids."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._nodes: dict[str, NodeTold] = {}
        self._entries: dict[int, dict[int, tuple[int, int]]] = {}
        """By index and term: digest, and the term of the entry before it (-1: not seen)."""
        self._leaders: dict[int, str] = {}
        self._committed: dict[int, tuple[Entry, int]] = {}
        """By index: the entry, and the term of the leader that committed it first."""
        self._commit = 0
        self._floor = 0
        self._lists: list[tuple[int, frozenset[str]]] = []
        self._applied: dict[int, tuple[int, int | None]] = {}
        """By index: digest, and what a node without a gap had applied before it."""
        self.events_count = 0
        self._rules: dict[str, Callable[..., None]] = {
            "recovers": self._recovers,
            "loses-disk": self._loses_disk,
            "votes": self._votes,
            "appends": self._appends,
            "cuts": self._cuts,
            "clears": self._clears,
            "compacts": self._compacts,
            "restores": self._restores,
            "syncs": self._syncs,
            "sends": self._sends,
            "receives": self._receives,
            "commits": self._commits,
            "applies": self._applies,
            "counts": self._counts,
        }

    def event(self, event: Sequence[Any]) -> None:
        """Replay one event."""
        self.events_count += 1
        what, node_id, *facts = event
        node = self._nodes.get(node_id)
        if node is None:
            node = self._nodes[node_id] = NodeTold()
        try:
            self._rules[what](node_id, node, *facts)
        except KeyError as error:
            self._fail(f"{node_id} {what} what it cannot: there is nothing at {error}", event=event)

    def _fail(self, sentence: str, **facts: Any) -> NoReturn:
        self._report.fail(CHECKER, sentence, **facts)
        raise AssertionError("a violation is raised")

    # -- disks ----------------------------------------------------------------------------------------------

    def _recovers(  # noqa: PLR0917 - what a disk holds
        self,
        name: str,
        node: NodeTold,
        term: int,
        vote: str | None,
        entries: Iterable[Sequence[Any]],
        base: Iterable[str],
        snapshot: int,
        commit: int,
    ) -> None:
        """Compare what a node reads from its disk with what was synced there."""
        new = NodeTold()
        new.votes = node.told_votes() if node.has_disk else node.votes
        new.stood, new.has_disk = node.stood, True
        new.led = {led for led in node.led if led <= term}
        new.term, new.vote, new.base = term, vote, frozenset(base)
        for index, *facts in entries:
            entry = entry_of(facts)
            if self._is_founding(index, entry):
                self._founds(name, new, entry)
            if index > max(1, self._floor) and entry.term not in self._entries.get(index, {}):
                self._fail(f"{name} comes back with an entry at {index} that nobody made")
            self._place(name, new, index, entry)
        if node.has_disk:
            self._compare_disk(name, node, new, snapshot)
        if commit > max(1, self._commit):
            self._fail(f"{name} comes back with commit index {commit}, nobody was beyond {self._commit}")
        new.commit, new.disk = commit, (term, vote, new.last)
        for index in range(new.first, min(commit, new.last) + 1):
            self._is_committed(name, new, index)
        if not self._lists:
            self._lists.append((0, new.base))
        self._nodes[name] = new
        for led in node.led:
            if led > new.term:
                self._forget_term(name, led)

    def _forget_term(self, name: str, term: int) -> None:
        """Forget a term that a node led alone, and not on its disk. Nobody else may have heard of it."""
        for other, node in self._nodes.items():
            if any(entry.term == term for entry in node.log.values()):
                self._fail(
                    f"{other} has an entry of term {term}, which {name} led with a vote not on its disk"
                )
        del self._leaders[term]
        for terms in self._entries.values():
            terms.pop(term, None)

    def _compare_disk(self, name: str, node: NodeTold, new: NodeTold, snapshot: int) -> None:
        """Check that a disk has what was synced. A snapshot that contradicts a log replaces all of it."""
        disk_term, disk_vote, disk_last = node.disk
        if new.term < disk_term or (new.term == disk_term and disk_vote not in (None, new.vote)):
            self._fail(f"{name} comes back with {(new.term, new.vote)}; on its disk was {node.disk[:2]}")
        held = node.log.get(snapshot)
        if held is None or snapshot not in new.log or held.term == new.log[snapshot].term:
            for index in range(max(new.first, node.first), disk_last + 1):
                if new.log.get(index) != node.log[index]:
                    self._fail(f"{name} comes back without what it had synced at {index}")

    def _loses_disk(self, name: str, node: NodeTold) -> None:
        """Forget a log that is no more. The votes that were told stay."""
        self._nodes[name] = new = NodeTold()
        new.votes = node.told_votes()

    def _syncs(self, name: str, node: NodeTold, term: int, vote: str | None, last: int) -> None:  # noqa: ARG002 - as the others
        node.disk = (term, vote, last)

    # -- terms and votes ------------------------------------------------------------------------------------

    def _votes(self, name: str, node: NodeTold, term: int, vote: str | None) -> None:
        """Check that a term rises, and that a vote is the only one, for a log that is good enough."""
        if term < node.term or (term == node.term and node.vote is not None and vote != node.vote):
            self._fail(f"{name} goes from {(node.term, node.vote)} to {(term, vote)}")
        if term > node.term:
            node.leads, node.has_votes, node.matched = False, {name}, {}
        if vote is not None:
            if node.votes.setdefault(term, vote) != vote:
                self._fail(f"{name} votes for {vote} in term {term}, and did for {node.votes[term]}")
            if vote == name:
                node.stood[term] = node.end()
            elif node.asked.get(vote, ())[:1] != (term,):
                self._fail(f"{name} votes for {vote} in term {term}, which did not ask it to")
            elif node.asked[vote][1:] < node.end():
                self._fail(f"{name} votes for {vote}, and its own log is better")
        node.term, node.vote = term, vote

    # -- logs -----------------------------------------------------------------------------------------------

    def _appends(self, name: str, node: NodeTold, index: int, *facts: Any) -> None:
        """Check where an entry comes from: the leader of its term makes it, all others copy it."""
        entry = entry_of(facts)
        is_new = entry.term not in self._entries.get(index, {}) and index > self._floor
        if node.log and index != node.last + 1:
            self._fail(f"{name} appends index {index} behind {node.last}")
        if self._is_founding(index, entry):
            self._founds(name, node, entry)
        elif is_new:
            if node.term != entry.term or node.vote != name:
                self._fail(f"{name} makes index {index} of term {entry.term} and does not lead in it")
            if not node.leads:
                self._begins_to_lead(name, node)
            if entry.voters is not None:
                self._check_change(name, node, index, entry)
        elif node.leads:
            self._fail(f"{name} leads, and appends index {index} of another leader, term {entry.term}")
        self._place(name, node, index, entry)

    @staticmethod
    def _is_founding(index: int, entry: Entry) -> bool:
        return (index, entry.term) == FOUNDED and bool(entry.voters)

    def _founds(self, name: str, node: NodeTold, entry: Entry) -> None:
        """Take the first list. Only whom it names may be the first to have it."""
        voters = entry.voters or frozenset()
        index, term = FOUNDED
        if index <= self._floor:
            return
        if term not in self._entries.get(index, {}):
            if name not in voters or self._commit > 1:
                self._fail(f"{name} begins a cluster of {sorted(voters)}")
            self._commit = index
            self._committed[index] = (entry, term)
            self._lists.append((index, voters))
            self._entries.setdefault(index, {})[term] = (entry.digest, -1)
        if name in voters and not node.term:
            node.commit = max(index, node.commit)

    def _begins_to_lead(self, name: str, node: NodeTold) -> None:
        leader = self._leaders.setdefault(node.term, name)
        if leader != name:
            self._fail(f"{name} leads in term {node.term}, and so does {leader}")
        if not is_majority(node.has_votes, node.voters):
            self._fail(f"{name} leads in term {node.term} with the votes of {sorted(node.has_votes)} only")
        node.leads = True
        node.led.add(node.term)
        for index in range(max(node.first, self._floor + 1), self._commit + 1):
            # What is committed in a later term need not be known to one that was elected before.
            known, term = self._committed.get(index, (None, 0))
            if known is not None and term < node.term and node.log.get(index) != known:
                self._fail(f"{name} leads in term {node.term} without the committed index {index}")

    def _place(self, name: str, node: NodeTold, index: int, entry: Entry) -> None:
        """Put an entry into a log. Equal index and term mean an equal entry, and an equal one before it."""
        before = node.log[index - 1].term if index - 1 in node.log else -1
        if index > self._floor:
            known = self._entries.setdefault(index, {}).setdefault(entry.term, (entry.digest, before))
            if known[0] != entry.digest or (-1 not in (known[1], before) and known[1] != before):
                self._fail(f"{name} has another index {index} of term {entry.term} than another log")
            if known[1] == -1:
                self._entries[index][entry.term] = (entry.digest, before)
        if entry.term < before:
            self._fail(f"terms fall in the log of {name} at {index}")
        node.put(index, entry)

    def _cuts(self, name: str, node: NodeTold, index: int) -> None:
        if node.leads:
            self._fail(f"{name} leads in term {node.term}, and cuts its log at {index}")
        if index <= node.commit:
            self._fail(f"{name} cuts index {index}, which it knows to be committed")
        node.cut(index)

    def _clears(self, name: str, node: NodeTold) -> None:
        if node.leads:
            self._fail(f"{name} leads in term {node.term}, and forgets its log")
        if node.lists:
            node.base = node.voters
        node.log, node.lists, node.first, node.last = {}, [], 0, 0
        node.disk, node.applied = (*node.disk[:2], 0), None

    def _compacts(self, name: str, node: NodeTold, first: int) -> None:
        if first > node.commit + 1:
            self._fail(f"{name} drops its log up to {first}, and committed only {node.commit}")
        for index in range(node.first, first):
            gone = node.log.pop(index)
            if gone.voters is not None:
                node.base = gone.voters
                node.lists.remove(index)
        node.first = first

    def _restores(self, name: str, node: NodeTold, index: int, voters: Iterable[str]) -> None:
        """Compare the member list of a snapshot with the committed one of its place."""
        at, known = [each for each in self._lists if each[0] <= index][-1]
        # The list of the founders may stand in their configurations only: then nobody else has it.
        if frozenset(voters) != known and (at or voters):
            self._fail(f"{name} restores {sorted(voters)} at {index}: the members were {sorted(known)}")
        node.base, node.applied = frozenset(voters), None

    # -- messages -------------------------------------------------------------------------------------------

    def _sends(self, name: str, node: NodeTold, target: str, message: Mapping[str, Any]) -> None:
        term = message["term"]
        match message["type"]:
            case "append_entries":
                self._check_speech(name, node, term, message)
            case "request_vote" | "response_vote":
                candidate = name if message["type"] == "request_vote" else target
                if (
                    node.votes.get(term) != candidate
                    or node.disk[0] < term
                    or (node.disk[0] == term and node.disk[1] != candidate)
                ):
                    self._fail(
                        f"{name} tells its vote for {candidate} in {term}; on its disk is {node.disk[:2]}"
                    )
                claim = (message.get("last_log_term"), message.get("last_log_index"))
                if candidate == name and claim != node.stood.get(term, claim):
                    self._fail(
                        f"{name} says that its log ends with {claim}, it ended with {node.stood[term]}"
                    )
            case "next_node_idx" if message["success"] and term == node.term:
                self._check_promise(name, node, term, message["next_node_idx"] - 1)

    def _check_speech(self, name: str, node: NodeTold, term: int, message: Mapping[str, Any]) -> None:
        """Check that a leader says what its log says."""
        if self._leaders.get(term) != name or (node.term == term and not node.leads):
            self._fail(f"{name} speaks as the leader of term {term}, and is not")
        places = [(index, at) for index, at in message.get("entries") or ()]
        if "prevLogIdx" in message:
            places.insert(0, (message["prevLogIdx"], message["prevLogTerm"]))
        for index, at in places:
            if node.term == term and index in node.log and node.log[index].term != at:
                self._fail(f"{name} sends index {index} with term {at}, its log has {node.log[index].term}")
        if message["commit_index"] > max(1, self._commit):
            self._fail(
                f"{name} says that {message['commit_index']} is committed; nobody is beyond {self._commit}"
            )

    def _check_promise(self, name: str, node: NodeTold, term: int, index: int) -> None:
        """Check that what is acknowledged is on disk, and is what the leader has."""
        if index > node.disk[2]:
            self._fail(f"{name} acknowledges {index}; on its disk is {node.disk[2]}")
        leader = self._nodes.get(self._leaders.get(term, ""))
        if leader is not None and leader.term == term and leader.leads:
            own, theirs = node.log.get(index), leader.log.get(index)
            if own is not None and theirs is not None and own.term != theirs.term:
                self._fail(f"{name} acknowledges index {index} and has another entry there than the leader")

    def _receives(self, name: str, node: NodeTold, source: str, message: Mapping[str, Any]) -> None:  # noqa: ARG002 - as the others
        term = message["term"]
        match message["type"]:
            case "request_vote":
                node.asked[source] = (term, message["last_log_term"], message["last_log_index"])
            case "response_vote" if term == node.term:
                node.has_votes.add(source)
            case "next_node_idx" if message["success"] and term == node.term:
                node.matched[source] = max(message["next_node_idx"] - 1, node.matched.get(source, 0))

    # -- what is committed ----------------------------------------------------------------------------------

    def _commits(self, name: str, node: NodeTold, index: int) -> None:
        """Check by whom and why an entry is taken for committed."""
        if index > node.last:
            self._fail(f"{name} commits {index}, its log ends at {node.last}")
        if index > max(1, self._commit):
            self._check_commit(name, node, index)
            for each in range(max(self._commit, 1) + 1, index + 1):
                entry = node.log[each]
                self._committed[each] = (entry, node.term)
                if entry.voters is not None:
                    self._lists.append((each, entry.voters))
            self._commit = index
            self._prune()
        for each in range(max(node.commit + 1, node.first), index + 1):
            self._is_committed(name, node, each)
        node.commit = max(index, node.commit)

    def _check_commit(self, name: str, node: NodeTold, index: int) -> None:
        if not node.leads:
            self._fail(f"{name} commits {index} before any leader has")
        if node.log[index].term != node.term:
            self._fail(
                f"{name} commits {index}, an entry of term {node.log[index].term}, in term {node.term}"
            )
        have = {peer for peer, matched in node.matched.items() if matched >= index}
        if node.disk[2] >= index:
            have.add(name)
        if not is_majority(have, node.voters):
            self._fail(f"{name} commits {index}: of {sorted(node.voters)} only {sorted(have)} have it")

    def _is_committed(self, name: str, node: NodeTold, index: int) -> None:
        known, _ = self._committed.get(index, (None, 0))
        if known is not None and node.log[index][:2] != known[:2]:
            self._fail(f"{name} takes another entry for the committed one at {index}")

    def _applies(self, name: str, node: NodeTold, index: int, term: int, digest: int) -> None:
        """Check that all nodes apply the same, in the same order, and only what is committed."""
        if index > node.commit or (node.applied is not None and index <= node.applied):
            self._fail(f"{name} applies {index} behind {node.applied}, committed is {node.commit}")
        if index in node.log and node.log[index][:2] != (term, digest):
            self._fail(f"{name} applies at {index} what its log does not have there")
        known_digest, before = self._applied.setdefault(index, (digest, node.applied))
        if known_digest != digest or (None not in (before, node.applied) and before != node.applied):
            self._fail(f"{name} applies another entry at {index}, or leaves one out behind {node.applied}")
        if before is None:
            self._applied[index] = (digest, node.applied)
        node.applied = index

    # -- members --------------------------------------------------------------------------------------------

    def _check_change(self, name: str, node: NodeTold, index: int, entry: Entry) -> None:
        """Check a member list that a leader makes: Ongaro's dissertation, 4.1, with his correction of it."""
        before, voters = node.voters, entry.voters or frozenset()
        if node.lists and node.lists[-1] > node.commit:
            self._fail(
                f"{name} changes the members at {index}; the list at {node.lists[-1]} is not committed"
            )
        if before and len(before ^ voters) > 1:
            self._fail(f"{name} changes the members from {sorted(before)} to {sorted(voters)}")
        committed = node.log.get(node.commit)
        if before != voters and (committed is None or committed.term != node.term):
            self._fail(f"{name} changes the members in term {node.term}, in which it has committed nothing")

    def _counts(self, name: str, node: NodeTold, others: Iterable[str]) -> None:
        if frozenset(others) != node.voters - {name}:
            self._fail(f"{name} counts {sorted(others)}; the list in its log has {sorted(node.voters)}")

    def _prune(self) -> None:
        """Forget what is long committed."""
        floor = self._commit - REMEMBERED
        if floor > self._floor + PRUNED_EVERY:
            for index in range(self._floor, floor + 1):
                self._entries.pop(index, None)
                self._committed.pop(index, None)
                self._applied.pop(index, None)
            self._floor = floor
