"""Linearizability of locks, semaphores, fences, registers and cells, each name for itself."""

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from lab.chaos.checkers.holds import ACQUIRES, FOREVER_NS, RELEASES, RENEWALS, Hold, holds
from lab.chaos.checkers.models import (
    Busy,
    End,
    Ghost,
    Gone,
    Grant,
    Held,
    LockModel,
    Seen,
    SemaphoreModel,
    Vanish,
)
from lab.chaos.checkers.search import WORK_MAX, Answer, Call, Model, Search
from lab.chaos.checkers.value_models import (
    ABSENT,
    Advance,
    Differs,
    Exchange,
    FenceModel,
    Read,
    RegisterModel,
    Write,
)
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation

LOOKS: Final = ("look", "queue")
"""Linearizable reads of the holders of a lock."""
CELLS: Final = ("cell-read", "cell-write", "cell-delete")


def linearizable(history: History, work_max: int = WORK_MAX) -> list[Violation]:
    """The operations on each name can be put into an order that explains every answer."""
    found = []
    for kind, name, model, calls in problems(history):
        answer = Search(model, work_max).run(calls)
        if answer.verdict != "yes":
            found.append(_violation(kind, name, answer))
    return found


def problems(history: History) -> Iterator[tuple[str, str, Model[Any], list[Call]]]:
    """Yield what is to be searched: kind, name, model and calls."""
    locks: dict[tuple[str, str], list[Operation]] = {}
    for operation in history.operations:
        kind = _kind(operation)
        if kind:
            locks.setdefault((kind, operation.name), []).append(operation)
    known: dict[tuple[str, str], list[Hold]] = {}
    for hold in holds(history):
        known.setdefault((hold.kind, hold.name), []).append(hold)
    closes = _closes(history)
    for (kind, name), group in locks.items():
        if kind == "fence":
            yield kind, name, FenceModel(), list(_fence_calls(group))
        elif kind == "cell":
            yield kind, name, RegisterModel(ABSENT), list(_cell_calls(group))
        elif kind == "register":
            yield kind, name, RegisterModel(), list(_register_calls(group))
        else:
            has_waits = any(operation.arguments.get("wait_ms", 0) for operation in group)
            model = LockModel(has_waits=has_waits)
            if kind == "semaphore":
                limit = max(operation.arguments.get("limit", 1) for operation in group)
                model = SemaphoreModel(limit, has_waits=has_waits)
            yield kind, name, model, list(_Calls(closes, known.get((kind, name), []), group).all())


def _kind(operation: Operation) -> str:
    """Return the kind of thing that an operation concerns, empty if it is not one that is searched."""
    for kinds in (ACQUIRES, RELEASES, RENEWALS):
        if operation.kind in kinds:
            return kinds[operation.kind]
    others = {"advance": "fence", "register-read": "register", "register-write": "register"}
    others |= dict.fromkeys(CELLS, "cell")
    return "lock" if operation.kind in LOOKS else others.get(operation.kind, "")


def _closes(history: History) -> dict[str, list[Operation]]:
    """Return the ends of each session that had an effect or may have had one."""
    found: dict[str, list[Operation]] = {}
    for item in history.operations:
        if item.kind == "session-close" and item.outcome != "refused":
            found.setdefault(item.arguments["session"], []).append(item)
    return found


