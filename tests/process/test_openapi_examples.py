"""A real node, asked by examples that are made from its /openapi.json: all answers are as it says there.

The examples are the same in each run: so many of each operation as its schema wants them, and so many others.
Of what nobody can guess, ids of sessions and holds, every second one is put in the place of a made one, else
hardly a call would get as far as a good answer.
"""

import itertools
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final, TypeAlias

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from holdfast import wire
from scripts.local_cluster import LocalCluster

pytestmark = pytest.mark.process

EXAMPLES: Final = 6
"""Examples for each operation and mode. All together take some twenty seconds."""
WAIT_MS_MAX: Final = 5
"""An example that waits for a lock waits no longer."""
TIMEOUT_S: Final = 60
ENDLESS: Final = {f"GET {path}" for path in (wire.WATCH, wire.SESSION_WATCH, wire.STREAM)}
"""Operations whose answers do not end."""
THERE: Final = "made-before"
"""A namespace that there is: chance does not name one that it has set before."""
NOT_POSSIBLE: Final = {f"POST {wire.CLUSTER_TRANSFER_LEADERSHIP}"}
"""What a cluster of one node cannot do: it may answer 503."""
NEVER_GOOD: Final = NOT_POSSIBLE | {
    f"GET {wire.TICKET}",
    f"POST {wire.LOCK_PUT_OFF}",
    f"POST {wire.LOCK_HAND_OVER}",
    f"POST {wire.SEMAPHORE_PUT_OFF}",
    f"POST {wire.ELECTION_PUT_OFF}",
    *[f"{method} {wire.CLUSTER_MEMBERS}" for method in ("POST", "PATCH", "DELETE")],
    f"PUT {wire.CLUSTER_PREFERRED_LEADER}",
    f"PUT {wire.CLUSTER_LOG_LEVEL}",
    f"POST {wire.SESSION_FORCE_CLOSE}",
    f"POST {wire.ACQUIRE}",
    f"POST {wire.SEMAPHORE_ACQUIRE}",
    f"POST {wire.SEMAPHORE_RESIZE}",
    f"POST {wire.LOCK_ADD}",
    f"GET {wire.CELL}",
}
"""Operations that may have no good answer: chance does not make what they need, or there is only one node."""
UNFIT: Final = (not_a_server_error, positive_data_acceptance)
"""Checks that do not fit: 503 has its place; no schema says what is printable, or which holds there are."""
BY_HOLD: Final = ("/renew", "/release")
"""How the paths end of what names a hold, or a lock and its value in the place of one."""
Case: TypeAlias = "schemathesis.Case[Any]"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the URL of a cluster of one node, which refuses nothing that an operator can allow."""
    arguments = ["--allow-no-deadline", "*", "--allow-priority", "*"]
    with LocalCluster.up(tmp_path_factory.mktemp("openapi"), nodes=1, extra_args=arguments) as cluster:
        url = cluster.nodes()[0].http
        made = requests.put(
            f"{url}{wire.NAMESPACES}/{THERE}",
            json={"holds": 1_000, "reason": "for the examples"},
            timeout=TIMEOUT_S,
        )
        made.raise_for_status()
        yield url


class Ids:
    """Sessions and holds that there are."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._numbers = itertools.count()

    def put_into(self, case: Case) -> None:
        """Have a call name what there is, in the place of what was made up, and all else in plain letters."""
        case.path_parameters = {field: _plain(value) for field, value in case.path_parameters.items()}
        case.body = _plain(case.body)
        if case.operation.label in (f"DELETE {wire.CELLS}", f"DELETE {wire.RATES}"):
            case.query = {"prefix": "made-up/"}  # or all, and not both
        if case.operation.label == f"DELETE {wire.RATES}":  # the body or the query has it, and not both
            (case.body if isinstance(case.body, dict) else case.query)["reason"] = "by hand"
        for fields in (case.path_parameters, case.body):
            if isinstance(fields, dict) and "session_id" in fields:
                fields["session_id"] = self.session()
            if isinstance(fields, dict) and "request_id" in fields:
                fields["request_id"] = f"request-{next(self._numbers):08}"  # of plain letters few are left
        path, body = case.operation.path, case.body
        if case.operation.label == f"GET {wire.NAMESPACE}":
            case.path_parameters = dict.fromkeys(case.path_parameters, THERE)
        if isinstance(body, dict) and path in (wire.RATE_TAKE, wire.RATE_PEEK):  # no namespace sets them
            body |= {"limit": 5, "window_ms": 60_000, "cost": 1}
        if isinstance(body, dict) and ("hold_id" in body or path.endswith(BY_HOLD)):
            body["hold_id"] = self.hold(path)
            for other in {"name", "names", "value"} & body.keys() if path.endswith(BY_HOLD) else ():
                del body[other]

    def session(self) -> str:
        """Return a new session."""
        return str(self._post(wire.SESSIONS, ttl_ms=60_000)["session_id"])

    def hold(self, path: str) -> str:
        """Return a new hold of the kind that a path is about."""
        name = f"held/{next(self._numbers)}"
        if path.startswith(wire.ELECTIONS):
            campaign = {"name": name, "value": "v", "session_id": self.session()}
            return str(self._post(wire.ELECTION_CAMPAIGN, **campaign)["hold_id"])
        if path.startswith(wire.SEMAPHORES):
            return str(self._post(wire.SEMAPHORE_ACQUIRE, name=name, limit=3, ttl_ms=60_000)["hold_id"])
        return str(self._post(wire.LOCK_ACQUIRE, name=name, ttl_ms=60_000)["hold_id"])

    def _post(self, path: str, **body: Any) -> dict[str, Any]:
        answer: dict[str, Any] = requests.post(self._node + path, json=body, timeout=TIMEOUT_S).json()
        return answer


