"""The checker of rate limits, where limits change: it objects to what is not promised and to nothing else."""

import itertools

import pytest

from lockstate.words.commands.primitives import TakeRate
from lockstate.words.kinds import Algorithm
from lockstate.words.results import RateTaken
from tests.simulation.checks import rates as checked
from tests.simulation.checks.model_replay import Answer, Step
from tests.simulation.checks.rates import Rates
from tests.simulation.checks.report import Report
from tests.simulation.checks.scripted_cluster import ScriptedCluster, objects
from tests.simulation.workload.history import Call

NUMBERS = itertools.count(1)


def request(limit: int, cost: int, algorithm: Algorithm = Algorithm.GCRA, wait_ms: int = 0) -> TakeRate:
    """Return a request to the one rate limit of these tests."""
    return TakeRate("r", limit, 1000, algorithm, cost, wait_ms)


def tell(rates: Rates, at_ms: int, command: TakeRate, told_us: int | None = None) -> None:
    """Tell that a client heard that it may go at `at_ms`; asked and told in that moment unless said."""
    told_us = at_ms * 1000 if told_us is None else told_us
    call = Call(
        number=next(NUMBERS),
        client="one",
        node_id="a",
        command=command,
        called_us=told_us,
        known_revision=0,
        known_token=0,
    )
    rates.called(call)
    rates.replied(call, RateTaken(True, command.limit, 0, 0, 0, at_ms), told_us)


def commit(rates: Rates, at_ms: int, command: TakeRate) -> None:
    """Tell that an entry admitted a request, without any client that hears of it."""
    result = RateTaken(True, command.limit, 0, 0, 0, at_ms)
    rates.applied(Step(1, at_ms, [Answer("a", command, result)]))


def test_a_larger_limit_that_nobody_was_told_of() -> None:
    """A request whose answer got lost lets the bucket leak faster: what that makes room for is promised."""
    cluster = ScriptedCluster()
    cluster.ask(request(2, 2))
    lost = request(20, 1)
    cluster.call(lost)
    cluster.commit(lost)
    cluster.pass_ms(200)
    taken = cluster.ask(request(2, 2))
    assert isinstance(taken, RateTaken)
    assert taken.allowed


def test_a_larger_limit_after_a_wait() -> None:
    """The limit of a request that had to wait counts, too, where only those without a wait are counted."""
    rates = Rates(Report(), 0.002)
    tell(rates, 1000, request(2, 2))
    tell(rates, 1001, request(20, 1, wait_ms=8000))
    tell(rates, 1200, request(2, 2))


@pytest.mark.parametrize("at_ms", [999, 1201])
def test_a_larger_limit_at_another_time(at_ms: int) -> None:
    """A larger limit that was admitted before the stretch or after it does not excuse what is in it."""
    rates = Rates(Report(), 0.002)
    commit(rates, at_ms, request(20, 1))
    tell(rates, 1000, request(2, 2))
    with objects("rate-promise"):
        tell(rates, 1200, request(2, 1))


def test_a_larger_limit_of_another_rate_limit() -> None:
    """The limit of another algorithm does not excuse it."""
    rates = Rates(Report(), 0.002)
    tell(rates, 1000, request(2, 2))
    commit(rates, 1001, request(20, 1, Algorithm.SLIDING_WINDOW))
    with objects("rate-promise"):
        tell(rates, 1200, request(2, 1))


def test_more_than_the_larger_limit_allows() -> None:
    """What goes beyond the flow of the larger limit is found, although nobody was told of that."""
    rates = Rates(Report(), 0.002)
    tell(rates, 1000, request(2, 2))
    commit(rates, 1001, request(10, 1))
    tell(rates, 1100, request(2, 1))
    commit(rates, 1101, request(10, 1))
    tell(rates, 1200, request(2, 1))
    with objects("rate-promise"):
        tell(rates, 1200, request(2, 1))


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_limit_of_the_last_request_counts(algorithm: Algorithm) -> None:
    """A request with a smaller limit gets no place that only a larger one has; the other way it does."""
    rates = Rates(Report(), 0.002)
    tell(rates, 1000, request(2, 2, algorithm))
    tell(rates, 1001, request(5, 2, algorithm))
    with objects("rate-promise"):
        tell(rates, 1002, request(2, 1, algorithm))


def test_too_much_by_the_clocks_of_clients() -> None:
    """The larger limit excuses no more than its flow in the true time between question and answer."""
    rates = Rates(Report(), 0.002)
    tell(rates, 1000, request(2, 2), told_us=1_000_000)
    commit(rates, 5000, request(20, 1))
    tell(rates, 8000, request(2, 2), told_us=1_100_000)
    with objects("rate-outside"):
        tell(rates, 9000, request(2, 1), told_us=1_101_000)


def test_limits_that_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """No stretch is looked at whose limits are not all remembered."""
    monkeypatch.setattr(checked, "LIMITS_KEPT", 2)
    rates = Rates(Report(), 0.002)
    tell(rates, 1000, request(2, 2))
    commit(rates, 1001, request(20, 1))
    for at_ms in (1199, 1200):
        commit(rates, at_ms, request(2, 1))
    tell(rates, 1200, request(2, 2))
    with objects("rate-promise"):
        tell(rates, 1200, request(2, 1))
