"""What metrics of a program hear from both clients."""

import asyncio
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
from tests.unit.holdfast.conftest import NewClient, a_node

DEADLINE_S = 60
EXAMPLE = Path(__file__).resolve().parents[3] / "docs" / "examples" / "opentelemetry_metrics.py"


class Heard:
    """Metrics that remember what they have heard, without the times."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.renewals: list[tuple[str, str]] = []

    def waited(self, kind: str, names: tuple[str, ...], seconds: float, outcome: str) -> None:
        """Remember it."""
        assert seconds >= 0
        self.calls.append(("waited", kind, names, outcome))

    def held(self, kind: str, names: tuple[str, ...], seconds: float, reason: str) -> None:
        """Remember it."""
        assert seconds >= 0
        self.calls.append(("held", kind, names, reason))

    def renewed(self, kind: str, seconds: float, outcome: str) -> None:
        """Remember it."""
        assert seconds >= 0
        self.renewals.append((kind, outcome))


async def test_waits_and_holds_are_told(new_client: NewClient) -> None:
    """Each acquire is told with its outcome, and each hold with the reason of its end."""
    heard = Heard()
    async with a_node() as (_, url), new_client(url, metrics=heard) as client:
        async with client.locks("a", "b"):
            assert await client.lock("a").try_acquire() is None
        async with client.semaphore("s", limit=1), client.election("e"):
            """Held."""
        with pytest.raises(holdfast.InvalidRequest):
            await client.lock("a", mode="best").acquire()  # type: ignore[arg-type]
    assert heard.calls == [
        ("waited", "lock", ("a", "b"), "granted"),
        ("waited", "lock", ("a",), "held"),
        ("held", "lock", ("a", "b"), "released"),
        ("waited", "semaphore", ("s",), "granted"),
        ("waited", "election", ("e",), "granted"),
        ("held", "election", ("e",), "released"),
        ("held", "semaphore", ("s",), "released"),
        ("waited", "lock", ("a",), "failed"),
    ]


async def test_renewals_and_losses_are_told(new_client: NewClient) -> None:
    """A renewal of a lock that was ended by force is the last one, and the hold ends as lost."""
    heard = Heard()
    async with a_node() as (_, url), new_client(url, metrics=heard) as client:
        with pytest.raises(holdfast.LeaseLost):  # noqa: PT012 - a block is what is tested
            async with client.lock("a", ttl=9) as hold:
                async with asyncio.timeout(DEADLINE_S):
                    while not heard.renewals:  # noqa: ASYNC110 - no event to await
                        await asyncio.sleep(0.01)
                    await client.admin.force_release("a", reason="a test")
                    while hold.is_valid:  # noqa: ASYNC110 - it is one of either client
                        await asyncio.sleep(0.01)
    assert heard.renewals[0] == ("lock", "renewed")
    assert heard.renewals[-1] in {("lock", "over"), ("lock", "failed")}
    assert heard.calls[-1] in {("held", "lock", ("a",), reason) for reason in ("lease-expired", "expired")}


async def test_metrics_that_fail_cost_no_lock(
    new_client: NewClient, caplog: pytest.LogCaptureFixture
) -> None:
    """What they raise is logged."""

    class Broken(Heard):
        def waited(self, *_: Any) -> None:
            raise ZeroDivisionError

        def held(self, *_: Any) -> None:
            raise ZeroDivisionError

    async with a_node() as (_, url), new_client(url, metrics=Broken()) as client:
        async with client.lock("a") as hold:
            assert hold.is_valid
        assert (await client.inspect("a")).state == "free"
    assert caplog.text.count("metrics have failed") == 2


class Meter:
    """The calls of OpenTelemetry's meter that the example uses, with their names and arguments."""

    def __init__(self) -> None:
        self.recorded: list[tuple[str, float, dict[str, str]]] = []

    def create_histogram(self, name: str, unit: str = "", description: str = "") -> "Instrument":
        """Return a histogram."""
        assert (unit, bool(description)) == ("s", True)
        return Instrument(self, name)

    def create_counter(self, name: str, unit: str = "", description: str = "") -> "Instrument":
        """Return a counter."""
        assert (unit, bool(description)) == ("", True)
        return Instrument(self, name)


class Instrument:
    """A histogram or a counter."""

    def __init__(self, meter: Meter, name: str) -> None:
        self._meter = meter
        self._name = name

    def record(self, amount: float, attributes: dict[str, str] | None = None) -> None:
        """Remember a measurement."""
        self._meter.recorded.append((self._name, amount, attributes or {}))

    add = record


def _example() -> ModuleType:
    """Import the example."""
    spec = importlib.util.spec_from_file_location("opentelemetry_metrics", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_example_records_with_the_instruments_of_a_meter() -> None:
    """Names and attributes are few; a loss is counted."""
    meter = Meter()
    metrics: holdfast.Metrics = _example().OpenTelemetryMetrics(meter)
    metrics.waited("lock", ("a",), 0.5, "granted")
    metrics.renewed("lock", 0.1, "renewed")
    metrics.held("lock", ("a",), 2.0, "expired")
    assert meter.recorded == [
        ("holdfast.client.wait", 0.5, {"kind": "lock", "outcome": "granted"}),
        ("holdfast.client.renewal", 0.1, {"kind": "lock", "outcome": "renewed"}),
        ("holdfast.client.hold", 2.0, {"kind": "lock"}),
        ("holdfast.client.lost", 1, {"kind": "lock", "reason": "expired"}),
    ]