def _plain(value: Any) -> Any:
    """Return a value of JSON in which texts are of letters, digits and a few signs, and numbers are whole."""
    match value:
        case str():
            return (
                "".join([char for char in value if char.isascii() and (char.isalnum() or char in "-/")])
                or "x"
            )
        case float():
            return int(value)
        case list():
            return [_plain(each) for each in value]
        case dict():
            return {field: _plain(each) for field, each in value.items()}
    return value


class Asked:
    """The answers to the examples of one operation."""

    def __init__(self, operation: Any, ids: Ids) -> None:
        self.label: str = operation.label
        self.statuses: set[int] = set()
        self.wrong: list[str] = []
        self._operation, self._ids = operation, ids

    def ask(self, mode: GenerationMode) -> None:
        """Send examples of one mode."""
        count = itertools.count()

        @settings(
            max_examples=EXAMPLES,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=self._operation.as_strategy(generation_mode=mode))
        def send(case: Case) -> None:
            if mode is GenerationMode.POSITIVE and next(count) % 2:
                self._ids.put_into(case)
            self._send(case, mode)

        send()

    def _send(self, case: Case, mode: GenerationMode) -> None:
        wait_ms = case.body.get("wait_ms") if isinstance(case.body, dict) else None
        if isinstance(case.body, dict) and isinstance(wait_ms, int):
            case.body["wait_ms"] = min(wait_ms, WAIT_MS_MAX)
        response = case.call(timeout=TIMEOUT_S)
        status = response.status_code
        self.statuses.add(status)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and self.label not in NOT_POSSIBLE:
            self.wrong.append(f"{self.label} {status}: {response.text}")
        # What was put into an example may be what its schema does not want, and there are more ways to refuse
        # than this check knows.
        is_refused_or_ours = mode is GenerationMode.POSITIVE or status >= HTTPStatus.BAD_REQUEST
        unfit: list[Any] = [*UNFIT, *([negative_data_rejection] * is_refused_or_ours)]
        try:
            case.validate_response(response, excluded_checks=unfit)
        except* AssertionError as failures:
            self.wrong += [f"{self.label} {status}: {failure}" for failure in failures.exceptions]


def test_all_answers_are_as_the_api_describes_them(node: str) -> None:
    """The status is one that the operation has; type, head lines and body are those of that status."""
    schema = schemathesis.openapi.from_url(f"{node}/openapi.json")
    ids = Ids(node)
    operations = []
    for result in schema.get_all_operations():
        assert isinstance(result, Ok), result
        operations.append(result.ok())
    assert {operation.label for operation in operations} > ENDLESS
    asked = [Asked(operation, ids) for operation in operations if operation.label not in ENDLESS]
    for one in asked:
        for mode in GenerationMode:
            one.ask(mode)
    wrong = [text for one in asked for text in one.wrong]
    assert not wrong, "\n\n".join(wrong)
    assert {one.label for one in asked if min(one.statuses) >= HTTPStatus.BAD_REQUEST} <= NEVER_GOOD
