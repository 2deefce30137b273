"""Metrics of a client for OpenTelemetry: how long it waits and holds, how renewals go, what was lost.

Run it as it stands: it prints what would be recorded. A program gives `opentelemetry.metrics.get_meter(...)`.
"""

import time
from typing import Any

import holdfast


class OpenTelemetryMetrics:
    """Records what a client tells, with the instruments of a meter (`opentelemetry.metrics.get_meter`)."""

    def __init__(self, meter: Any) -> None:
        self._wait = meter.create_histogram(
            "holdfast.client.wait", unit="s", description="Time of an acquire"
        )
        self._hold = meter.create_histogram("holdfast.client.hold", unit="s", description="Time of a hold")
        self._renewal = meter.create_histogram(
            "holdfast.client.renewal", unit="s", description="Time of a renewal"
        )
        self._lost = meter.create_counter("holdfast.client.lost", description="Holds that were lost")

    def waited(self, kind: str, names: tuple[str, ...], seconds: float, outcome: str) -> None:
        """Record the end of an acquire. Names are left out: each would be a time series of its own."""
        del names
        self._wait.record(seconds, {"kind": kind, "outcome": outcome})

    def held(self, kind: str, names: tuple[str, ...], seconds: float, reason: str) -> None:
        """Record the end of a hold, and count it if it was lost."""
        del names
        self._hold.record(seconds, {"kind": kind})
        if reason != "released":
            self._lost.add(1, {"kind": kind, "reason": reason})

    def renewed(self, kind: str, seconds: float, outcome: str) -> None:
        """Record the end of a renewal."""
        self._renewal.record(seconds, {"kind": kind, "outcome": outcome})


class PrintingMeter:
    """Has the calls of a meter that are used here, and prints what it is given."""

    def create_histogram(self, name: str, **_: str) -> "PrintingInstrument":
        """Return a histogram."""
        return PrintingInstrument(name)

    def create_counter(self, name: str, **_: str) -> "PrintingInstrument":
        """Return a counter."""
        return PrintingInstrument(name)


class PrintingInstrument:
    """Prints what it is given."""

    def __init__(self, name: str) -> None:
        self._name = name

    def record(self, _: float, attributes: dict[str, str]) -> None:
        """Print a measurement."""
        print(self._name, *attributes.values())

    add = record


def main(meter: Any) -> None:
    """Hold a lock, wait in vain for it, and lose it."""
    with holdfast.SyncClient(metrics=OpenTelemetryMetrics(meter)) as client:
        with client.lock("metered", ttl=2) as hold:
            time.sleep(1)  # it is renewed meanwhile
            client.lock("metered").try_acquire()
        try:
            with client.lock("metered", max_hold=0.1) as hold:
                hold.lost.wait()
        except holdfast.LeaseLost as error:
            print("lost:", error.reason)


if __name__ == "__main__":
    main(PrintingMeter())
