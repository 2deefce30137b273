"""Histories written by hand, in milliseconds: what clients asked, from when to when, and were told."""

import itertools
from typing import Any

from lab.chaos.history import FinalHolds, History, Holder, NodeState, Operation, Outcome

MS = 1_000_000


class Script:
    """Collects the lines of a history."""

    def __init__(self) -> None:
        self.lines: list[Operation | FinalHolds | NodeState] = []
        self._ids = itertools.count(1)

    def add(
        self,
        kind: str,
        name: str,
        call: int,
        until: int,
        outcome: Outcome = "ok",
        *,
        code: str = "",
        result: dict[str, Any] | None = None,
        client: str = "c",
        lost: int = 0,
        **arguments: Any,
    ) -> Operation:
        """Add any operation."""
        operation = Operation(
            id=next(self._ids),
            client=client,
            workload="w",
            kind=kind,
            name=name,
            call_ns=call * MS,
            return_ns=until * MS,
            outcome=outcome,
            code=code,
            lost=lost or int(outcome == "unknown"),
            arguments=arguments,
            result=result or {},
        )
        self.lines.append(operation)
        return operation

    def grant(
        self,
        hold: str,
        token: int,
        call: int,
        until: int,
        *,
        name: str = "a",
        ttl: int = 100,
        **arguments: Any,
    ) -> Operation:
        """Add an acquire that was granted; `hold` is the key and, unless given, the owner."""
        kind = arguments.pop("kind", "acquire")
        result = {"hold": hold, "token": token, "expires_in_ms": ttl, "sent_ns": call * MS}
        arguments.setdefault("owner", hold)
        arguments.setdefault("ttl_ms", ttl)
        return self.add(kind, name, call, until, result=result, **arguments)

    def refused(self, owner: str, call: int, until: int, *, name: str = "a", **arguments: Any) -> Operation:
        """Add an acquire that was refused because somebody has it."""
        code = arguments.pop("code", "lock-held")
        return self.add("acquire", name, call, until, "refused", code=code, owner=owner, **arguments)

    def unknown(self, owner: str, call: int, until: int, *, name: str = "a", ttl: int = 100) -> Operation:
        """Add an acquire without an outcome."""
        return self.add("acquire", name, call, until, "unknown", owner=owner, ttl_ms=ttl)

    def release(
        self, hold: str, call: int, until: int, outcome: Outcome = "ok", *, name: str = "a", **arguments: Any
    ) -> Operation:
        """Add a release."""
        kind = arguments.pop("kind", "release")
        return self.add(kind, name, call, until, outcome, hold=hold, **arguments)

    def renew(
        self,
        hold: str,
        call: int,
        until: int,
        *,
        outcome: Outcome = "ok",
        code: str = "",
        name: str = "a",
        ttl: int = 100,
    ) -> Operation:
        """Add a renewal."""
        result = {"expires_in_ms": ttl, "sent_ns": call * MS} if outcome == "ok" else {}
        return self.add("renew", name, call, until, outcome, code=code, hold=hold, result=result)

    def listing(self, call: int, until: int, *holders: tuple[str, str, int]) -> None:
        """Add the final listing of (name, owner, token)."""
        self.lines.append(
            FinalHolds(
                kind="lock",
                prefix="",
                call_ns=call * MS,
                return_ns=until * MS,
                holders=[Holder(name=name, owner=owner, token=token) for name, owner, token in holders],
            )
        )

    def node(self, node: str, revision: int, digest: str) -> None:
        """Add the end state of a node."""
        self.lines.append(NodeState(node=node, revision=revision, digest=digest, at_ns=10**9))

    @property
    def history(self) -> History:
        """What was collected."""
        return History(self.lines)
