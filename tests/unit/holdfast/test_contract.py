"""Everything that the HTTP API can be asked, the Python client can ask: derived from the OpenAPI document.

The client makes all its calls at a node that records them. A call or a field of the document that was not
sent needs a reason here.
"""

import asyncio
import contextlib
import io
import re
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

import holdfast
from holdfast.operations.operation import Operation
from holdfast.transport.transport import Transport
from http_api.server.metrics import RequestCounts
from http_api.server.refusal_trace import RefusalTrace
from http_api.v1.openapi import make_document
from http_api.v1.table import make_routes
from tests.unit.holdfast.conftest import a_node

DOCUMENT: Final[dict[str, Any]] = make_document(make_routes(RequestCounts(), RefusalTrace()))
DEADLINE_S: Final = 60

CALLS_NOT_MADE: Final = {
    "GET /v1/stream": "a client opens it by itself once it is busy; `stream=` says whether it may",
    "GET /livez": "for supervisors of nodes; `ping` asks what programs want to know",
    "GET /readyz": "for load balancers; `cluster().ready` says the same",
    "GET /metrics": "for Prometheus; its text is nothing for programs",
    "GET /openapi.json": "for generators of clients and for tests",
}
FIELDS_NOT_SENT: Final = {
    ("POST /v1/sessions/{session_id}/keepalive", "request_id"): "repeating it is harmless",
    ("POST /v1/locks/renew", "request_id"): "a remembered outcome has the lease of the first try",
    (
        "POST /v1/semaphores/renew",
        "request_id",
    ): "a remembered outcome has the lease of the first try",
    ("POST /v1/elections/campaign", "if_held"): "a session of the client refuses a second campaign itself",
    ("DELETE /v1/cluster/members", "?id"): "the body names the node",
    ("DELETE /v1/cluster/members", "?reason"): "the body has it",
    ("DELETE /v1/cluster/preferred-leader", "?reason"): "the body has it",
    ("DELETE /v1/cluster/rules-hold", "?reason"): "the body has it",
    ("POST /v1/waits/withdraw", "session_id"): "sent when a wait of a session is cancelled: tests of waits",
    ("POST /v1/waits/withdraw", "hold_id"): "sent when a wait of a hold for more is cancelled: the same",
    ("GET /v1/quotas", "?limit"): "all pages are read",
    ("DELETE /v1/quotas/{principal}", "?reason"): "the body has it",
    ("DELETE /v1/namespaces/{name}", "?reason"): "the body has it",
    ("DELETE /v1/freezes/{name}", "?reason"): "the body has it",
    ("DELETE /v1/rate-limits/{name}", "?reason"): "the body has it",
    ("DELETE /v1/rate-limits", "?reason"): "the body has it",
    ("GET /v1/namespaces", "?limit"): "all pages are read",
    ("GET /v1/freezes", "?limit"): "all pages are read",
}
"""Which fields the client leaves out, and why."""
NEVER_SENT: Final = {
    "poll_ms": "slices are sent when a wait is longer than one",
    "?after": "behind a first page",
}
"""The same for fields of many calls."""


class Recorder:
    """Notes the paths and fields of everything that a client sends."""

    def __init__(self) -> None:
        self.sent: dict[str, set[str]] = {}

    def note(self, method: str, path: str, body: bytes) -> None:
        """Note one request."""
        parts = urlsplit(path)
        fields = self.sent.setdefault(_call_of(method, parts.path), set())
        fields |= {f"?{name}" for name, _ in parse_qsl(parts.query)}
        if body:
            fields |= set(_names(msgspec.json.decode(body)))


