"""Time: no lease ends early, and in healthy times none ends late.

All of it in true time, which nobody in the cluster knows.
"""

from dataclasses import dataclass
from typing import Final

from tests.simulation.checks.model_replay import Step
from tests.simulation.checks.report import Report

LATE_MS: Final = 50
"""A lease ends at most so much later than its ttl, in a healthy cluster."""


@dataclass(slots=True, frozen=True)
class _Lease:
    """One run of a lease: `asked_us` is before its beginning, `seen_us` behind it."""

    asked_us: int
    seen_us: int
    ttl_ms: int
    latest_us: int


class Leases:
    """Leases as the committed entries begin and end them, and the true times at which that was."""

    def __init__(self, report: Report, rate_allowance: float, latency_us: int) -> None:
        self._report = report
        self._rate = rate_allowance
        self._latency_us = latency_us
        self._leases: dict[int, _Lease] = {}
        self._late: list[tuple[_Lease, int]] = []
        self._asked_us = 0
        self._led_us = 0

    def __len__(self) -> int:
        """Return how many leases are followed."""
        return len(self._leases)

    def applied(self, step: Step, sent_us: int, now_us: int) -> None:
        """Record an entry when the first node applies it: commands in it were sent until `sent_us`.

        Everything in an entry was sent before it was stamped, and so was all in the entries before it: a
        lease that begins here is counted by the cluster from a later moment.
        """
        self._asked_us = max(self._asked_us, sent_us)
        for lease_id, is_expired in step.leases_ended:
            lease = self._leases.get(lease_id)
            if lease is not None and is_expired:
                self._expired(lease, step, now_us)
        for lease_id, ttl_ms in step.leases_begun.items():
            longest_us = round(ttl_ms * 1000 * (1 + self._rate))
            latest_us = now_us + longest_us + LATE_MS * 1000 + self._latency_us
            self._leases[lease_id] = _Lease(self._asked_us, now_us, ttl_ms, latest_us)
        for lease_id, _ in step.leases_ended:
            self._leases.pop(lease_id, None)

    def _expired(self, lease: _Lease, step: Step, now_us: int) -> None:
        earliest_us = lease.asked_us + lease.ttl_ms * 1000 * (1 - self._rate)
        if now_us < earliest_us:
            self._report.fail(
                "lease-early",
                f"a lease of {lease.ttl_ms} ms expired {(now_us - lease.asked_us) / 1000} ms after it was "
                f"asked for, at revision {step.revision}",
            )
        if now_us > lease.latest_us:
            self._late.append((lease, now_us))

    def leader_changed(self, now_us: int) -> None:
        """Record that another node leads: the time since the last entry counts against no lease."""
        self._led_us = now_us

    def healthy(self, from_us: int, until_us: int) -> None:
        """Check that no lease that should have ended in this stretch is late. Stretches come in order.

        One that began before it, or under another leader, has its whole time left at most: cluster time
        runs in a healthy cluster.
        """
        alive = [(lease, until_us) for lease in self._leases.values() if lease.latest_us < until_us]
        for lease, ended_us in [*self._late, *alive]:
            latest_us = lease.latest_us + max(0, max(from_us, self._led_us) - lease.seen_us)
            if latest_us < min(ended_us, until_us):
                lasted_ms = (ended_us - max(lease.seen_us, from_us)) / 1000
                self._report.fail(
                    "lease-late",
                    f"a lease of {lease.ttl_ms} ms was there {lasted_ms} ms after it was granted or renewed, "
                    "all of them in a healthy cluster",
                )
        self._late = [(lease, ended_us) for lease, ended_us in self._late if lease.latest_us >= until_us]
