"""What a node can be asked to measure about itself at this moment."""

import math
import time
from collections.abc import Iterator
from typing import Final

from cluster.observing import live_memory
from cluster.observing.metrics import Sample, gauge
from cluster.observing.observed import Observed
from cluster.peers.cuts import Cut
from cluster.peers.peer_tls import PeerTlsMode

_CLOCK_RATE: Final = "How much faster a peer's clock runs than this node's; this node's own, than the median."


def gauges(node: Observed) -> list[Sample]:
    """Return the present values."""
    replica, machine = node.replica, node.machine
    build = node.build
    return [
        gauge(
            "build_info",
            "What this node runs; always 1.",
            1,
            version=build.version,
            commit=build.commit,
            python=build.python,
        ),
        *(
            gauge(table, f"{table.replace('_', ' ').capitalize()} in the replicated state.", count)
            for table, count in machine.counts().items()
        ),
        *(
            gauge("peer_up", "Whether a peer is connected.", node.links.is_up(peer_id), peer=peer_id)
            for peer_id in node.links.peer_ids()
        ),
        *(
            gauge("secret_step", "Step of the exchange of the secret.", is_at, step=step)
            for step, is_at in node.links.secrets.steps().items()
        ),
        *(
            gauge(
                "secret_agreed",
                "Whether a peer accepts and uses the same secrets.",
                node.links.secrets.agrees(peer_id),
                peer=peer_id,
            )
            for peer_id in node.links.peer_ids()
        ),
        gauge("peer_links_plain", "Links with peers that have no TLS.", node.links.plain_count()),
        *_peer_tls(node),
        gauge("secret_links_behind", "Links not proven with the current secret.", node.links.links_behind()),
        *(
            (
                "holdfast_links_cut_total",
                "Connections on the peers' port ended because something was wrong with them.",
                "counter",
                {"cut": cut.value},
                node.links.cuts.counts[cut],
            )
            for cut in Cut
        ),
        (
            "holdfast_duplicate_nodes_total",
            "Times that two processes were seen to use the identity of one peer.",
            "counter",
            {},
            node.peering.runs.alternations_count,
        ),
        (
            "holdfast_older_copies_total",
            "Times that a peer came with a data directory that had come further before.",
            "counter",
            {},
            node.peering.older_copies_count,
        ),
        gauge(
            "shut_out",
            "Whether this node takes no part: its directory has a copy, or is one.",
            bool(node.peering.shut_out.reason),
        ),
        gauge("state_bytes", "Counted memory of the replicated state.", machine.bytes_count),
        gauge("state_bytes_max", "Bound on the counted memory of the replicated state.", machine.bytes_max),
        gauge("members", "Nodes of the cluster.", len(replica.membership.voters), state="voter"),
        gauge("members", "Nodes of the cluster.", len(replica.membership.latest.learners), state="joining"),
        gauge("is_leader", "Whether this node leads.", replica.role.is_leader),
        gauge(
            "has_leader",
            "Whether this node knows a leader it can reach.",
            node.leadership.leader_id() is not None,
        ),
        gauge("term", "Raft term.", replica.role.term),
        gauge("revision", "Entries applied.", machine.revision),
        gauge("log_entries", "Entries in the log.", len(replica.log)),
        gauge("log_bytes", "Bytes of the commands in the log.", replica.engine.journal.bytes_count),
        gauge(
            "log_room",
            "What the log has room for: 0 anything, 1 only what frees something, 2 nothing.",
            replica.engine.log_room,
        ),
        gauge(
            "divergence_peers",
            "Peers whose state is not this node's at the same revision.",
            len(node.divergence.differing),
        ),
        gauge(
            "divergence_doubt",
            "Whether this node accepts no requests: no majority says which state is right.",
            node.divergence.is_in_doubt,
        ),
        gauge(
            "snapshot_failing_seconds",
            "Time since snapshots began to fail.",
            replica.engine.snapshots_failing_s,
        ),
        gauge("snapshot_seconds", "Time to write the last snapshot.", replica.engine.snapshot_took_s),
        (
            "holdfast_snapshot_failures_total",
            "Snapshots that could not be written.",
            "counter",
            {},
            replica.engine.snapshots_failed,
        ),
        *_space(node),
        *_lags(node),
        gauge("rules_active", "Version of the rules that the cluster follows.", machine.rules),
        gauge("rules_held", "Whether an operator holds the rules.", machine.state.rules_hold is not None),
        gauge(
            "preferred_leader_missing",
            "Whether operators prefer another node than the one that leads.",
            machine.state.preferred is not None
            and machine.state.preferred.node_id != node.leadership.leader_id(),
        ),
        *(
            gauge("rules_known", "Newest rules that a connected node knows.", known, node=node_id)
            for node_id in sorted(replica.membership.latest.nodes)
            if (known := node.peering.rules_known(node_id))
        ),
        *_clocks(node),
        gauge("pending_commands", "Commands of this node's clients without an outcome.", len(node.outbox)),
        gauge("waiting_acquires", "Acquires of this node's clients in queues.", len(node.waiters)),
        gauge("next_token", "Fencing token of the next grant.", machine.next_token),
        gauge("memory_blocks", "Blocks of up to 512 bytes that objects take.", live_memory.small_blocks()),
        gauge("memory_malloc_bytes", "Bytes that malloc has given out.", live_memory.malloc_bytes()),
        gauge("history_events", "Events that watchers can still read.", len(node.events)),
        gauge("history_oldest_revision", "Revision that can still be resumed from.", node.events.oldest),
        gauge("watchers", "Clients that watch on this node.", node.events.watchers),
        *(
            (
                "holdfast_watch_cuts_total",
                "Watches ended by this node.",
                "counter",
                {"reason": cut.value},
                count,
            )
            for cut, count in node.events.cuts.items()
        ),
    ]


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
    watch = node.peer_tls_watch
    if watch is None:
        return
    for mode in PeerTlsMode:
        text = "Step of the change to TLS between nodes."
        yield gauge("peer_tls_mode", text, watch.tls.mode is mode, mode=mode.value)
    for kind, count in watch.tls.opened.items():
        text = "Links with peers that came into use."
        yield "holdfast_peer_links_opened_total", text, "counter", {"kind": kind}, count
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