def _names(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the paths of the fields of a JSON object."""
    for name, field in value.items():
        yield prefix + name
        for item in field if isinstance(field, list) else [field]:
            if isinstance(item, dict) and name != "labels":
                yield from _names(item, f"{prefix}{name}.")


def _call_of(method: str, path: str) -> str:
    """Return the call of the document that a path belongs to: one without a parameter, if there is one."""
    templates = [known for known in DOCUMENT["paths"] if method.lower() in DOCUMENT["paths"][known]]
    matching = [t for t in templates if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", t), path)]
    return f"{method} {min(matching, key=lambda template: template.count('{'))}"


def _documented() -> dict[str, set[str]]:
    """Return the fields of each call of the document."""
    calls: dict[str, set[str]] = {}
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            fields = {
                f"?{parameter['name']}"
                for reference in operation["parameters"]
                if (parameter := _resolved(reference))["in"] == "query"
            }
            if "requestBody" in operation:
                (content,) = operation["requestBody"]["content"].values()
                fields |= set(_fields_of(content["schema"]))
            calls[f"{method.upper()} {path}"] = fields
    return calls


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in schema:
        return schema
    found: Any = DOCUMENT
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def _fields_of(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    schema = _resolved(schema)
    for each in schema.get("anyOf", ()):
        yield from _fields_of(each, prefix)
    items = schema.get("items")
    if isinstance(items, dict):
        yield from _fields_of(items, prefix)
    for name, field in schema.get("properties", {}).items():
        yield prefix + name
        yield from _fields_of(field, f"{prefix}{name}.")


async def _everything(client: holdfast.Client, other: holdfast.Client) -> None:
    """Make every call, with every argument."""
    await _locks(client, other)
    await _permits_and_elections(client)
    await _cells(client)
    await _looks(client)
    await _operators(client)


async def _try(call: Awaitable[object]) -> None:
    """Make a call that may be refused: what counts is that it was said."""
    with contextlib.suppress(holdfast.Refused):
        await call


async def _locks(client: holdfast.Client, other: holdfast.Client) -> None:
    async with client.session(ttl=60, labels={"a": "b"}) as session:
        await session.keepalive(ttl=50)
        hold = await client.lock(
            "a",
            session=session,
            wait=5,
            lock_delay=1,
            note="n",
            scope="subtree",
            mode="shared",
            if_held="count",
        ).acquire()
        await hold.convert("exclusive", wait=5)
        await hold.add("b", mode="shared", scope="subtree", wait=5)
        await hold.drop("b")
        await hold.release()
        await client.get_session(session, is_stale=True)
        await client.session_audit(session, limit=1, is_stale=True)
        async with session.watch(since=0) as watch:
            await watch.begin()
    async with client.locks("c", "d", mode="shared", scope="subtree"):
        pass
    await _try(client.lock("e", ask_after=1, grace=9).acquire(wait=2))
    await _try(client.semaphore("e", limit=1, ask_after=1, grace=9).acquire(wait=2))
    secret = await client.lock("e", ttl=60, value="v", value_secret=True, priority=7).acquire(wait=0)
    await secret.renew(ttl=40)
    await client.renew_by_value("e", "v", ttl=50)
    await client.renew_by_value("e", "v", ttl=40, exact=True)
    await client.release_by_value("e", "v")
    await _try(secret.release())
    await (await client.lock("batch/x", no_deadline=True).acquire()).release()
    together = client.together(
        "f",
        permits=[holdfast.WantedPermits("g", permits=1, limit=2)],
        rate_limits=[holdfast.WantedRate("h", limit=5, per=9, algorithm="gcra", cost=2)],
        mode="shared", scope="subtree", ttl=60, wait=5, lock_delay=1, note="n",
    )  # fmt: skip
    await (await together.acquire()).release()
    async with (
        client.session() as session,
        client.together("f", permits=[holdfast.WantedPermits("g", limit=2)], session=session),
    ):
        pass
    await client.admin.revoke("nobody", reason="r", grace=9)
    await client.admin.force_waits("nobody", reason="r", kind="election")
    async with client.lock("i", ttl=60) as hold:
        await _try(client.admin.revoke("i", reason="r", ticket=1))
        await client.admin.revoke("i", reason="r", grace=60, token=hold.token)
        await hold.put_off()
        await client.admin.withdraw_revocation("i", reason="r", token=hold.token, ticket=1)
        waiting = asyncio.ensure_future(other.lock("i", wait=DEADLINE_S).acquire())
        async with asyncio.timeout(DEADLINE_S):
            while not (waits := [row async for row in client.list_waits()]):  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        await client.get_ticket(waits[0].ticket, is_stale=True)
        await _try(hold.hand_over(to_ticket=waits[0].ticket + 1))
        await _try(hold.hand_over(to_session="s-0"))
        await _try(client.admin.force_waits("i", reason="r", ticket=waits[0].ticket + 1))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def _permits_and_elections(client: holdfast.Client) -> None:
    semaphore = client.semaphore(
        "s", limit=4, permits=2, strict=True, ttl=60, wait=5, lock_delay=1, note="n", value="v",
        value_secret=True, priority=7,
    )  # fmt: skip
    async with semaphore as hold:
        await hold.renew(ttl=50)
        await client.renew_by_value("s", "v", ttl=30, exact=True, kind="semaphore")
        await client.resize_semaphore("s", 5, reason="by hand")
        await _try(client.admin.revoke("s", reason="r", kind="semaphore", ticket=1))
        await client.admin.revoke("s", reason="r", grace=9, kind="semaphore", token=hold.token)
        await hold.put_off()
        await client.admin.withdraw_revocation("s", reason="r", kind="semaphore", token=hold.token, ticket=1)
    await _try(client.release_by_value("s", "v", kind="semaphore"))
    await (await client.semaphore("batch/s", limit=1, no_deadline=True).acquire()).release()
    async with client.session() as session, client.semaphore("s", limit=5, session=session):
        await (await client.election("e", session=session).acquire()).release()
    async with client.election("e", value="v", wait=5) as leadership:
        await leadership.proclaim("w")
        await _try(client.admin.revoke("e", reason="r", kind="election", ticket=1))
        await client.admin.revoke("e", reason="r", grace=9, kind="election", token=leadership.token)
        await leadership.put_off()
        await client.admin.withdraw_revocation(
            "e", reason="r", kind="election", token=leadership.token, ticket=1
        )
    limiter = client.rate_limiter("m", limit=5, per=60, algorithm="gcra")
    await limiter.take(2, wait=5)
    await limiter.peek(2, is_stale=True)
    await client.fence("disk").advance(leadership.token)
    await client.fence("disk").highest(is_stale=True)


async def _cells(client: holdfast.Client) -> None:
    cells = client.cells
    async with client.session() as session:
        await cells.put("a", "1", session=session, if_version=0, if_mod_revision=0)
        await cells.put("b", b"1", ttl=60)
        hold = await client.lock("cell").acquire()
        puts: list[holdfast.CellOperation] = [
            holdfast.CellPut("c", "1", session=session),
            holdfast.CellPut("d", b"1", ttl=60),
        ]
        operations: list[holdfast.CellOperation] = [*puts, holdfast.CellGet("c"), holdfast.CellDelete("e")]
        compares: list[holdfast.CellCompare] = [
            holdfast.StillHeld(hold, token=hold.token),
            holdfast.CellIs("a", version=1, relation="<"),
            holdfast.CellIs("a", create_revision=1),
            holdfast.CellIs("a", mod_revision=1),
            holdfast.CellIs("a", value="1"),
            holdfast.CellIs("a", value=b"1"),
        ]
        await cells.transact(compare=compares, then=operations, otherwise=operations)
        await cells.get("a", is_stale=True)
        await cells.list("a", is_stale=True).page()
        await _try(cells.delete("a", if_version=9, if_mod_revision=9))
        await cells.delete_prefix("a")
        await cells.delete_all()
        await hold.release()


async def _looks(client: holdfast.Client) -> None:
    await client.ping()
    async with client.watch("a", since=0) as watch:
        await watch.begin()
    await client.inspect("a", is_stale=True)
    await client.get_semaphore("a", is_stale=True)
    await client.get_election("a", is_stale=True)
    await client.check_token("a", 1, kind="lock", is_stale=True)
    await client.audit("a", limit=1, by_operators=True, behind=0, is_stale=True)
    for listing in (
        client.list("a", held_longer_than=1, is_stale=True),
        client.list_semaphores("a", is_stale=True),
        client.list_elections("a", is_stale=True),
        client.list_rate_limits("a", is_stale=True),
        client.list_fences("a", is_stale=True),
        client.list_sessions(owner="o", label=("a", "b"), is_stale=True),
        client.list_holds(
            "a", owner="o", label=("a", "b"), held_longer_than=1, no_deadline=True, is_stale=True
        ),
    ):
        await listing.page(limit=1)
    await _try(client.get_holdings("s-99999"))


async def _operators(client: holdfast.Client) -> None:
    admin = client.admin
    for kind in ("lock", "semaphore", "election"):
        delay = 0 if kind == "election" else 1
        await _try(admin.force_release("a", reason="r", lock_delay=delay, kind=kind, token=1))
    await admin.lift_delay("a", reason="r")
    await admin.lift_delay("a", reason="r", kind="semaphore")
    await admin.forget_fence("disk", reason="r")
    await admin.forget_rate_limit("mail", reason="r")
    await admin.forget_rate_limits("mail/", reason="r")
    await admin.forget_all_rate_limits(reason="r")
    await _try(admin.force_close_session("s-99999", reason="r"))
    await admin.set_quota(
        "p", sessions=1, holds=1, waits=1, cells=1, fences=1, rate_limits=1, bytes=1, reason="by hand"
    )
    await admin.quotas(is_stale=True)
    await admin.quota("p", is_stale=True)
    await admin.remove_quota("p", reason="by hand")
    settings = {
        "ttl_ms_min": 1000,
        "ttl_ms_max": 9000,
        "lock_delay_ms_min": 1,
        "if_held": "renew",
        "held_ms_max": 60_000,
    }
    counts = dict.fromkeys(("holds", "waits", "cells", "fences", "rate_limits", "bytes"), 9)
    flags = {"no_deadline": True, "priority": True, "rate": holdfast.RateSettings(9, 9000, "gcra")}
    asks = {"ask_after_ms_min": 0, "grace_ms_min": 0}
    ruled = holdfast.NamespaceSettings(**settings, **counts, **flags, **asks)  # type: ignore[arg-type]
    await admin.set_namespace("jobs", ruled, reason="by hand")
    await admin.namespaces("j", is_stale=True)
    await admin.namespace("jobs", is_stale=True)
    await admin.remove_namespace("jobs", reason="by hand")
    await admin.freeze("jobs", reason="r", duration=60)
    await admin.frozen("jobs", is_stale=True)
    await admin.freezes("j", is_stale=True)
    await admin.thaw("jobs", reason="r")
    await admin.refusals(limit=1)
    await admin.debug_info()
    await _try(admin.set_log_level("n1", "warning", duration=60))
    await admin.backup(io.BytesIO())
    why = "by hand"
    await admin.transfer_leadership("n1", reason=why)
    await admin.prefer_leader("n1", reason=why)
    await admin.prefer_nobody(reason=why)
    await admin.hold_rules(reason=why)
    await admin.release_rules(reason=why)
    await _try(admin.add_member("n2", "a:1", reason=why))
    await _try(admin.move_member("n2", "b:1", reason=why))
    await _try(admin.remove_member("n2", reason=why))


@contextlib.asynccontextmanager
async def _recorded(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[str, Recorder]]:
    recorder = Recorder()
    over_http, stream = Transport.call_over_http, Transport.stream

    async def call(self: Transport, operation: Operation[Any], *rest: Any, **more: Any) -> Any:
        recorder.note(operation.method, operation.path, operation.body)
        return await over_http(self, operation, *rest, **more)

    def watch(self: Transport, node: int, path: str, headers: dict[str, str], silence_s: float) -> Any:
        recorder.note("GET", path, b"")
        return stream(self, node, path, headers, silence_s)

    monkeypatch.setattr(Transport, "call_over_http", call)
    monkeypatch.setattr(Transport, "stream", watch)
    async with a_node("*") as (_, url):
        yield url, recorder


async def test_every_call_and_field_of_the_api_can_be_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the document and not in what the client sends has a reason above, which is needed."""
    async with (
        _recorded(monkeypatch) as (url, recorder),
        holdfast.Client(url, owner="me", stream=False) as client,
        holdfast.Client(url, stream=False) as other,
    ):
        await _everything(client, other)
    documented = _documented()
    assert documented.keys() - recorder.sent.keys() == CALLS_NOT_MADE.keys()
    missing = {
        (call, field)
        for call, fields in documented.items()
        if call not in CALLS_NOT_MADE
        for field in fields - recorder.sent[call] - NEVER_SENT.keys()
    }
    assert missing == FIELDS_NOT_SENT.keys()
