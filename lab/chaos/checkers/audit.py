"""The audit against the clients: its records explain every answer, and only requests explain its records.

It gives all changes one order. So each answer is right if it fits a place in that order between its call and
its return: no search is needed, whatever kinds of holds meet.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final

from lab.chaos.checkers.audit_replay import Part, Record, Replay, State
from lab.chaos.checkers.holds import trusted_until_ns
from lab.chaos.checkers.latest import Latest
from lab.chaos.checkers.violation import Violation
from lab.chaos.history import History, Operation

CHANGES: Final = ("get", "convert", "add", "give-back", "force")
GRANTED: Final = ("granted", "elected")
GIVEN_BACK: Final = ("released", "resigned")


def audited(history: History) -> list[Violation]:
    """The audit is whole, a possible story, and the one that clients were told."""
    audit = _Audit(item for item in history.operations if item.kind == "audit" and item.outcome == "ok")
    clients = [item for item in history.operations if item.kind in (*CHANGES, "show")]
    limits = {
        part.name: item.arguments["limit"] for item in clients if item.kind == "get" for part in _parts(item)
    }
    replay = Replay(audit.records, limits)
    judge = _Judge(audit, replay.states, clients)
    impossible = [
        _of(audit.shown_by[record.number], f"{_words(record)} {problem}") for record, problem in replay.found
    ]
    return [*audit.found, *impossible, *judge.causes(), *judge.answers()]


class _Audit:
    """What all reads of the audit say together, up to where one of them came too late."""

    def __init__(self, reads: Iterable[Operation]) -> None:
        self.found: list[Violation] = []
        self.ends: list[tuple[Operation, int]] = []
        """The reads that came to the end, with the number of the newest record."""
        self.shown_by: dict[int, Operation] = {}
        """The first read that showed a record."""
        records: dict[int, Record] = {}
        for read in reads:  # in order of their calls: it is one client that reads
            behind, numbers = read.arguments["behind"], read.result["numbers"]
            if numbers != list(range(behind + 1, behind + 1 + len(numbers))):
                if len(numbers) == read.arguments["limit"]:
                    break  # so much has happened that what lies between was pushed out before anybody asked
                self.found.append(_of(read, "the audit leaves records out"))
            for record in [Record(*row) for row in read.result["records"]]:
                self.shown_by.setdefault(record.number, read)
                records[record.number] = record
            if len(numbers) < read.arguments["limit"]:
                self.ends.append((read, max([behind, *numbers])))
        self.records = [records[number] for number in sorted(records)]


class _Judge:
    """Compares records and operations."""

    def __init__(self, audit: _Audit, states: list[State], clients: list[Operation]) -> None:
        self._audit = audit
        self._states = states
        self._clients = clients
        self._asked: dict[str, list[Operation]] = {}
        """What was asked of a hold, by its owner, and of those of others, by the reason."""
        for item in clients:
            if item.kind != "show":
                key = "reason" if item.kind == "force" else "owner"
                self._asked.setdefault(item.arguments[key], []).append(item)
        self._records: dict[str, list[Record]] = {}
        for record in audit.records:
            self._records.setdefault(record.owner, []).append(record)

    def causes(self) -> Iterator[Violation]:
        """Find records of what nobody asked for, and of leases that were not over."""
        for record in self._audit.records:
            read = self._audit.shown_by[record.number]
            key = record.reason if record.event == "forced" else record.owner
            asked = [item for item in self._asked.get(key, ()) if item.call_ns < read.return_ns]
            if record.event == "expired":
                trusted = [trusted_until_ns(item) for item in asked if item.kind == "get" and _is_ok(item)]
                if max(trusted, default=0) > read.return_ns:
                    yield _of(read, f"{_words(record)} before its lease was over")
            elif not any(self._may_have_made(item, record) for item in asked):
                yield _of(read, f"{_words(record)}, for which nobody asked")

    def answers(self) -> Iterator[Violation]:
        """Find answers that fit no place between their calls and their returns."""
        places = [(item, number) for item in self._clients if (number := self._place(item))]
        ends = self._audit.ends
        before = Latest((item.return_ns, number) for item, number in (*places, *ends))
        # What came later: of a change, the state that it changed was the last that could be seen before it.
        later = [*[(item, number - 1) for item, number in places], *ends]
        after = Latest((-item.call_ns, -number) for item, number in later)
        for item, number in (*places, *ends):
            if number < before.below(item.call_ns):
                yield _of(item, f"is at {number} of the audit, behind what was known before")
        told = {item.id for item, _ in places}
        covered_ns = max([read.call_ns for read, _ in ends], default=0)
        for item in self._clients:
            if item.return_ns >= covered_ns:
                continue
            has_changed = _is_ok(item) and item.kind != "show" and (item.kind != "force" or _ended(item))
            if has_changed and item.id not in told:
                yield _of(item, "was done, and the audit does not tell")
            low, high = before.below(item.call_ns), -after.below(-item.return_ns)
            if not any(_fits(item, state) for state in self._between(low, high or self._states[-1].number)):
                yield _of(item, f"tells of what never was, from {low} to {high} of the audit")

    def _may_have_made(self, item: Operation, record: Record) -> bool:
        """Whether a record may tell what an operation did, or that a node took back what it was granted."""
        if item.outcome == "refused" and not item.lost:
            return False
        if item.kind == "get" and item.lost:
            if record.event in GIVEN_BACK:
                return True
            if record.event in GRANTED and record.part in _parts(item) and self._is_given_back(record):
                return True  # to an attempt whose client was away; a later one was granted anew
        return self._is_of(item, record)

    def _is_given_back(self, granted: Record) -> bool:
        """Whether the audit tells that a grant was given back by its client, or by a node for it."""
        return any(
            record.event in GIVEN_BACK and record.token == granted.token
            for record in self._records[granted.owner]
        )

    def _is_of(self, item: Operation, record: Record) -> bool:
        """Whether a record tells of what an operation asked for, as far as it knows how it ended."""
        if _is_ok(item) and "token" in item.result and item.result["token"] != record.token:
            return False
        match item.kind:
            case "get":
                return record.event in GRANTED and record.part in _parts(item)
            case "add":
                return record.event == "converted" or (
                    record.event in GRANTED and record.part in _parts(item)
                )
            case "convert":
                return record.event == "converted" and record.mode == item.arguments["mode"]
            case "give-back":
                names = item.arguments["names"]
                return record.event in GIVEN_BACK and (not names or record.name in names)
        ended = [each for each in self._records[record.owner] if each.revision == record.revision]
        names = [each.name for each in ended if each.kind == item.arguments["of"]]
        is_meant = item.arguments.get("token", record.token) == record.token and item.name in names
        return record.event == "forced" and record.reason == item.arguments["reason"] and is_meant

    def _place(self, item: Operation) -> int:
        """Return the number of the last record that an operation surely made, 0 if it is not all there."""
        if not _is_ok(item) or item.kind == "show":
            return 0
        owner, ended = item.arguments.get("owner"), _ended(item)
        owners = {owner, *[one["owner"] for one in ended]}
        records = [each for key in owners for each in self._records.get(key, ()) if self._is_of(item, each)]
        names = [*[part.name for part in _parts(item)], *item.arguments.get("names", ())]
        wanted = {*[(owner, name) for name in names], *[(one["owner"], one["name"]) for one in ended]}
        is_told = wanted <= {(record.owner, record.name) for record in records}
        if not (records and is_told) or self._leaves_something(item, owners, records):
            return 0
        return max([record.number for record in records])

    def _leaves_something(self, item: Operation, owners: set[str], records: list[Record]) -> bool:
        """Whether something is left of what ends as a whole: of a hold, or of all that have a name."""
        if item.kind == "force" and "token" not in item.arguments:
            place = item.arguments["of"], item.name
            before = self._state_at(min([record.number for record in records]) - 1).held
            if any(one.part[:2] == place and one.owner not in owners for one in before):
                return True
        is_end = item.kind == "force" or (item.kind == "give-back" and not item.arguments["names"])
        behind = self._state_at(max([record.number for record in records])).held
        return is_end and any(one.owner in owners for one in behind)

    def _state_at(self, number: int) -> State:
        return next(self._between(number, number))

    def _between(self, low: int, high: int) -> Iterator[State]:
        """Yield the states from one place of the audit to another."""
        at = bisect_right(self._states, low, key=lambda state: state.number) - 1
        while at < len(self._states) and self._states[at].number <= max(low, high):
            yield self._states[at]
            at += 1


def _fits(item: Operation, state: State) -> bool:
    """Whether an answer that shows who has something may be of this state."""
    kind = item.arguments.get("of", "")
    if item.kind == "show" and _is_ok(item):
        held = {one.token for one in state.held if one.part.kind == kind and one.part.covers(item.name)}
        leader = item.result.get("leader")
        return held == {one["token"] for one in item.result.get("holders", [leader] if leader else [])}
    known = {(one.owner, one.token, one.part.name) for one in state.held}
    shown = {(one["owner"], one["token"], one["name"]) for one in item.result.get("holders", ())}
    return shown <= known


def _ended(item: Operation) -> list[dict[str, Any]]:
    """Return the holds that somebody was told to have ended by force."""
    return item.result["forced"] if item.kind == "force" else []


def _parts(item: Operation) -> list[Part]:
    return [Part(*row) for row in item.arguments.get("parts", ())]


def _is_ok(item: Operation) -> bool:
    return item.outcome == "ok"


def _words(record: Record) -> str:
    return f"audit {record.number}: {record.name} of {record.owner} was {record.event}"


def _of(item: Operation, text: str) -> Violation:
    return Violation(
        checker="audit", text=f"{item.kind} {item.name}: {text}", operations=(item.id,), at_ns=item.return_ns
    )