class _Calls:
    """Says what the operations on one lock or semaphore may have done, and what happens by itself."""

    def __init__(self, closes: dict[str, list[Operation]], known: list[Hold], group: list[Operation]) -> None:
        self._closes = closes
        self._known = known
        self._group = list(_merged(group))
        self._untold = _untold(self._group, {hold.token for hold in known})
        self._ids = itertools.count(-1, -1)  # of what no client asked for
        self._released: set[str] = set()
        self._seen_ghosts: set[Ghost] = set()
        self._modes = {hold.key: hold.mode for hold in known}
        self._may_end_ns = {hold.key: hold.trusted_until_ns for hold in known}

    def all(self) -> Iterator[Call]:
        """Yield the calls."""
        for operation in self._group:
            if operation.kind in ACQUIRES:
                yield from self._acquire(operation)
            elif operation.kind in LOOKS:
                yield from _look(operation)
            else:
                yield from self._use(operation)
        for hold in self._known:
            yield from self._ends(hold)

    def _acquire(self, operation: Operation) -> Iterator[Call]:
        arguments = operation.arguments
        mode, permits = arguments.get("mode", "exclusive"), arguments.get("permits", 1)
        is_busy = operation.outcome == "refused" and operation.code in ("lock-held", "no-permits")
        if operation.outcome == "ok":
            grant = Grant(operation.result["hold"], mode, permits, operation.result["token"])
            yield Call(operation.id, operation.call_ns, operation.return_ns, grant)
        elif is_busy:
            busy = Busy(mode, permits, _tokens(operation))
            yield Call(operation.id, operation.call_ns, operation.return_ns, busy)
        for _ in range(operation.lost):
            yield from self._lost(operation, mode, permits)

    def _lost(self, operation: Operation, mode: str, permits: int) -> Iterator[Call]:
        """Yield the grant that may have come of an attempt without its client knowing of it, and its end.

        A node whose client went away before it was answered takes the wait or the grant back, and the request
        is forgotten with it: what its client asks again is a new one. If somebody saw its owner with a token
        that no client was told of, that is the token of such a grant: it was not given before, nor again.
        """
        untold = self._untold.get(operation.arguments.get("owner", ""))
        if untold:
            grant = Grant(f"token {untold[0]}", mode, permits, untold.pop(0))
            yield Call(next(self._ids), operation.call_ns, None, grant)
            yield Call(next(self._ids), operation.call_ns, None, End(grant.key, mode))
            return
        ghost = Ghost(mode, permits)
        yield Call(next(self._ids), operation.call_ns, None, ghost, twin=ghost)
        if ghost not in self._seen_ghosts:
            self._seen_ghosts.add(ghost)
            yield Call(next(self._ids), -FOREVER_NS, None, Vanish(mode, permits), is_repeated=True)

    def _use(self, operation: Operation) -> Iterator[Call]:
        """Yield what a release or a renewal did or was told."""
        key = operation.arguments["hold"]
        is_release = operation.kind in RELEASES
        if operation.outcome == "ok":
            action = End(key, self._modes.get(key, "")) if is_release else Held(key)
            yield Call(operation.id, operation.call_ns, operation.return_ns, action)
            if is_release:
                self._released.add(key)
        elif operation.code == "lease-expired" and operation.outcome == "refused":
            yield Call(operation.id, operation.call_ns, operation.return_ns, Gone(key))
        elif operation.outcome == "unknown" and is_release:
            self._may_end_ns[key] = min(self._may_end_ns[key], operation.call_ns)

    def _ends(self, hold: Hold) -> Iterator[Call]:
        """Yield the end that no acknowledged release brought: by a lost one, of the lease, of the session."""
        if hold.key in self._released:
            return
        may_end_ns = self._may_end_ns[hold.key]
        for close in self._closes.get(hold.session, ()) if hold.session else ():
            may_end_ns = min(may_end_ns, close.call_ns)
            if close.outcome == "ok":
                # Whichever way the hold ended, it is over when the end of its session is known.
                yield Call(next(self._ids), close.call_ns, close.return_ns, Gone(hold.key))
        yield Call(next(self._ids), may_end_ns, None, End(hold.key, hold.mode))


def _look(operation: Operation) -> Iterator[Call]:
    """Yield what somebody saw who asked for the holders of a lock."""
    if operation.outcome == "ok":
        yield Call(operation.id, operation.call_ns, operation.return_ns, Seen(_tokens(operation)))


def _tokens(operation: Operation) -> frozenset[int]:
    """Return the tokens of the holders that an answer shows."""
    return frozenset(holder["token"] for holder in operation.result.get("holders", ()))


