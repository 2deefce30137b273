"""What a node can be asked to measure about itself at this moment."""

import math
import time
from collections.abc import Iterator
from itertools import chain
from typing import Final

from cluster.observing import live_memory
from cluster.observing.observed import Observed
from cluster.observing.samples import Sample, counter, gauge
from cluster.peers.cuts import Cut
from cluster.peers.peer_tls import PeerTlsMode

_CLOCK_RATE: Final = "How much faster a peer's clock runs than this node's; this node's own, than the median."


def gauges(node: Observed) -> list[Sample]:
    """Return the present values."""
    parts = (_state, _links, _peer_tls, _raft, _snapshots, _space, _lags, _rules, _clocks, _clients, _process)
    return list(chain.from_iterable(part(node) for part in parts))


def _state(node: Observed) -> Iterator[Sample]:
    """Yield how large the replicated state is, and what it has come to."""
    machine = node.machine
    for table, count in machine.counts().items():
        yield gauge(table, f"{table.replace('_', ' ').capitalize()} in the replicated state.", count)
    yield gauge("state_bytes", "Counted memory of the replicated state.", machine.bytes_count)
    yield gauge("state_bytes_max", "Bound on the counted memory of the replicated state.", machine.bytes_max)
    yield gauge("revision", "Entries applied.", machine.revision)
    yield gauge("next_token", "Fencing token of the next grant.", machine.next_token)
    differing = len(node.divergence.differing)
    yield gauge("divergence_peers", "Peers whose state is not this node's at the same revision.", differing)
    text = "Whether this node accepts no requests: no majority says which state is right."
    yield gauge("divergence_doubt", text, node.divergence.is_in_doubt)


def _links(node: Observed) -> Iterator[Sample]:
    """Yield how this node and its peers are connected, and who is not let in."""
    links, peering = node.links, node.peering
    peer_ids = links.peer_ids()
    for peer_id in peer_ids:
        yield gauge("peer_up", "Whether a peer is connected.", links.is_up(peer_id), peer=peer_id)
    for step, is_at in links.secrets.steps().items():
        yield gauge("secret_step", "Step of the exchange of the secret.", is_at, step=step)
    text = "Whether a peer accepts and uses the same secrets."
    for peer_id in peer_ids:
        yield gauge("secret_agreed", text, links.secrets.agrees(peer_id), peer=peer_id)
    yield gauge("secret_links_behind", "Links not proven with the current secret.", links.links_behind())
    text = "Connections on the peers' port ended because something was wrong with them."
    for cut in Cut:
        yield counter("links_cut_total", text, links.cuts.counts[cut], cut=cut.value)
    text = "Times that two processes were seen to use the identity of one peer."
    yield counter("duplicate_nodes_total", text, peering.runs.alternations_count)
    text = "Times that a peer came with a data directory that had come further before."
    yield counter("older_copies_total", text, peering.older_copies_count)
    text = "Whether this node takes no part: its directory has a copy, or is one."
    yield gauge("shut_out", text, bool(peering.shut_out.reason))


def _raft(node: Observed) -> Iterator[Sample]:
    """Yield who belongs to the cluster, who leads, and how long the log is."""
    replica = node.replica
    yield gauge("members", "Nodes of the cluster.", len(replica.membership.voters), state="voter")
    joining = len(replica.membership.latest.learners)
    yield gauge("members", "Nodes of the cluster.", joining, state="joining")
    yield gauge("is_leader", "Whether this node leads.", replica.role.is_leader)
    has_leader = node.leadership.leader_id() is not None
    yield gauge("has_leader", "Whether this node knows a leader it can reach.", has_leader)
    yield gauge("term", "Raft term.", replica.role.term)
    yield gauge("log_entries", "Entries in the log.", len(replica.log))
    yield gauge("log_bytes", "Bytes of the commands in the log.", replica.engine.journal.bytes_count)
    text = "What the log has room for: 0 anything, 1 only what frees something, 2 nothing."
    yield gauge("log_room", text, replica.engine.log_room)


def _snapshots(node: Observed) -> Iterator[Sample]:
    """Yield how writing snapshots goes."""
    engine = node.replica.engine
    text = "Time since snapshots began to fail."
    yield gauge("snapshot_failing_seconds", text, engine.snapshots_failing_s)
    yield gauge("snapshot_seconds", "Time to write the last snapshot.", engine.snapshot_took_s)
    text = "Snapshots that could not be written."
    yield counter("snapshot_failures_total", text, engine.snapshots_failed)


