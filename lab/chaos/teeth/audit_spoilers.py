"""What no audit may tell, and what no client may be told beside it: see spoilers.py."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Final

from lab.chaos.checkers.audit_replay import ENDS, FIELDS, Record
from lab.chaos.history import Operation
from lab.chaos.teeth.spoiler import Lines, Spoiler, every


def _records(lines: Lines, *events: str) -> Iterator[tuple[Operation, dict[str, Any]]]:
    """Yield the records of the audit that tell of these events, each with the read that shows it."""
    for read in every(lines, "audit"):
        for row in read.result["records"]:
            record = dict(zip(FIELDS, row, strict=True))
            if record["event"] in events:
                yield read, record


def _record_of(lines: Lines, change: Operation, *events: str) -> tuple[Operation, dict[str, Any]]:
    """Return the record of what an operation did to its owner's hold, and the read that shows it."""
    owner = change.arguments["owner"]
    return next(found for found in _records(lines, *events) if found[1]["owner"] == owner)


def _rewrite(read: Operation, record: dict[str, Any], **fields: Any) -> None:
    """Write other fields into a record; without any, leave it out as if it were of another name."""
    rows = read.result["records"]
    at = next(at for at, row in enumerate(rows) if row[0] == record["number"])
    rows[at : at + 1] = [list((record | fields).values())] if fields else []


def _record_missing(lines: Lines) -> None:
    read, record = next(_records(lines, "granted"))
    _rewrite(read, record)
    read.result["numbers"].remove(record["number"])


def _force_untold(lines: Lines) -> None:
    _rewrite(*next(_records(lines, "forced")))


def _force_of_nobody(lines: Lines) -> None:
    read, record = next(_records(lines, "forced"))
    _rewrite(read, record, reason="nobody's")


def _granted_in_part(lines: Lines) -> None:
    several = next(item for item in every(lines, "get") if len(item.arguments["parts"]) > 1)
    _rewrite(*_record_of(lines, several, "granted"))


def _granted_in_a_subtree(lines: Lines) -> None:
    """Let a grant be told before the end that made room for it."""
    for read in every(lines, "audit"):
        rows = read.result["records"]
        for at, (end, grant) in enumerate(pairwise(rows)):
            ended, granted = Record(*end), Record(*grant)
            is_room = ended.part.scope == "subtree" and ended.part.excludes(granted.part)
            if is_room and (ended.event in ENDS, granted.event) == (True, "granted"):
                rows[at : at + 2] = [[*end[:2], *grant[2:]], [*grant[:2], *end[2:]]]
                return
    raise StopIteration


def _token_kept(lines: Lines) -> None:
    """Let a conversion keep the token that the hold was granted with, and say so everywhere."""
    convert = next(item for item in every(lines, "convert") if item.arguments["mode"] == "exclusive")
    _, grant = _record_of(lines, convert, "granted")
    drawn = convert.result["token"]
    convert.result["token"] = grant["token"]
    for read, record in list(_records(lines, "converted", *ENDS)):
        if record["token"] == drawn:
            _rewrite(read, record, token=grant["token"])


def _given_back_expired(lines: Lines) -> None:
    whole = next(item for item in every(lines, "give-back") if not item.arguments["names"])
    read, record = _record_of(lines, whole, "released", "resigned")
    _rewrite(read, record, event="expired")


def _shown_late(lines: Lines) -> None:
    """Let a read show a hold that was given back before."""
    shows = [item for item in every(lines, "show") if "holders" in item.result]
    show, get = next(
        (show, get)
        for show in shows
        for back in every(lines, "give-back", name=show.name)
        for get in every(lines, "get", name=show.name)
        if back.return_ns < show.call_ns and back.arguments["owner"] == get.arguments["owner"]
    )
    show.result["holders"] = [{"token": get.result["token"], "owner": get.arguments["owner"]}]


AUDIT_SPOILERS: Final = (
    Spoiler("record-missing", "the audit leaves a record out", "audit", _record_missing),
    Spoiler("force-untold", "the audit does not tell that a hold was ended by force", "audit", _force_untold),
    Spoiler("force-of-nobody", "it tells of a force that nobody asked for", "audit", _force_of_nobody),
    Spoiler("granted-in-part", "of several things one is granted", "audit", _granted_in_part),
    Spoiler(
        "granted-in-a-subtree", "a name is granted in a subtree that is held", "audit", _granted_in_a_subtree
    ),
    Spoiler("token-kept", "a hold that becomes exclusive keeps its token", "audit", _token_kept),
    Spoiler(
        "given-back-expired", "what was given back is told to have expired", "audit", _given_back_expired
    ),
    Spoiler("shown-late", "a read shows what was given back before", "audit", _shown_late),
)
