"""What one seed makes of a world: settings of nodes and clients, and which faults there are at all.

Swarm testing: a run with every fault at once never gets far, so each seed has a few of them, at rates of its
own.
"""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

import msgspec

from cluster.commands.batcher import ENTRY_LOAD_MAX
from cluster.commands.encoded_command import FREE
from cluster.commands.outbox import UNDER_WAY_LOAD_MAX
from lockstate.words.limits import STREAM_KEPT_MAX
from tests.simulation.faults.hostile_network import Chances
from tests.simulation.workload.client_settings import ClientSettings
from tests.simulation.workload.crowd import CrowdSettings

FAULTS: Final[dict[str, str]] = {
    "kill": "kill -9 of one node",
    "kill-at-write": "kill -9 at one of the next operations of a disk",
    "kill-at-step": "kill -9 between two callbacks of the event loop",
    "kill-all": "kill -9 of all nodes at once",
    "power": "one machine loses its power: what was not synced is lost in part",
    "power-all": "all machines lose their power at once",
    "pause": "SIGSTOP for a while: the clock goes on",
    "suspend": "the machine is suspended for a while: its clock stands still",
    "stop": "a node is stopped with SIGTERM and started again",
    "transfer": "leadership is handed over",
    "disk-full": "a disk is full for a while: writes end in the middle",
    "disk-error": "a write or a sync fails with EIO; a failed sync loses what was to be synced",
    "slow-disk": "syncs take long for a while",
    "bit-flip": "a bit of a file is flipped while the node is down; the directory is restored later",
    "read-error": "a read fails with EIO, often one of a start",
    "wrong-read": "a read brings a flipped bit, or a sector of zeros or of another place, once",
    "rot": "a bit of what is stored changes under the node; it is repaired when a start has refused it",
    "aimed": "a kill, a loss of power or an error in the middle of a start, a snapshot, or a cut of the log",
    "late-terms": "terms and votes get to a disk late, and power is lost meanwhile",
    "isolate": "one node is cut off",
    "split": "the nodes fall into two groups",
    "ring": "each node reaches its neighbours only",
    "bridge": "two groups, and one node that reaches both",
    "one-way": "nothing gets through in one direction between two nodes",
    "deaf": "one node hears nobody, and is heard",
    "fall-behind": "a follower is cut off until it needs a snapshot, and gets it over a slow link",
    "slow-node": "everything gets to one node late",
    "slow-child": "the writers of snapshots on one machine take long for each operation",
    "stall": "a process stands still in the middle of a callback",
    "clock-rate": "the clock of a machine runs at another rate for a while",
    "file-full": "there is no room on a disk for the files of one kind",
    "tampered": "somebody between two nodes changes, adds, repeats and takes away bytes for a while",
    "slow-link": "a direction between two nodes is slow and late",
    "reset": "a connection breaks for both sides, with what was under way",
    "half-open": "a connection breaks for one side, the other goes on believing in it",
    "client-cut": "a client and a node do not reach each other",
    "wall-clock": "the wall clock of a machine jumps",
    "power-at-write": "one machine loses its power at one of the next operations of its disk",
    "lost-disk": "a node comes back under its name with an empty disk; later the old one is found again",
    "early-lost-disk": "in the first start nodes are killed between its steps, and one loses its disk",
    "wrong-peers": "a node is restarted with wrong `peers`: too few, unknown or none, at other addresses",
    "copies": "copies of a node are started beside it, at another node's address, or under another id",
    "other-cluster": "a node of another cluster with the same secret has a member's address, or is added",
    "lost-alone": "a node is started on an empty disk and with no peers; later with what it had",
    "grow": "nodes are added, up to five",
    "shrink": "nodes are removed, down to three",
    "replace": "a node takes the place of another",
    "all-copied": "copies of all nodes are started beside them, as a cluster of their own",
    "older-copy": "a node comes back with the disk that it had seconds before; later with the present one",
}
"""The kinds of faults, each with what it does."""
TOO_SLOW: Final = frozenset({"fall-behind", "slow-link"})
"""Faults that slow a link down to less than clients of Redis put into the log: it would never catch up."""
NODES: Final = (1, 3, 3, 3, 3, 3, 3, 5, 5, 5)
"""How many nodes a cluster has."""
RATES: Final = (0.3, 1.0, 1.0, 3.0)
"""How many of a kind come in a simulated minute, if there are any; times the intensity of the seed."""
CROWDS: Final = (
    None,
    None,
    None,
    CrowdSettings(20, 2.0, 2.0, 0.5),
    CrowdSettings(60, 8.0, 0.7, 0.8),
    CrowdSettings(300, 40.0, 3.0, 0.4),
)
"""Bursts of requests; on half of all seeds there are none."""
INTENSITIES: Final = (1, 1, 2, 5)
FAR_US: Final = 40_000
"""How much later than to others everything gets to a node that is far away."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of the product that no simulated load would reach as they are."""

    pending_count: int = 20_000
    send_bytes: int = 1 << 20
    entry_bytes: int = 1 << 20
    entry_commands: int = 4_096
    free_load: int = FREE
    """What a command may have without any load; with less than nearly all have, they wait for their turns."""
    kept_count: int = STREAM_KEPT_MAX
    """How many outcomes are kept for a stream."""
    entry_load: int = ENTRY_LOAD_MAX
    under_way_load: int = UNDER_WAY_LOAD_MAX
    are_turns_kept: bool = True
    """Whether what a node takes surely has its outcome in that order; not if much of it has some load."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that a seed decides before anything happens."""

    seed: int
    node_ids: tuple[str, ...]
    heartbeat_ms: int
    election_ms_min: int
    election_ms_max: int
    compact_entries: int
    chunk_bytes: int
    segment_bytes: int
    prepared_bytes: int
    latency_us: int
    far_us: int
    """So much later than to others everything gets from the nodes to the last one."""
    jitter_us: int
    split_chance: float
    sync_us: int
    drift_ppm_max: int
    clients_count: int
    client_settings: ClientSettings
    hostile: Chances | None
    rates: dict[str, float]
    """Faults per simulated minute, by kind."""
    fault_s: tuple[float, float]
    """How long a fault lasts, from and to."""
    quiet_every_s: float
    """How often all is healed for a while."""
    child_step_us: int
    """How long each operation of the first node's writers of snapshots takes."""
    start_s: float
    """Within so much time the machines are switched on, one after the other."""
    streams_count: int = 0
    """How many clients number their commands on streams."""
    redis_count: int = 0
    """How many clients of Redis there are, which send commands again when answers are lost."""
    crowd: CrowdSettings | None = None
    """Bursts of requests, if there are any."""
    limits: Limits
    """Bounds of the product, made smaller."""
    upgraded_s: float = 0.0
    """When the last node gets a later release: until then it knows the first rules only."""

    @property
    def is_slow(self) -> bool:
        """Whether the load may be more than the cluster bears, also when all is well."""
        limits = self.limits
        is_small = limits.entry_commands < 100 or limits.entry_bytes < 50_000 or limits.entry_load < 100
        return self.crowd is not None and is_small


