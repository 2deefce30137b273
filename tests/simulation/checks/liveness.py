"""Liveness with teeth: bounds on what may take how long, and on what may grow, in times without faults.

What a node shows is taken as `Vitals` every little while. The figures behind the bounds are kept for reports.
"""

from collections.abc import Collection, Iterable
from typing import Final

import msgspec

from tests.simulation.checks.report import Report

LEADER_S: Final = 6.0
"""All nodes know a leader so soon after everything was healed, and a few elections' patience."""
LEADER_ELECTIONS: Final = 6
ALONE_S: Final = 1.0
ALONE_ELECTIONS: Final = 3
"""A leader that hears no majority steps down within so many longest patiences, and ALONE_S."""
CALL_US: Final = 1_500_000
"""A call ends at most so much later than its time allows, where nothing stands in the way."""
LATE_US: Final = 400_000
"""A node gives up a command without an outcome so soon after its time: a few looks at the clock."""
UNKNOWN_MIN: Final = 5
UNKNOWN_SHARE: Final = 0.3
"""So many calls, and so many of all, may be without a certain outcome where nothing stands in the way."""
LOG_ENTRIES: Final = 300
LOG_COMPACTIONS: Final = 3
"""A log is no longer than so many times what it may be before it is compacted, and LOG_ENTRIES."""
FILES: Final = 12
"""Files in a data directory besides the segments of the journal, at most."""
SEGMENTS: Final = 8
"""Segments of a journal, at most, beside those that twice the bytes of the log need, and their heads."""
BESIDE_BYTES: Final = 80
"""Bytes beside those of an entry: a block of its own, with a head, and with a record of the commit."""


class Vitals(msgspec.Struct, frozen=True, kw_only=True):
    """What one node shows at a moment."""

    node_id: str
    leader_id: str | None
    is_leader: bool
    voters: Collection[str]
    log_entries: int
    log_bytes: int
    segments: int
    files: int
    stood_us: int
    """Until when it did not run, or waited for its disk: no bound counts from before."""
    is_removing: bool
    """Whether what the last snapshot made obsolete may still be there: it is removed piece by piece."""
    is_compacting: bool
    """Whether it writes a snapshot, or waits because one could not be written."""