def _untold(group: list[Operation], told: set[int]) -> dict[str, list[int]]:
    """Return the tokens that were seen and that no client was told of, by owner and in order."""
    found: dict[str, set[int]] = {}
    for operation in group:
        for holder in operation.result.get("holders", ()):
            if holder["token"] not in told:
                found.setdefault(holder["owner"], set()).add(holder["token"])
    return {owner: sorted(tokens) for owner, tokens in found.items()}


def _merged(group: Iterable[Operation]) -> Iterator[Operation]:
    """Yield operations; those with one request id as one, which happened before the first answer to any.

    A refusal stands for itself: nothing is remembered of it, and the same id asked again is tried again.
    """
    requests: dict[str, list[Operation]] = {}
    for operation in group:
        if "request" in operation.arguments and operation.outcome != "refused":
            requests.setdefault(operation.arguments["request"], []).append(operation)
        else:
            yield operation
    for same in requests.values():
        first = min(same, key=lambda item: (item.outcome == "unknown", item.return_ns))
        yield msgspec.structs.replace(
            first, call_ns=min(item.call_ns for item in same), lost=sum(item.lost for item in same)
        )


def _fence_calls(group: Iterable[Operation]) -> Iterator[Call]:
    for operation in group:
        token = operation.arguments["token"]
        if operation.outcome == "refused":
            if operation.code == "stale-token":
                action = Advance(token, is_accepted=False, highest=operation.result.get("highest_token"))
                yield Call(operation.id, operation.call_ns, operation.return_ns, action)
            continue
        return_ns = operation.return_ns if operation.outcome == "ok" else None
        yield Call(operation.id, operation.call_ns, return_ns, Advance(token, is_accepted=True))


def _register_calls(group: Iterable[Operation]) -> Iterator[Call]:
    for operation in group:
        if operation.outcome == "ok":
            action: Read | Write
            if operation.kind == "register-read":
                action = Read(operation.result["value"])
            else:
                action = Write(operation.arguments["value"])
            yield Call(operation.id, operation.call_ns, operation.return_ns, action)


def _cell_calls(group: Iterable[Operation]) -> Iterator[Call]:
    """Yield what was done to a cell. Each write has a value of its own, by which conditions name it."""
    ids = itertools.count(-1, -1)
    for operation in group:
        arguments = operation.arguments
        is_told = operation.outcome != "unknown"
        action: Any = Write(ABSENT)
        if operation.kind == "cell-read":
            action = Read(operation.result.get("value", ABSENT))
        elif operation.kind == "cell-write":
            action = Write(arguments["value"])
            if "expected" in arguments:
                action = Exchange(arguments["expected"], arguments["value"])
        if operation.code == "cell-changed" and is_told:
            yield Call(operation.id, operation.call_ns, operation.return_ns, Differs(arguments["expected"]))
        elif operation.outcome == "ok" or (operation.code == "cell-not-found" and is_told):
            yield Call(operation.id, operation.call_ns, operation.return_ns, action)
        # A lost attempt may come late. One of a write that was told to be done is known by its request id.
        is_repeatable = operation.kind == "cell-delete" or operation.outcome != "ok"
        if operation.lost and is_repeatable and operation.kind != "cell-read":
            yield Call(next(ids), operation.call_ns, None, action)


def _violation(kind: str, name: str, answer: Answer) -> Violation:
    stuck = answer.stuck
    assert stuck is not None
    if answer.verdict == "undecided":
        text = f"the search over the {kind} {name} was given up after {answer.work} steps"
    else:
        text = f"no order of the operations on the {kind} {name} explains {stuck.action}"
    return Violation(
        checker="linearizability",
        text=text,
        operations=(stuck.id,) if stuck.id > 0 else (),
        at_ns=stuck.return_ns or stuck.call_ns,
        verdict="undecided" if answer.verdict == "undecided" else "broken",
    )
