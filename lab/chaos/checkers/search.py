"""The search for an order of all operations that a model allows and real time does not contradict.

It is that of Wing and Gong in the form of Lowe ("Testing for linearizability", 2017): it walks through calls
and returns in order of time, keeps all configurations that are possible so far (the model's state, and which
of the pending operations have happened already), and lets an operation happen no earlier than an answer needs
it. Only what may be needed for that answer is tried (`Search._useful_for`), and configurations are left out
that were seen before, are worse than one that was, or can be reached later just as well.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

State = TypeVar("State", bound=Hashable)

WORK_MAX: Final = 300_000
"""How many configurations are looked at before the search gives up."""


class Call(NamedTuple):
    """One operation: what it does if it happens, which it does at one moment from `call_ns` to `return_ns`.

    Without `return_ns` it happens at any later time or never: nobody knows its outcome. Of those with one
    `twin` all are alike: they have equal actions and no return. What `is_repeated` happens by itself, any
    number of times; however often it happens, no state comes back by it.
    """

    id: int
    call_ns: int
    return_ns: int | None
    action: Any
    twin: Hashable = None
    is_repeated: bool = False


class Model(Protocol[State]):
    """What a service may do, one operation at a time."""

    @property
    def initial(self) -> State:
        """The state before all operations."""

    def step(self, state: State, action: Any) -> State | None:
        """Return the state after an operation with the answer that it had, None if it cannot have it."""

    def is_read(self, action: Any) -> bool:
        """Whether an operation changes nothing, in whatever state it happens."""

    def matters(self, first: Any, second: Any) -> bool:
        """Whether `first` may be needed just before `second`.

        False only if the two may swap: in every state in which `first` and then `second` may happen, so may
        `second` and then `first`, and both lead to the same state; or if they may both be left out, because
        neither has a return, and one undoes the other.
        """

    def is_lost(self, state: State, action: Any) -> bool:
        """Whether an operation cannot have its answer in this state nor in any that follows."""


class Answer(NamedTuple):
    """Whether there is an order; if not, the first operation for whose answer there is none."""

    verdict: Literal["yes", "no", "undecided"]
    stuck: Call | None
    work: int


Done = frozenset[int]
"""Those of the pending operations that have happened, by id."""


class _Seen(Generic[State]):
    """The configurations that were reached, but for those that another one is better than.

    Of two with one state the better one has used fewer operations of unknown outcome: it can use them later.
    """

    def __init__(self, pending: dict[int, Call]) -> None:
        self._unknown = frozenset(call.id for call in pending.values() if call.return_ns is None)
        self._least: dict[tuple[State, Done], list[Done]] = {}

    def add(self, state: State, done: Done) -> bool:
        """Add a configuration; return whether it is worth a look."""
        used = done & self._unknown
        group = self._least.setdefault((state, done - used), [])
        if any(other <= used for other in group):
            return False
        group[:] = [other for other in group if not used <= other]
        group.append(used)
        return True

    def all(self) -> set[tuple[State, Done]]:
        """Return those that were added and that no other is better than."""
        return {(state, known | used) for (state, known), group in self._least.items() for used in group}


class Search(Generic[State]):
    """One search over the operations of one name."""

    def __init__(self, model: Model[State], work_max: int = WORK_MAX) -> None:
        self._model = model
        self._work_max = work_max
        self._work = 0
        self._pending: dict[int, Call] = {}
        self._reads: dict[int, Call] = {}
        """Those of the pending ones that are reads."""
        self._due: dict[int, Call] = {}
        """Those of the pending ones that change something and have an answer: they must happen."""
        self._groups: dict[Hashable, dict[int, Call]] = {}
        """The pending ones: twins together, the others each alone."""
        self._returning: Call | None = None
        self._useful: dict[frozenset[int], list[dict[int, Call]]] = {}
        """Those of the groups that may be needed before what returns now, by the reads still to happen."""

    def run(self, calls: Sequence[Call]) -> Answer:
        """Search; the ids of `calls` are unique."""
        configurations: set[tuple[State, Done]] = {(self._model.initial, frozenset())}
        for _, is_return, _, call in sorted(_events(calls), key=lambda event: event[:3]):
            if not is_return:
                self._add(call)
                continue
            if call.id not in self._pending:
                continue  # it has happened in every configuration before
            configurations = self._having_happened(call, configurations)
            if self._work > self._work_max:
                return Answer("undecided", call, self._work)
            if not configurations:
                return Answer("no", call, self._work)
            configurations = self._without_common(configurations)
        return Answer("yes", None, self._work)

    def _having_happened(
        self, call: Call, configurations: set[tuple[State, Done]]
    ) -> set[tuple[State, Done]]:
        """Return all configurations in which `call`, which returns now, has happened."""
        self._returning = call
        self._useful = {}
        seen: _Seen[State] = _Seen(self._pending)
        reached: _Seen[State] = _Seen(self._pending)
        queue: deque[tuple[State, Done]] = deque()
        for state, done in configurations:
            configuration = self._with_reads(state, done)
            if not self._is_lost(*configuration) and seen.add(*configuration):
                queue.append(configuration)
        while queue and self._work <= self._work_max:
            self._work += 1
            state, done = queue.popleft()
            if call.id in done:
                reached.add(state, done)
                continue
            for configuration in self._steps(state, done):
                if seen.add(*configuration):
                    queue.append(configuration)
        return self._first(reached.all())

    def _add(self, call: Call) -> None:
        """Take up an operation that is called now."""
        self._pending[call.id] = call
        self._groups.setdefault(_group_key(call), {})[call.id] = call
        if self._model.is_read(call.action):
            self._reads[call.id] = call
        elif call.return_ns is not None:
            self._due[call.id] = call

    def _useful_for(self, done: Done) -> list[dict[int, Call]]:
        """Return those groups of pending operations that may be needed before the one that returns now.

        It is among them. No answer is lost by leaving out the others. Take a shortest order in which some of
        the pending operations happen and then that one, and look at them from the last to the first. One that
        does not matter to any of those that stay in front may swap with each of them (to leave it out with
        one of them would make the order shorter); it has not returned yet, so it may as well happen later.
        What stays matters to something that stays, and so on down to what returns.

        Reads are among those to which others matter only until they have happened. They are not returned:
        they happen by themselves, see `_with_reads`.
        """
        waiting = frozenset(self._reads.keys() - done)
        if waiting not in self._useful:
            self._useful[waiting] = self._needed(waiting)
        return self._useful[waiting]

    def _needed(self, waiting: frozenset[int]) -> list[dict[int, Call]]:
        """Return these groups if of all reads only `waiting` have not happened."""
        assert self._returning is not None
        needed = [self._returning]
        own = self._groups[_group_key(self._returning)]
        groups = [own]
        left = [group for group in self._groups.values() if group is not own]
        left = [group for group in left if self._reads.keys().isdisjoint(group) or waiting & group.keys()]
        for later in needed:  # it grows
            others = []
            for group in left:
                first = next(iter(group.values()))  # the others are alike
                if self._model.matters(first.action, later.action):
                    needed.append(first)
                    groups.append(group)
                else:
                    others.append(group)
            left = others
        return [group for group in groups if self._reads.keys().isdisjoint(group)]

    def _steps(self, state: State, done: Done) -> Iterator[tuple[State, Done]]:
        """Yield what one more operation leads to."""
        for group in self._useful_for(done):
            call = next((each for each in group.values() if each.id not in done), None)
            if call is None:
                continue
            after = self._model.step(state, call.action)
            if after is None:
                continue
            configuration = self._with_reads(after, done if call.is_repeated else done | {call.id})
            if not self._is_lost(*configuration):
                yield configuration

    def _with_reads(self, state: State, done: Done) -> tuple[State, Done]:
        """Let all reads happen that the state allows: to wait has no advantage."""
        happened = [
            call.id
            for call in self._reads.values()
            if call.id not in done and self._model.step(state, call.action) is not None
        ]
        return (state, done.union(happened)) if happened else (state, done)

    def _is_lost(self, state: State, done: Done) -> bool:
        """Whether an operation that must happen cannot happen any more."""
        return any(
            call.id not in done and self._model.is_lost(state, call.action) for call in self._due.values()
        )

    def _first(self, configurations: set[tuple[State, Done]]) -> set[tuple[State, Done]]:
        """Leave out each configuration that one operation leads to from another one.

        Whatever may follow it may follow the other one, with that operation in front. No two are left out for
        each other: what happens once cannot be undone, and what is repeated never leads back.
        """
        if len(configurations) == 1:
            return configurations
        later: set[tuple[State, Done]] = set()
        for state, done in configurations:
            later.update(self._steps(state, done))
        return configurations - later

    def _without_common(self, configurations: set[tuple[State, Done]]) -> set[tuple[State, Done]]:
        """Forget the operations that have happened in every configuration."""
        common = frozenset.intersection(*(done for _, done in configurations))
        for call_id in common:
            key = _group_key(self._pending.pop(call_id))
            del self._groups[key][call_id]
            if not self._groups[key]:
                del self._groups[key]
            self._reads.pop(call_id, None)
            self._due.pop(call_id, None)
        return {(state, done - common) for state, done in configurations}


def _group_key(call: Call) -> Hashable:
    return call.id if call.twin is None else call.twin


def _events(calls: Iterable[Call]) -> Iterable[tuple[int, bool, int, Call]]:
    """Yield calls and returns with their times; at the same time calls come first."""
    for call in calls:
        yield call.call_ns, False, call.id, call
        if call.return_ns is not None:
            yield call.return_ns, True, call.id, call