def _space(node: Observed) -> Iterator[Sample]:
    """Yield what the data directory takes, once that is known."""
    space = node.space.space
    if space is None:
        return
    yield gauge("directory_bytes", "Bytes of all files in the data directory.", space.directory)
    yield gauge("disk_free_bytes", "Bytes that are free on the disk of the data directory.", space.free)
    yield gauge("snapshot_bytes", "Bytes of the snapshot.", space.snapshot)
    if space.written_s is not None:
        age_s = max(0.0, time.time() - space.written_s)
        yield gauge("snapshot_age_seconds", "Time since the snapshot was written.", age_s)


def _lags(node: Observed) -> Iterator[Sample]:
    """Yield how long no leader was heard; and on the leader, how far each peer is behind its log."""
    replica = node.replica
    if not math.isinf(replica.prevote.lag_s):
        yield gauge("leader_silence_seconds", "Time since a leader was heard.", replica.prevote.lag_s)
    if replica.role.is_leader:
        last_index = replica.log.last_index
        for peer_id in node.links.peer_ids():
            behind = max(0, last_index - replica.engine.match_index(peer_id))
            text = "Entries of this leader's log that a peer has not acknowledged."
            yield gauge("peer_lag_entries", text, behind, peer=peer_id)


def _peer_tls(node: Observed) -> Iterator[Sample]:
    """Yield how far this node has gone to links with TLS, and when the certificates for it end."""
    yield gauge("peer_links_plain", "Links with peers that have no TLS.", node.links.plain_count())
    watch = node.peer_tls_watch
    if watch is None:
        return
    for mode in PeerTlsMode:
        text = "Step of the change to TLS between nodes."
        yield gauge("peer_tls_mode", text, watch.tls.mode is mode, mode=mode.value)
    for kind, count in watch.tls.opened.items():
        text = "Links with peers that came into use."
        yield counter("peer_links_opened_total", text, count, kind=kind)
    for which, end_s in watch.ends_at_s.items():
        text = "Second since 1970 in which a certificate for peers ends."
        yield gauge("peer_tls_certificate_end_seconds", text, end_s, certificate=which)
    text = "1 while the TLS files for peers are unusable and an earlier certificate is in use."
    yield gauge("peer_tls_files_refused", text, watch.is_refused)


def _clocks(node: Observed) -> Iterator[Sample]:
    """Yield the rates of clocks, and the largest error of one."""
    rates = list(node.clocks.rates())
    yield gauge("clock_rate_ppm", _CLOCK_RATE, node.clocks.ppm, node=node.node_id)
    for node_id, rate in rates:
        yield gauge("clock_rate_ppm", _CLOCK_RATE, rate.ppm, node=node_id)
    error_ppm = max((rate.error_ppm for _, rate in rates), default=0.0)
    yield gauge("clock_rate_error_ppm", "How far these rates may be wrong.", error_ppm)


def _rules(node: Observed) -> Iterator[Sample]:
    """Yield which rules the cluster follows, and what operators have set."""
    machine = node.machine
    yield gauge("rules_active", "Version of the rules that the cluster follows.", machine.rules)
    is_held = machine.state.rules_hold is not None
    yield gauge("rules_held", "Whether an operator holds the rules.", is_held)
    for node_id in sorted(node.replica.membership.latest.nodes):
        if known := node.peering.rules_known(node_id):
            yield gauge("rules_known", "Newest rules that a connected node knows.", known, node=node_id)
    preferred = machine.state.preferred
    is_missing = preferred is not None and preferred.node_id != node.leadership.leader_id()
    text = "Whether operators prefer another node than the one that leads."
    yield gauge("preferred_leader_missing", text, is_missing)


def _clients(node: Observed) -> Iterator[Sample]:
    """Yield who waits for an answer of this node, and who watches on it."""
    events = node.events
    yield gauge("pending_commands", "Commands of this node's clients without an outcome.", len(node.outbox))
    yield gauge("waiting_acquires", "Acquires of this node's clients in queues.", len(node.waiters))
    yield gauge("history_events", "Events that watchers can still read.", len(events))
    yield gauge("history_oldest_revision", "Revision that can still be resumed from.", events.oldest)
    yield gauge("watchers", "Clients that watch on this node.", events.watchers)
    for cut, count in events.cuts.items():
        yield counter("watch_cuts_total", "Watches ended by this node.", count, reason=cut.value)


def _process(node: Observed) -> Iterator[Sample]:
    """Yield what this node runs, and the memory that its process takes."""
    build = node.build
    versions = {"version": build.version, "commit": build.commit, "python": build.python}
    yield gauge("build_info", "What this node runs; always 1.", 1, **versions)
    yield gauge("memory_blocks", "Blocks of up to 512 bytes that objects take.", live_memory.small_blocks())
    yield gauge("memory_malloc_bytes", "Bytes that malloc has given out.", live_memory.malloc_bytes())