class Liveness:
    """What the nodes show over time. `election_s` is the longest patience, `compact_entries` that of logs."""

    def __init__(
        self, report: Report, *, election_s: float, compact_entries: int, segment_bytes: int
    ) -> None:
        self._report = report
        self._election_us = int(election_s * 1_000_000)
        self._log_max = LOG_COMPACTIONS * compact_entries + LOG_ENTRIES
        self._segment_bytes = segment_bytes
        self._heard: dict[str, dict[str, int]] = {}
        self._leads_since: dict[str, int] = {}
        self._healed_us: int | None = None
        self._calls: dict[int, tuple[str, int, int]] = {}
        self.figures: dict[str, list[float]] = {}

    def heard(self, node_id: str, source: str, now_us: int) -> None:
        """Record that a message arrived."""
        self._heard.setdefault(node_id, {})[source] = now_us

    # -- leaders --------------------------------------------------------------------------------------------

    def healed(self, now_us: int) -> None:
        """Record that all faults are over, and that all nodes run."""
        self._healed_us = now_us

    def troubled(self) -> None:
        """Record that there are faults again."""
        self._healed_us = None

    def look(self, vitals: Iterable[Vitals], serving: Collection[str], now_us: int) -> None:
        """Look at all nodes that run. Those of `serving` shall have a leader, if they are a majority."""
        seen = {each.node_id: each for each in vitals}
        for each in seen.values():
            self._look_for_lone_leader(each, now_us)
        for node_id in self._leads_since.keys() - seen.keys():
            del self._leads_since[node_id]
        if self._healed_us is not None:
            self._look_for_leader(seen, serving, now_us, self._healed_us)

    def _look_for_lone_leader(self, each: Vitals, now_us: int) -> None:
        """Object to a leader that has heard no majority for long, and leads on."""
        if not each.is_leader:
            self._leads_since.pop(each.node_id, None)
            return
        since_us = self._leads_since.setdefault(each.node_id, now_us)
        limit_us = ALONE_ELECTIONS * self._election_us + int(ALONE_S * 1_000_000)
        from_us = max(since_us, each.stood_us)
        heard = self._heard.get(each.node_id, {})
        lately = {node_id for node_id in each.voters if heard.get(node_id, 0) > now_us - limit_us}
        if now_us - from_us > limit_us and 2 * len(lately | {each.node_id}) <= len(each.voters):
            self._report.fail(
                "lone-leader",
                f"{each.node_id} leads, and has heard of {sorted(each.voters)} only {sorted(lately)} "
                f"for {limit_us / 1e6:.1f} s",
            )

    def _look_for_leader(
        self, seen: dict[str, Vitals], serving: Collection[str], now_us: int, healed_us: int
    ) -> None:
        running = [node_id for node_id in serving if node_id in seen]
        if 2 * len(running) <= len(serving):
            return
        leaders = {seen[node_id].leader_id for node_id in running}
        took_us = now_us - healed_us
        leader_id = next(iter(leaders), None) if len(leaders) == 1 else None
        if leader_id is not None and leader_id in seen and seen[leader_id].is_leader:
            self._note("leader-after-s", took_us / 1e6)
            self._healed_us = None
        elif took_us > LEADER_S * 1_000_000 + LEADER_ELECTIONS * self._election_us:
            self._report.fail(
                "leader-late", f"all is well for {took_us / 1e6:.1f} s, and the nodes follow {leaders}"
            )

    # -- calls ----------------------------------------------------------------------------------------------

    def begun(self, number: int, node_id: str, allowed_us: int, now_us: int) -> None:
        """Record that a node has a call, which may take so long."""
        self._calls[number] = (node_id, now_us, now_us + allowed_us)

    def ended(self, number: int) -> None:
        """Record that it has ended, however it did."""
        self._calls.pop(number, None)

    def ended_late(self, number: int, node_id: str, late_us: int) -> None:
        """Object to a call that a node ended so much after its time, and ran all the while."""
        if late_us > LATE_US:
            self._report.fail(
                "call-in-time", f"{node_id} ends call {number} {late_us / 1e6:.2f} s after its time was over"
            )

    def healthy(self, from_us: int, until_us: int) -> None:
        """Object to calls that began in a stretch without faults and are over time at its end."""
        for number, (node_id, began_us, ends_us) in self._calls.items():
            if began_us >= from_us and ends_us + CALL_US < until_us:
                self._report.fail(
                    "call-ends",
                    f"call {number} on {node_id} is open for {(until_us - began_us) / 1e6:.1f} s, and may be "
                    f"for {(ends_us - began_us) / 1e6:.1f} s",
                )

    def outcomes(self, unknown: int, total: int) -> None:
        """Object if many calls of a stretch without faults had no certain outcome."""
        if total:
            self._note("unknown-share", unknown / total)
        if unknown >= UNKNOWN_MIN and unknown > UNKNOWN_SHARE * total:
            self._report.fail("outcome-known", f"{unknown} of {total} calls have no outcome, and all is well")

    # -- sizes ----------------------------------------------------------------------------------------------

    def sizes(self, vitals: Iterable[Vitals]) -> None:
        """Look at what logs and directories have become, at the end of a stretch without faults."""
        for each in vitals:
            self._note("log-entries", each.log_entries)
            self._note("segments", each.segments)
            if each.log_entries > self._log_max and not each.is_compacting:
                self._report.fail(
                    "log-bounded", f"the log of {each.node_id} has {each.log_entries} entries, not compacted"
                )
            if each.files > FILES:
                self._report.fail("disk-bounded", f"{each.node_id} keeps {each.files} files")
            needed_bytes = 2 * each.log_bytes + BESIDE_BYTES * each.log_entries
            segments_max = SEGMENTS + needed_bytes // self._segment_bytes
            if each.segments > segments_max and not each.is_removing:
                self._report.fail(
                    "disk-bounded",
                    f"{each.node_id} keeps {each.segments} segments for {each.log_bytes} bytes of its log",
                )

    def _note(self, what: str, figure: float) -> None:
        self.figures.setdefault(what, []).append(figure)
