"""A client of the lab: asks with patience, repeats what had no outcome under one id, and records it all."""

import asyncio
import secrets
import time
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from lab.chaos.history import Operation, Outcome, public_id
from lab.chaos.http_client import Attempt, send
from lab.chaos.lab import Lab, now_ns

ATTEMPT_S: Final = 2.0
"""How long a client listens to one node, waits in queues aside, before it asks again."""
BOUND_ATTEMPT_S: Final = 6.0
"""The same for a client that has no other node to ask: longer than a node may take."""
BACKOFF_S: Final = 0.02
BACKOFF_MAX_S: Final = 0.5

SECRETS: Final = {"hold_id": "hold", "session_id": "session"}
"""Fields that are recorded by a digest, under another name."""
LEFT_OUT: Final = frozenset(
    {"request_id", "name", "type", "title", "status", "detail", "instance", "outcome"}
)
"""Fields that no checker needs."""


class Reply(NamedTuple):
    """An operation as it was recorded, and the answer with its secrets."""

    operation: Operation
    body: dict[str, Any]

    @property
    def is_ok(self) -> bool:
        """Whether it was done."""
        return self.operation.outcome == "ok"

    @property
    def hold_id(self) -> str:
        """The secret of the hold that was granted."""
        return str(self.body["hold_id"])


class Client:
    """One client of a workload; asks one request at a time or several.

    A bound one asks only the node `node`; others go to the next node when one does not help.
    """

    def __init__(self, lab: Lab, workload: str, number: int, *, node: str = "") -> None:
        self.lab = lab
        self.name = f"{workload}-{number}"
        self.workload = workload
        self.node = node
        self.choices = lab.random(workload, number)
        self._session = lab.open_session()
        self._number = self._turn = number

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._session.close()

    def new_owner(self) -> str:
        """Return an owner that nobody else shows: what is seen of it belongs to one request."""
        return f"{self.name}-{secrets.token_hex(6)}"

    async def ask(
        self,
        kind: str,
        name: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        method: str = "POST",
        patience_s: float | None = None,
        keep: dict[str, Any] | None = None,
    ) -> Reply:
        """Ask until there is an outcome or the patience is over, and record it.

        `keep` is recorded among the arguments, beside the body. A body gets a request id, unless it has one.
        """
        patience_s = self.lab.patience_s if patience_s is None else patience_s
        sent = None if body is None else {"request_id": secrets.token_hex(12)} | body
        operation = Operation(
            id=self.lab.history.next_id(),
            client=self.name,
            bound=self.node,
            workload=self.workload,
            kind=kind,
            name=name,
            call_ns=now_ns(),
            return_ns=0,
            outcome="unknown",
            attempts=0,
            code="cancelled",
            arguments=public(body or {}) | (keep or {}),
        )
        answer: dict[str, Any] = {}
        try:
            answer = await self._attempts(operation, method, path, sent, patience_s)
        finally:  # also when cancelled: then it is unknown
            operation.return_ns = now_ns()
            self.lab.history.write(operation)
        return Reply(operation, answer)

    async def _attempts(
        self, operation: Operation, method: str, path: str, body: dict[str, Any] | None, patience_s: float
    ) -> dict[str, Any]:
        """Fill in the outcome of an operation; return the answer."""
        deadline_s = time.monotonic() + patience_s
        backoff_s = BACKOFF_S
        wait_s = (body or {}).get("wait_ms", 0) / 1000
        while True:
            operation.node = self._next_node(operation.attempts)
            operation.attempts += 1
            sent_ns = now_ns()
            timeout_s = wait_s + (BOUND_ATTEMPT_S if self.node else ATTEMPT_S)
            attempt = await send(
                self._session, method, self.lab.nodes[operation.node] + path, body, timeout_s
            )
            operation.lost += attempt.fate == "lost"
            if attempt.fate in ("ok", "refused") or time.monotonic() + backoff_s >= deadline_s:
                settle(operation, attempt, sent_ns, is_remembered=body is not None)
                return attempt.body
            await asyncio.sleep(backoff_s * self.choices.uniform(0.5, 1.0))
            backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)

    def _next_node(self, attempts: int) -> str:
        """Return the node to ask: for one that may ask all, another one after each failure."""
        nodes = sorted(self.lab.nodes)
        if self.node:
            return self.node if self.node in self.lab.nodes else nodes[0]
        self._turn += attempts > 0
        return nodes[self._turn % len(nodes)]

    def move_on(self) -> None:
        """Ask the next node from now on."""
        self._turn += 1

    def go_home(self) -> None:
        """Ask the node of its number first again, as clients do that spread over a cluster."""
        self._turn = self._number

    # --- what several workloads ask

    async def acquire(self, name: str, *, patience_s: float | None = None, **fields: Any) -> Reply:
        """Acquire a lock; without an owner in `fields` under a new one."""
        body = {"name": name, "owner": self.new_owner()} | fields
        return await self.ask("acquire", name, "/v1/locks/acquire", body, patience_s=patience_s)

    async def renew(self, name: str, hold_id: str, **fields: Any) -> Reply:
        """Renew a hold of a lock."""
        return await self.ask("renew", name, "/v1/locks/renew", {"hold_id": hold_id} | fields)

    async def release(self, name: str, hold_id: str) -> Reply:
        """Release a hold of a lock."""
        return await self.ask("release", name, "/v1/locks/release", {"hold_id": hold_id})

    async def pause(self, from_s: float, to_s: float) -> None:
        """Do nothing for a random while."""
        await asyncio.sleep(self.choices.uniform(from_s, to_s))


def public(fields: dict[str, Any]) -> dict[str, Any]:
    """Return fields of a request or an answer without secrets and without what no checker needs."""
    return {
        SECRETS.get(key, key): public_id(str(value)) if key in SECRETS else value
        for key, value in fields.items()
        if key not in LEFT_OUT
    }


def valid_until_ns(operation: Operation) -> int:
    """Return when a grant or a renewal ends by the count of its client, which begins before it asked."""
    return int(operation.result["sent_ns"] + operation.result["expires_in_ms"] * 1_000_000)


def settle(operation: Operation, attempt: Attempt, sent_ns: int, *, is_remembered: bool) -> None:
    """Write the last attempt into an operation; `is_remembered` if it has an id for its outcome."""
    outcome: Outcome
    match attempt.fate:
        case "ok":
            outcome = "ok"
        case "refused":
            # Under a request id, no attempt before this had another outcome. Without one, as at the end of a
            # session, a lost attempt may have done what this one finds done.
            outcome = "refused" if is_remembered or not operation.lost else "unknown"
        case _:
            outcome = "unknown" if operation.lost else "refused"
    operation.outcome = outcome
    operation.code = attempt.code
    operation.result = public(attempt.body)
    if outcome == "ok":
        operation.result["sent_ns"] = sent_ns
