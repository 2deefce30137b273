"""Who may make which call where: every route, principals of every kind, a name that is theirs or not."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from holdfast import wire
from http_api.server.metrics import RequestCounts
from http_api.server.refusal_trace import RefusalTrace
from http_api.server.routes import Route
from http_api.v1.table import make_routes
from lockstate import catalogue
from lockstate.words.commands import entries
from lockstate.words.commands.entries import OfSomebody
from lockstate.words.commands.streams import NumberedCommand
from tests.unit.http_api.serving import Served, bearer, serving, token_line

MINE, OTHER = "mine/a", "other/a"

PRINCIPALS: dict[str, str] = {
    "reader": "read@mine",
    "worker": "acquire@mine",
    "enforcer": "force@mine",
    "monitor": "metrics",
    "operator": "admin",
    "tenant": "admin@mine",
    "auditor": "read",
    "shutout": "none",
    "all": "read,acquire,force,admin,metrics",
}
TOKENS = {name: f"token-of-{name}-".ljust(40, "x") for name in PRINCIPALS}
LINES = b"".join(token_line(name, TOKENS[name], rights) for name, rights in PRINCIPALS.items())

READ_HERE, READ_ALL = {"reader", "auditor", "all"}, {"auditor", "all"}
ACQUIRE_HERE, ACQUIRE_ALL = {"worker", "all"}, {"all"}
KNOWN = set(PRINCIPALS)
ID = "f" * 32


class Case(NamedTuple):
    """A call: `body` and `path` have NAME where a name belongs.

    With it, those that may make it `here`, with a name that is theirs, and `there`, with another one.
    """

    path: str = ""
    body: dict[str, Any] | None = None
    here: set[str] = set()
    there: set[str] = set()


def _by_id(path: str, **body: Any) -> Case:
    """Return a call that names only an id, by which anybody may go on who may acquire at all."""
    return Case(path, body or None, ACQUIRE_HERE, ACQUIRE_HERE)


def _acquires(path: str, **body: Any) -> Case:
    return Case(path, body or {}, ACQUIRE_HERE, ACQUIRE_ALL)


def _reads(path: str, body: dict[str, Any] | None = None) -> Case:
    return Case(path, body, READ_HERE, READ_ALL)


def _lists(path: str) -> Case:
    """Return a listing of names, which leaves out what may not be read."""
    return Case(f"{path}?prefix=NAME", None, READ_HERE, READ_ALL)


_HOLD = {"hold_id": ID}
_RATE = {"name": "NAME", "limit": 5, "window_ms": 1000}
_FORCE = {"name": "NAME", "reason": "r"}
_MEMBER = {"id": "n9", "peer": "127.0.0.1:9", "reason": "r"}
_ADMIN = {"operator", "all"}
_SEES = {*READ_HERE, *_ADMIN, "tenant"}

CASES: dict[str, Case] = {
    f"POST {wire.SESSIONS}": _by_id(wire.SESSIONS, ttl_ms=60_000),
    f"POST {wire.SESSION_KEEPALIVE}": _by_id(f"/v1/sessions/{ID}/keepalive"),
    f"GET {wire.SESSIONS}": Case(wire.SESSIONS, None, READ_ALL, READ_ALL),
    f"GET {wire.SESSION}": _by_id(f"/v1/sessions/{ID}"),
    f"DELETE {wire.SESSION}": _by_id(f"/v1/sessions/{ID}"),
    f"GET {wire.SESSION_AUDIT}": _by_id(f"/v1/sessions/{ID}/audit"),
    f"GET {wire.SESSION_WATCH}": _by_id(f"/v1/sessions/{ID}/watch"),
    f"POST {wire.ACQUIRE}": _acquires(
        wire.ACQUIRE, permits=[{"name": "NAME", "limit": 9}], rate_limits=[_RATE], ttl_ms=60_000
    ),
    f"POST {wire.LOCK_ACQUIRE}": _acquires(wire.LOCK_ACQUIRE, name="NAME", ttl_ms=60_000),
    f"POST {wire.LOCK_RENEW}": _by_id(wire.LOCK_RENEW, **_HOLD),
    f"POST {wire.LOCK_RELEASE}": _by_id(wire.LOCK_RELEASE, **_HOLD),
    f"POST {wire.LOCK_CONVERT}": _by_id(wire.LOCK_CONVERT, **_HOLD, mode="shared"),
    f"POST {wire.LOCK_ADD}": _acquires(wire.LOCK_ADD, **_HOLD, locks=[{"name": "NAME"}]),
    f"POST {wire.LOCK_FORCE_RELEASE}": Case(wire.LOCK_FORCE_RELEASE, _FORCE, {"enforcer", "all"}, {"all"}),
    f"POST {wire.SESSION_FORCE_CLOSE}": Case(
        wire.SESSION_FORCE_CLOSE, {"session_name": "s-99", "reason": "r"}, {"all"}, {"all"}
    ),
    f"GET {wire.QUOTAS}": Case(wire.QUOTAS, None, _ADMIN, _ADMIN),
    f"GET {wire.QUOTA}": Case("/v1/quotas/somebody", None, _ADMIN, _ADMIN),
    f"PUT {wire.QUOTA}": Case("/v1/quotas/somebody", {"holds": 1, "reason": "r"}, _ADMIN, _ADMIN),
    f"DELETE {wire.QUOTA}": Case("/v1/quotas/somebody", {"reason": "r"}, _ADMIN, _ADMIN),
    f"POST {wire.LOCK_LIFT_DELAY}": Case(wire.LOCK_LIFT_DELAY, _FORCE, {"enforcer", "all"}, {"all"}),
    f"POST {wire.SEMAPHORE_LIFT_DELAY}": Case(
        wire.SEMAPHORE_LIFT_DELAY, _FORCE, {"enforcer", "all"}, {"all"}
    ),
    f"POST {wire.LOCK_REVOKE}": Case(wire.LOCK_REVOKE, _FORCE, {"enforcer", "all"}, {"all"}),
    f"POST {wire.LOCK_WITHDRAW}": Case(wire.LOCK_WITHDRAW, _FORCE, {"enforcer", "all"}, {"all"}),
    f"POST {wire.LOCK_PUT_OFF}": _by_id(wire.LOCK_PUT_OFF, **_HOLD),
    f"POST {wire.LOCK_HAND_OVER}": _by_id(wire.LOCK_HAND_OVER, **_HOLD, to_ticket=99),
    f"POST {wire.SEMAPHORE_REVOKE}": Case(wire.SEMAPHORE_REVOKE, _FORCE, {"enforcer", "all"}, {"all"}),
    f"POST {wire.SEMAPHORE_WITHDRAW}": Case(wire.SEMAPHORE_WITHDRAW, _FORCE, {"enforcer", "all"}, {"all"}),
    f"POST {wire.SEMAPHORE_PUT_OFF}": _by_id(wire.SEMAPHORE_PUT_OFF, **_HOLD),
    f"POST {wire.ELECTION_REVOKE}": Case(wire.ELECTION_REVOKE, _FORCE, {"enforcer", "all"}, {"all"}),
    f"POST {wire.ELECTION_WITHDRAW}": Case(wire.ELECTION_WITHDRAW, _FORCE, {"enforcer", "all"}, {"all"}),
    f"POST {wire.ELECTION_PUT_OFF}": _by_id(wire.ELECTION_PUT_OFF, **_HOLD),
    f"POST {wire.FENCE_FORGET}": Case(
        wire.FENCE_FORGET, {"name": "NAME", "reason": "r"}, {"enforcer", "all"}, {"all"}
    ),
    f"DELETE {wire.RATE}": Case("/v1/rate-limits/NAME", {"reason": "r"}, {"enforcer", "all"}, {"all"}),
    f"DELETE {wire.RATES}": Case(f"{wire.RATES}?prefix=NAME", {"reason": "r"}, {"enforcer", "all"}, {"all"}),
    f"GET {wire.LOCK}": _reads("/v1/locks/NAME"),
    f"GET {wire.LOCKS}": _lists(wire.LOCKS),
    f"GET {wire.HOLDS}": _lists(wire.HOLDS),
    f"POST {wire.WAITS_WITHDRAW}": _by_id(wire.WAITS_WITHDRAW, request_id=ID),
    f"POST {wire.WAITS_FORCE_END}": Case(wire.WAITS_FORCE_END, _FORCE, {"enforcer", "all"}, {"all"}),
    f"GET {wire.TICKET}": Case("/v1/tickets/99", None, READ_HERE, READ_HERE),
    f"POST {wire.SEMAPHORE_ACQUIRE}": _acquires(wire.SEMAPHORE_ACQUIRE, name="NAME", limit=9, ttl_ms=60_000),
    f"POST {wire.SEMAPHORE_RENEW}": _by_id(wire.SEMAPHORE_RENEW, **_HOLD),
    f"POST {wire.SEMAPHORE_RELEASE}": _by_id(wire.SEMAPHORE_RELEASE, **_HOLD),
    f"POST {wire.SEMAPHORE_FORCE_RELEASE}": Case(
        wire.SEMAPHORE_FORCE_RELEASE, _FORCE, {"enforcer", "all"}, {"all"}
    ),
    f"POST {wire.SEMAPHORE_RESIZE}": _acquires(wire.SEMAPHORE_RESIZE, name="NAME", limit=9, reason="by hand"),
    f"GET {wire.SEMAPHORE}": _reads("/v1/semaphores/NAME"),
    f"GET {wire.SEMAPHORES}": _lists(wire.SEMAPHORES),
    f"POST {wire.RATE_TAKE}": _acquires(wire.RATE_TAKE, **_RATE),
    f"POST {wire.RATE_PEEK}": _reads(wire.RATE_PEEK, _RATE),
    f"GET {wire.RATES}": _lists(wire.RATES),
    f"GET {wire.FENCE}": _reads("/v1/fences/NAME"),
    f"GET {wire.FENCES}": _lists(wire.FENCES),
    f"POST {wire.FENCE_CHECK}": _reads(wire.FENCE_CHECK, {"name": "NAME", "token": 1}),
    f"POST {wire.FENCE_ADVANCE}": _acquires(wire.FENCE_ADVANCE, name="NAME", token=0),
    f"POST {wire.ELECTION_CAMPAIGN}": _acquires(
        wire.ELECTION_CAMPAIGN, name="NAME", session_id=ID, value="v"
    ),
    f"POST {wire.ELECTION_PROCLAIM}": _by_id(wire.ELECTION_PROCLAIM, **_HOLD, value="v"),
    f"POST {wire.ELECTION_RESIGN}": _by_id(wire.ELECTION_RESIGN, **_HOLD),
    f"POST {wire.ELECTION_DEPOSE}": Case(wire.ELECTION_DEPOSE, _FORCE, {"enforcer", "all"}, {"all"}),
    f"GET {wire.ELECTION}": _reads("/v1/elections/NAME"),
    f"GET {wire.ELECTIONS}": _lists(wire.ELECTIONS),
    f"POST {wire.CELLS_TRANSACT}": _acquires(wire.CELLS_TRANSACT, then=[{"put": "NAME", "value": "v"}]),
    f"PUT {wire.CELL}": _acquires("/v1/cells/NAME", value="v"),
    f"DELETE {wire.CELL}": _acquires("/v1/cells/NAME"),
    f"DELETE {wire.CELLS}": _acquires(f"{wire.CELLS}?prefix=NAME"),
    f"GET {wire.CELL}": _reads("/v1/cells/NAME"),
    f"GET {wire.CELLS}": _lists(wire.CELLS),
    f"GET {wire.AUDIT}": _reads(f"{wire.AUDIT}?name=NAME"),
    f"GET {wire.REFUSALS}": Case(wire.REFUSALS, None, _ADMIN, _ADMIN),
    f"GET {wire.NAMESPACES}": Case(f"{wire.NAMESPACES}?prefix=NAME", None, _SEES, {*READ_ALL, *_ADMIN}),
    f"GET {wire.NAMESPACE}": Case("/v1/namespaces/NAME", None, _SEES, {*READ_ALL, *_ADMIN}),
    f"PUT {wire.NAMESPACE}": Case(
        "/v1/namespaces/NAME", {"holds": 1, "reason": "r"}, {*_ADMIN, "tenant"}, _ADMIN
    ),
    f"DELETE {wire.NAMESPACE}": Case("/v1/namespaces/NAME", {"reason": "r"}, {*_ADMIN, "tenant"}, _ADMIN),
    f"GET {wire.FREEZES}": _lists(wire.FREEZES),
    f"GET {wire.FREEZE}": _reads("/v1/freezes/NAME"),
    f"PUT {wire.FREEZE}": Case("/v1/freezes/NAME", {"reason": "r"}, {"enforcer", "all"}, {"all"}),
    f"DELETE {wire.FREEZE}": Case("/v1/freezes/NAME", {"reason": "r"}, {"enforcer", "all"}, {"all"}),
    f"GET {wire.WATCH}": _reads(f"{wire.WATCH}?prefix=NAME&since=x"),
    f"GET {wire.STREAM}": _by_id(wire.STREAM),
    f"GET {wire.CLUSTER}": Case(wire.CLUSTER, None, KNOWN, KNOWN),
    f"GET {wire.CLUSTER_BACKUP}": Case(wire.CLUSTER_BACKUP, None, _ADMIN, _ADMIN),
    f"GET {wire.CLUSTER_DEBUG}": Case(wire.CLUSTER_DEBUG, None, _ADMIN, _ADMIN),
    f"PUT {wire.CLUSTER_LOG_LEVEL}": Case(
        wire.CLUSTER_LOG_LEVEL, {"node_id": "n1", "level": "warning"}, _ADMIN, _ADMIN
    ),
    f"POST {wire.CLUSTER_TRANSFER_LEADERSHIP}": Case(
        wire.CLUSTER_TRANSFER_LEADERSHIP, {"reason": "r"}, _ADMIN, _ADMIN
    ),
    f"PUT {wire.CLUSTER_PREFERRED_LEADER}": Case(
        wire.CLUSTER_PREFERRED_LEADER, {"id": "n1", "reason": "r"}, _ADMIN, _ADMIN
    ),
    f"DELETE {wire.CLUSTER_PREFERRED_LEADER}": Case(
        wire.CLUSTER_PREFERRED_LEADER, {"reason": "r"}, _ADMIN, _ADMIN
    ),
    f"PUT {wire.CLUSTER_RULES_HOLD}": Case(wire.CLUSTER_RULES_HOLD, {"reason": "r"}, _ADMIN, _ADMIN),
    f"DELETE {wire.CLUSTER_RULES_HOLD}": Case(wire.CLUSTER_RULES_HOLD, {"reason": "r"}, _ADMIN, _ADMIN),
    f"POST {wire.CLUSTER_MEMBERS}": Case(wire.CLUSTER_MEMBERS, _MEMBER, _ADMIN, _ADMIN),
    f"PATCH {wire.CLUSTER_MEMBERS}": Case(wire.CLUSTER_MEMBERS, _MEMBER, _ADMIN, _ADMIN),
    f"DELETE {wire.CLUSTER_MEMBERS}": Case(f"{wire.CLUSTER_MEMBERS}?id=n9&reason=r", None, _ADMIN, _ADMIN),
    f"GET {wire.METRICS}": Case(wire.METRICS, None, {"monitor", "all"}, {"monitor", "all"}),
    f"GET {wire.OPENAPI}": Case(wire.OPENAPI, None, KNOWN, KNOWN),
    f"GET {wire.LIVEZ}": Case(wire.LIVEZ, None, {*KNOWN, ""}, {*KNOWN, ""}),
    f"GET {wire.READYZ}": Case(wire.READYZ, None, {*KNOWN, ""}, {*KNOWN, ""}),
}
"""Every call of the API. A prefix of a listing is a whole name here: nothing else begins with it."""

ROUTES = {f"{route.method} {route.path}": route for route in make_routes(RequestCounts(), RefusalTrace())}


def test_every_route_has_a_right_and_a_case() -> None:
    """A new one fails here until a case says who may call it; and none is left over."""
    assert set(CASES) == set(ROUTES)


def test_a_route_without_a_right_cannot_be() -> None:
    """It is refused when it is made, long before it is called."""
    with pytest.raises(TypeError, match="need"):
        Route(method="GET", path="/v1/new", handler=ROUTES[f"GET {wire.LIVEZ}"].handler)  # type: ignore[call-arg]


def test_every_command_has_a_right_or_is_the_nodes_own() -> None:
    """What clients cannot ask for has none, and is refused to all of them."""
    own = {row.command for row in catalogue.ROWS if row.right is None}
    assert own == {
        entries.Cancel, entries.Tick, entries.Barrier, entries.AbandonWaits, entries.OnBehalf,
    }  # fmt: skip
    assert {row.command for row in catalogue.ROWS} - own == {*OfSomebody.__args__, *NumberedCommand.__args__}


def _asked(case: Case, name: str) -> tuple[str, bytes | None]:
    body = None if case.body is None else json.dumps(case.body).replace("NAME", name).encode()
    return case.path.replace("NAME", name), body


def _statuses(key: str) -> Iterator[tuple[str, str, bool]]:
    """Yield principal, name and whether the call is allowed."""
    case = CASES[key]
    for name, allowed in ((MINE, case.here), (OTHER, case.there)):
        for principal in ("", *PRINCIPALS):
            yield principal, name, principal in allowed


async def _refusal(served: Served, key: str, principal: str, name: str) -> str:
    """Make a call; return the code of its refusal if that is for want of a right, else nothing."""
    path, body = _asked(CASES[key], name)
    headers = {"Content-Type": wire.JSON, **(bearer(TOKENS[principal]) if principal else {})}
    got = await served.call(key.partition(" ")[0], path, data=body, headers=headers)
    code = got.body.get("code", "") if isinstance(got.body, dict) else ""
    if code == "unauthenticated":
        assert (got.status, got.headers[wire.HEADER_AUTHENTICATE]) == (401, "Bearer")
    if code == "forbidden":
        assert got.status == 403
        assert "this needs the right " in got.body["detail"]
    assert code != "invalid-request" or "since" in path or path == wire.STREAM, got.body
    return code if code in {"unauthenticated", "forbidden"} else ""


@pytest.mark.parametrize("key", CASES)
async def test_who_may_do_what(key: str) -> None:
    """By principal and name: 401 for strangers, 403 for those without the right, neither for others."""
    async with serving(tokens=LINES) as served:
        for principal, name, is_allowed in _statuses(key):
            expected = "" if is_allowed else "forbidden" if principal else "unauthenticated"
            assert await _refusal(served, key, principal, name) == expected, (principal, name)


async def test_a_refusal_names_the_right_and_the_prefix() -> None:
    """Somebody has to ask for it."""
    async with serving(tokens=LINES) as served:
        got = await served.post(wire.LOCK_ACQUIRE, name=OTHER, ttl_ms=1000)
        assert got.status == 401
        acquire = {"name": OTHER, "ttl_ms": 1000}
        headers = bearer(TOKENS["worker"])
        got = await served.call("POST", wire.LOCK_ACQUIRE, acquire, headers=headers)
        assert got.body["detail"] == "this needs the right acquire for 'other/a'"
        got = await served.call("POST", wire.LOCK_ACQUIRE, acquire, headers=bearer(TOKENS["reader"]))
        assert got.body["detail"] == "this needs the right acquire, which the caller has for no name"
        got = await served.call("GET", wire.SESSIONS, headers=bearer(TOKENS["reader"]))
        assert got.body["detail"] == "this needs the right read for everything"


ONE_BY_ONE: dict[str, tuple[str, str, dict[str, Any]]] = {
    "locks": ("POST", wire.LOCK_ACQUIRE, {"locks": [{"name": MINE}, {"name": OTHER}], "ttl_ms": 1000}),
    "subtree": ("POST", wire.LOCK_ACQUIRE, {"name": "mine", "scope": "subtree", "ttl_ms": 1000}),
    "put": ("POST", wire.CELLS_TRANSACT, {"else": [{"get": MINE}, {"put": OTHER, "value": "v"}]}),
    "get": ("POST", wire.CELLS_TRANSACT, {"then": [{"put": MINE, "value": "v"}, {"get": OTHER}]}),
    "delete": ("POST", wire.CELLS_TRANSACT, {"then": [{"delete": OTHER}]}),
    "compare": ("POST", wire.CELLS_TRANSACT, {"compare": [{"key": OTHER, "version": 1}]}),
    "prefix": ("DELETE", f"{wire.CELLS}?prefix=min", {}),
    "below": ("DELETE", f"{wire.CELLS}?prefix=mine/", {}),
    "watch": ("GET", f"{wire.WATCH}?prefix=mine", {}),
    "condition": ("PUT", f"/v1/cells/{OTHER}", {"value": "v", "if_version": 1}),
}


@pytest.mark.parametrize("key", ONE_BY_ONE)
async def test_every_part_needs_its_right(key: str) -> None:
    """Of several locks, of a subtree, and of both branches of a transaction: one that lacks refuses all."""
    method, path, body = ONE_BY_ONE[key]
    rights = "read,acquire@mine read@mine/no"
    async with serving(tokens=token_line("me", TOKENS["worker"], rights)) as served:
        got = await served.call(method, path, body, headers=bearer(TOKENS["worker"]))
        assert got.body["code"] == "forbidden", got.body
        assert served.node.machine.revision == 0
