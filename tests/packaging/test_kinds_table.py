"""The tables of kinds in semantics.md: what each kind has, over HTTP and on a stream, and why not where not.

They are made here, of the catalogue, the requests and the routes. An empty place has a reason.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from holdfast import wire
from holdfast.wire import commands as said
from http_api.server.metrics import RequestCounts
from http_api.server.refusal_trace import RefusalTrace
from http_api.v1.table import make_routes
from lockapi.requests import locks, primitives, several
from lockstate.catalogue import ROWS
from lockstate.words.commands import holds
from lockstate.words.commands.holds import Acquisition

SEMANTICS: Final = (Path(__file__).resolve().parents[2] / "docs" / "semantics.md").read_text("utf-8")


class Kind(NamedTuple):
    """How a hold of a kind is asked for, over HTTP and on a stream."""

    title: str
    over_http: Any
    on_stream: Any = None


KINDS: Final[dict[Any, Kind]] = {
    holds.Acquire: Kind("locks", locks.AcquireRequest, said.StreamAcquire),
    holds.AcquirePermits: Kind("permits", primitives.AcquirePermitsRequest, said.StreamAcquirePermits),
    holds.Campaign: Kind("an election", primitives.CampaignRequest, said.StreamCampaign),
    holds.AcquireSeveral: Kind("several kinds", several.AcquireSeveralRequest),
}
FEATURES: Final = {
    "a session's lease": ("session_id", "session_id"),
    "a lease of its own": ("ttl_ms", "ttl_ms"),
    "no deadline": ("no_deadline", "is_endless"),
    "a wait": ("wait_ms", "wait_ms"),
    "a wait in parts": ("poll_ms", "poll_ms"),
    "a priority": ("priority", "priority"),
    "asking by itself": ("ask_after_ms", "ask_after_ms"),
    "a value": ("value", "value"),
    "a secret value": ("value_secret", "is_secret"),
    "a note": ("note", "note"),
    "a lock-delay": ("lock_delay_ms", "lock_delay_ms"),
    "`if_held`": ("if_held", "if_held"),
    "modes": ("mode", "mode"),
    "subtrees": ("scope", "scope"),
    "several names": ("locks", "locks"),
}
"""What a request may say, and its field over HTTP and on a stream."""


class Call(NamedTuple):
    """What is done with a hold: the routes of the three kinds, "" for none, and the command of a stream."""

    title: str
    paths: tuple[str, str, str]
    on_stream: Any = None
    field: str = "request_id"
    """What a request of this kind says, over HTTP and on a stream."""


HOLD_KINDS: Final = ("a lock", "permits", "an election")
CALLS: Final = (
    Call("renew", (wire.LOCK_RENEW, wire.SEMAPHORE_RENEW, ""), said.StreamRenew),
    Call(
        "renew by value", (wire.LOCK_RENEW, wire.SEMAPHORE_RENEW, ""), said.StreamRenewByValue, field="value"
    ),
    Call("release", (wire.LOCK_RELEASE, wire.SEMAPHORE_RELEASE, wire.ELECTION_RESIGN), said.StreamRelease),
    Call(
        "release by value",
        (wire.LOCK_RELEASE, wire.SEMAPHORE_RELEASE, wire.ELECTION_RESIGN),
        said.StreamReleaseByValue,
        field="value",
    ),
    Call(
        "release in part",
        (wire.LOCK_RELEASE, wire.SEMAPHORE_RELEASE, wire.ELECTION_RESIGN),
        said.StreamRelease,
        field="names",
    ),
    Call("convert", (wire.LOCK_CONVERT, "", ""), said.StreamConvert),
    Call("add names", (wire.LOCK_ADD, "", "")),
    Call("change the value", ("", "", wire.ELECTION_PROCLAIM), said.StreamProclaim),
    Call("revoke", (wire.LOCK_REVOKE, wire.SEMAPHORE_REVOKE, wire.ELECTION_REVOKE)),
    Call("withdraw a revocation", (wire.LOCK_WITHDRAW, wire.SEMAPHORE_WITHDRAW, wire.ELECTION_WITHDRAW)),
    Call("put off", (wire.LOCK_PUT_OFF, wire.SEMAPHORE_PUT_OFF, wire.ELECTION_PUT_OFF)),
    Call("hand over", (wire.LOCK_HAND_OVER, "", "")),
    Call(
        "end by force",
        (wire.LOCK_FORCE_RELEASE, wire.SEMAPHORE_FORCE_RELEASE, wire.ELECTION_DEPOSE),
    ),
    Call("lift a delay", (wire.LOCK_LIFT_DELAY, wire.SEMAPHORE_LIFT_DELAY, "")),
)
_OF_SESSION: Final = "it lives with its session"
_POLLS: Final = "a stream keeps its waits itself"
_OPERATORS: Final = "operators use HTTP"
_RARE: Final = "it is rare"
WHY_NOT: Final = {
    ("a lease of its own", "an election"): _OF_SESSION,
    ("no deadline", "an election"): _OF_SESSION,
    ("no deadline", "several kinds"): "it would keep queues of every kind waiting for ever",
    ("a wait in parts", "locks"): _POLLS,
    ("a wait in parts", "permits"): _POLLS,
    ("a wait in parts", "an election"): _POLLS,
    ("a priority", "an election"): "candidates lead in order of arrival",
    ("a priority", "several kinds"): "it has one time of arrival in all its queues",
    ("asking by itself", "locks"): _RARE,
    ("asking by itself", "permits"): _RARE,
    ("asking by itself", "an election"): "candidates lead in order of arrival",
    ("asking by itself", "several kinds"): "it has no priority",
    ("a value", "several kinds"): "a value finds the hold of one name and one kind",
    ("a secret value", "an election"): "everybody may read who leads",
    ("a secret value", "several kinds"): "it has no value",
    ("a note", "an election"): "its value says it",
    ("a lock-delay", "an election"): "the next candidate leads at once",
    ("`if_held`", "permits"): "each request takes permits of its own",
    ("`if_held`", "several kinds"): "no other request shares it",
    ("modes", "permits"): "the limit says how many share it",
    ("modes", "an election"): "one leads",
    ("subtrees", "permits"): "a limit is of one name",
    ("subtrees", "an election"): "one leads under one name",
    ("several names", "permits"): "[several kinds](#several-kinds-at-once) has them",
    ("several names", "an election"): "each has a leader of its own",
    ("renew", "an election"): _OF_SESSION,
    ("renew by value", "an election"): _OF_SESSION,
    ("release by value", "an election"): "everybody may read its value",
    ("release in part", "permits"): "what was granted together is given back together",
    ("release in part", "an election"): "it has one name",
    ("convert", "permits"): "they have no mode",
    ("convert", "an election"): "it has no mode",
    ("add names", "a lock"): _RARE,
    ("add names", "permits"): "[several kinds](#several-kinds-at-once) has them, from the beginning",
    ("add names", "an election"): "it has one name",
    ("change the value", "a lock"): "a value finds the hold, so it stays",
    ("change the value", "permits"): "a value finds the hold, so it stays",
    ("hand over", "a lock"): _RARE,
    ("hand over", "permits"): "they go to the first that waits",
    ("hand over", "an election"): "candidates lead in order of arrival",
    ("lift a delay", "an election"): "it has none",
    **{
        (call, kind): _OPERATORS
        for call in ("revoke", "withdraw a revocation", "end by force")
        for kind in HOLD_KINDS
    },
    **{("lift a delay", kind): _OPERATORS for kind in HOLD_KINDS[:2]},
    **{("put off", kind): _RARE for kind in HOLD_KINDS},
}
"""Why something is not there at all, or not on a stream."""


def said_by(request: Any) -> set[str]:
    """Return what a request may say, also of each of its locks."""
    names = set() if request is None else set(request.__struct_encode_fields__)
    return names | set(locks.WantedLock.__struct_encode_fields__) if "locks" in names else names


def place(title: str, kind: str, *, over_http: bool, on_stream: bool, used: set[tuple[str, str]]) -> str:
    """Return what stands in one place of a table."""
    if over_http and on_stream:
        return "yes"
    used.add((title, kind))
    return f"{'HTTP' if over_http else 'no'}: {WHY_NOT.get((title, kind), '?')}"


def table(corner: str, kinds: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    head = [corner, *kinds]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def tables() -> tuple[str, str, set[tuple[str, str]]]:
    """Return both tables, and the reasons that stand in them."""
    used: set[tuple[str, str]] = set()
    features = [
        [
            title,
            *[
                place(
                    title,
                    kind.title,
                    over_http=over_http in said_by(kind.over_http),
                    on_stream=kind.on_stream is None or on_stream in said_by(kind.on_stream),
                    used=used,
                )
                for kind in KINDS.values()
            ],
        ]
        for title, (over_http, on_stream) in FEATURES.items()
    ]
    routes = {route.path: route for route in make_routes(RequestCounts(), RefusalTrace())}
    calls = [
        [
            call.title,
            *[
                place(
                    call.title,
                    kind,
                    over_http=bool(path) and call.field in said_by(routes[path].takes),
                    on_stream=call.on_stream is not None,
                    used=used,
                )
                for kind, path in zip(HOLD_KINDS, call.paths, strict=True)
            ],
        ]
        for call in CALLS
    ]
    asked = table("asked with", [kind.title for kind in KINDS.values()], features)
    return asked, table("done with", HOLD_KINDS, calls), used


def test_every_kind_has_a_column() -> None:
    """What asks for a new hold is one: the catalogue has no other that may wait, but for changes of one."""
    changes = {holds.Convert, holds.AddLocks}
    assert set(KINDS) == {row.command for row in ROWS if row.may_wait} - changes == set(get_args(Acquisition))


def test_the_manual_says_which_kind_has_what_and_why_not() -> None:
    """If it is stale, this shows what it should say. No reason is missing, and none is left over."""
    asked, done, used = tables()
    assert used == set(WHY_NOT)
    assert asked in SEMANTICS, asked
    assert done in SEMANTICS, done
