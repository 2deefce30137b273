"""Random programs of lock commands on a real Redis and on nodes: the same answers, or a listed difference."""

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest
import redis

from lab.fuzz.redis_answers import Listed
from lab.fuzz.redis_programs import STEPS_COUNT, Pair
from lab.fuzz.redis_steps import program_of
from tests.process.redis_nodes import RedisCluster
from tests.support import servers

pytestmark = pytest.mark.process

PROGRAMS_COUNT: Final = 60


def answer(client: redis.Redis, words: tuple[Any, ...]) -> Any:
    """Return what a server answers, an error as its words."""
    connection: Any = client.connection
    connection.send_command(*words)
    try:
        return connection.read_response(disable_decoding=True)
    except redis.RedisError as error:
        return f"{type(error).__name__}: {error}"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[redis.Redis, redis.Redis]]:
    """Return a connection to one of three nodes, and one to Redis."""
    with (
        servers.redis_server() as server,
        RedisCluster.of(tmp_path_factory.mktemp("redis-differences"), "redis") as nodes,
        nodes.client("n2", single_connection_client=True, protocol=2) as ours,
        redis.Redis.from_url(server.url, single_connection_client=True, protocol=2) as theirs,
    ):
        theirs.config_set("requirepass", "")
        yield ours, theirs


async def test_random_programs_are_answered_alike(both: tuple[redis.Redis, redis.Redis]) -> None:
    """Those of the lab, without the steps behind which time passes: nodes end a lease when they get to it."""
    pytest.importorskip("lupa.lua51", reason="needs lupa, the extra redis-lua of the node")
    pair = Pair(*[client.connection_pool.connection_kwargs["port"] for client in both])
    told: Counter[str] = Counter()
    for seed in range(PROGRAMS_COUNT):
        program = [step for step in program_of(random.Random(seed), STEPS_COUNT) if not step.pauses]
        with contextlib.suppress(Listed):
            assert await pair.run(program, told) == "", f"seed {seed}: {program}"
    assert told.total() > PROGRAMS_COUNT * STEPS_COUNT // 2


@pytest.mark.parametrize(
    ("words", "ours", "theirs"),
    [
        (("SET", "d", "v", "NX", "EX", 90_000), "ResponseError: ttl-out-of-range", b"OK"),
        (("SETEX", "d", 90_000, "v"), "ResponseError: ttl-out-of-range", b"OK"),
        (("SET", "d", "v" * 4_097), "ResponseError: 4097 bytes for one key; at most 4096 are allowed", b"OK"),
        (("RPUSH", "d", *["v" * 99] * 50), "ResponseError: 5", 50),
        (("SET", "d", "v", "IFEQ", "w"), None, "ResponseError: syntax error"),
        (("DELEX", "d", "IFEQ", "w"), 0, "ResponseError: unknown command 'DELEX'"),
        (("HF.TOKEN", "d"), None, "ResponseError: unknown command 'HF.TOKEN'"),
    ],
)
def test_the_differences_are_these(
    both: tuple[redis.Redis, redis.Redis], words: tuple[Any, ...], ours: Any, theirs: Any
) -> None:
    """What docs/faces.md lists is so: here a refusal that says why, there an answer."""
    for client, expected in zip(both, (ours, theirs), strict=True):
        answer(client, ("DEL", "d"))
        found = answer(client, words)
        if isinstance(expected, str):
            assert str(found).startswith(expected)
        else:
            assert found == expected
    answer(both[1], ("DEL", "d"))


def test_a_transaction_has_bounds(both: tuple[redis.Redis, redis.Redis]) -> None:
    """It changes at most 64 keys in one step, and nothing at all if it has more."""
    for client in both:
        answer(client, ("MULTI",))
        for number in range(65):
            assert answer(client, ("SET", f"many-{number}", "v")) == b"QUEUED"
    ours, theirs = (answer(client, ("EXEC",)) for client in both)
    assert theirs == [b"OK"] * 65
    assert str(ours).startswith(
        "ResponseError: 65 things to compare and 65 to change in one step; at most 64"
    )
    assert answer(both[0], ("EXISTS", "many-0", "many-64")) == 0
    answer(both[1], ("DEL", *[f"many-{number}" for number in range(65)]))


def test_a_lease_stays_one(both: tuple[redis.Redis, redis.Redis]) -> None:
    """PERSIST takes the time away from a string, and is refused for a lock."""
    for client in both:
        answer(client, ("SET", "p", "v", "NX", "PX", 60_000))
    ours, theirs = (answer(client, ("PERSIST", "p")) for client in both)
    assert theirs == 1
    assert str(ours).startswith("ResponseError: PERSIST is not supported by Holdfast")