def nodes_of(seed: int) -> int:
    """Return how many nodes the cluster of a seed has, if nobody says."""
    return Random(f"nodes {seed}").choice(NODES)


def make_plan(
    seed: int,
    nodes_count: int,
    *,
    hostile: bool | None = None,
    faults: tuple[str, ...] | None = None,
    only_locks: bool = False,
    streams_count: int | None = None,
    redis_count: int = 0,
) -> Plan:
    """Return what `seed` decides; some of it may be decided by the caller instead.

    Beside `redis_count` clients of Redis there is one other, which asks for little but locks.

    With `only_locks` clients ask for single exclusive and shared locks, side by side, and for nothing else.
    """

    def one_of(setting: str, values: Sequence[Any]) -> Any:
        # Each setting has numbers of its own: a new one leaves the others of a seed as they were.
        return Random(f"plan {seed} {nodes_count} {setting}").choice(values)

    heartbeat_ms = one_of("heartbeat", (100, 200, 300, 300, 500, 500))
    election_ms_min = heartbeat_ms * one_of("election", (4, 5, 6))
    clients_count = one_of("clients", (2, 4, 8))
    operations_per_s = one_of("load", (2, 3, 4, 5, 6))
    intensity = one_of("intensity", INTENSITIES)
    chances = Chances(
        lost=one_of("lost", (0.0, 0.02, 0.1)),
        repeated=one_of("repeated", (0.02, 0.1)),
        late=one_of("late", (0.0, 0.05, 0.2)),
        late_us_max=one_of("late-max", (50_000, 2_000_000, 20_000_000)),
    )
    plan = Plan(
        seed=seed,
        node_ids=tuple(f"n{number}" for number in range(1, nodes_count + 1)),
        heartbeat_ms=heartbeat_ms,
        election_ms_min=election_ms_min,
        election_ms_max=election_ms_min * 2,
        compact_entries=one_of("compact", (10, 10, 30, 100, 1_000)),
        chunk_bytes=one_of("chunk", (512, 4_096, 256 * 1024)),
        segment_bytes=one_of("segment", (4_096, 32_768, 1 << 20)),
        prepared_bytes=one_of("prepared", (0, 4_096, 65_536)),
        latency_us=one_of("latency", (100, 300, 1_000)),
        far_us=one_of("far", (0, 0, 10_000, FAR_US)),
        jitter_us=one_of("jitter", (50, 500, 3_000)),
        split_chance=one_of("split", (0.0, 0.01, 0.2)),
        sync_us=one_of("sync", (100, 500, 3_000)),
        drift_ppm_max=one_of("drift", (50, 500, 950)),
        clients_count=clients_count,
        client_settings=ClientSettings(
            names=_names(one_of("names", (1, 3, 10, 100)), is_tree=one_of("tree", (False, True, True))),
            sessions_max=2 if clients_count <= 2 else 1,
            think_s=clients_count / operations_per_s,
            ttl_ms=one_of("ttl", ((50, 2_000), (500, 20_000), (1_000, 300_000))),
            wait_ms=one_of("wait", ((50, 2_000), (1_000, 20_000))),
            timeout_s=one_of("timeout", ((0.3, 2.0), (1.0, 6.0))),
            vocabulary_share=one_of("variety", (0.0, 0.3, 0.6, 0.9)),
            cells_share=one_of("cells", (0.0, 0.0, 0.3)),
            overrides_share=one_of("overrides", (0.0, 0.0, 0.1)),
        ),
        hostile=chances if one_of("hostile", (True, False, False, False, False)) else None,
        rates={
            kind: one_of(f"rate of {kind}", RATES) * intensity
            for kind in FAULTS
            if Random(f"plan {seed} {nodes_count} {kind}").random() < one_of("many", (0.15, 0.3, 0.5))
        },
        fault_s=one_of("lasting", ((0.05, 2.0), (0.5, 10.0), (2.0, 40.0))),
        quiet_every_s=one_of("quiet", (40.0, 120.0)),
        upgraded_s=one_of("upgraded", (0.0, 0.0, 10.0, 60.0)),
        child_step_us=one_of("child", (2_000, 2_000, 300_000, 1_000_000)),
        start_s=one_of("start", (0.0, 0.5, 10.0)),
        crowd=one_of("crowd", CROWDS),
        limits=Limits(
            pending_count=one_of("pending", (20_000, 20_000, 300)),
            send_bytes=one_of("send", (1 << 20, 1 << 20, 500, 5_000)),
            entry_bytes=one_of("entry-bytes", (1 << 20, 1 << 20, 2_000, 20_000)),
            entry_commands=one_of("entry-commands", (4_096, 4_096, 1, 20)),
            kept_count=one_of("kept", (STREAM_KEPT_MAX, STREAM_KEPT_MAX, 8, 20)),
        ),
    )
    if plan.limits.entry_commands == 1 and plan.far_us >= FAR_US:
        # Else there is no room for what clients ask for again: each entry takes so long.
        limits = msgspec.structs.replace(plan.limits, entry_commands=5)
        plan = msgspec.structs.replace(plan, limits=limits)
    if faults is None and one_of("loads", (False, False, False, True)):
        limits = msgspec.structs.replace(
            plan.limits,
            free_load=one_of("free", (0, 5)),
            entry_load=10,
            under_way_load=20,
            are_turns_kept=False,
        )
        plan = msgspec.structs.replace(plan, limits=limits)
    if streams_count is None:
        streams_count = one_of("streams", (0, 0, 1, 3)) if faults is None and not only_locks else 0
    plan = msgspec.structs.replace(plan, streams_count=streams_count)
    if hostile is not None:
        plan = msgspec.structs.replace(plan, hostile=chances if hostile else None)
    if faults is not None:
        rates = {kind: one_of(f"rate of {kind}", RATES) * intensity for kind in faults}
        plan = msgspec.structs.replace(plan, rates=rates)
    if redis_count:
        client_settings = msgspec.structs.replace(plan.client_settings, vocabulary_share=0.0, cells_share=0.0)
        plan = msgspec.structs.replace(
            plan,
            redis_count=redis_count,
            clients_count=1,
            client_settings=client_settings,
            streams_count=0,
            rates={kind: rate for kind, rate in plan.rates.items() if kind not in TOO_SLOW},
        )
    if only_locks:
        names = _names(len(plan.client_settings.names), is_tree=False)
        client_settings = msgspec.structs.replace(
            plan.client_settings, names=names, vocabulary_share=0.0, cells_share=0.0, overrides_share=0.0
        )
        plan = msgspec.structs.replace(plan, client_settings=client_settings)
    return plan


def _names(count: int, *, is_tree: bool) -> tuple[str, ...]:
    """Return the names of locks: side by side, or each below one before it."""
    names: list[str] = []
    for number in range(count):
        above = f"{names[(number - 1) // 2]}/" if is_tree and number else ""
        names.append(f"{above}n{number}")
    return tuple(names)
