"""Each bound of the OpenAPI schema, over HTTP and on a stream: both accept and refuse the same."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import aiohttp
import msgspec
import pytest

from holdfast import wire
from holdfast.wire import commands as said
from http_api.server.metrics import RequestCounts
from http_api.server.refusal_trace import RefusalTrace
from http_api.v1 import stream
from http_api.v1.openapi import make_document
from http_api.v1.table import make_routes
from tests.support.stream_client import GRANTED, REFUSED, Closed, Stream
from tests.unit.http_api.v1.streaming import Streamed, streamed

NEW, HOLD, LED, SESSION = "a new name", "a hold", "an election's hold", "a session"
"""Stand for what is made for each request."""
MISSING, UNKNOWN = object(), object()
"""Stand for a field that is left out, and for one more than there are."""
INVALID: Final = "invalid-request"
ACCEPTED: Final = ""
ONLY_HTTP: Final = frozenset({"request_id", "poll_ms", "ask_after_ms", "grace_ms"})
"""Streams have numbers instead; and only calls are asked in slices, or ask by themselves."""
OF_STREAM: Final = {"value_secret": "is_secret", "no_deadline": "is_endless", "strict": "is_strict"}
INSTEAD: Final = {"session_id": {"ttl_ms"}, "no_deadline": {"ttl_ms"}, "locks": {"name"}}
"""What a field stands in the place of."""
CAMPAIGN: Final = 14
DECLINED: Final = 4


class Twin(NamedTuple):
    """A request that can be made both ways. It has `only` these fields of HTTP; none: all but ONLY_HTTP."""

    path: str
    command: type[msgspec.Struct]
    body: dict[str, Any]
    only: frozenset[str] = frozenset()


LEASED: Final[dict[str, Any]] = {"name": NEW, "ttl_ms": 60_000}
BY_ID: Final = frozenset({"hold_id", "ttl_ms", "names"})
BY_VALUE: Final = frozenset({"name", "value", "ttl_ms"})
OF_RATE: Final = frozenset({"name", "limit", "window_ms", "algorithm", "cost"})
"""Only HTTP waits for a place."""
TWINS: Final = (
    Twin(wire.LOCK_ACQUIRE, said.StreamAcquire, LEASED),
    Twin(wire.SEMAPHORE_ACQUIRE, said.StreamAcquirePermits, LEASED | {"limit": 10}),
    Twin(wire.ELECTION_CAMPAIGN, said.StreamCampaign, {"name": NEW, "session_id": SESSION, "value": "v"}),
    Twin(wire.LOCK_CONVERT, said.StreamConvert, {"hold_id": HOLD, "mode": "shared"}),
    Twin(wire.LOCK_RENEW, said.StreamRenew, {"hold_id": HOLD}, BY_ID),
    Twin(wire.LOCK_RELEASE, said.StreamRelease, {"hold_id": HOLD}, BY_ID),
    Twin(wire.LOCK_RENEW, said.StreamRenewByValue, {"name": NEW, "value": "v"}, BY_VALUE),
    Twin(wire.LOCK_RELEASE, said.StreamReleaseByValue, {"name": NEW, "value": "v"}, BY_VALUE),
    Twin(wire.ELECTION_PROCLAIM, said.StreamProclaim, {"hold_id": LED, "value": "v"}),
    Twin(wire.RATE_TAKE, said.StreamTakeRate, {"name": NEW, "limit": 10, "window_ms": 60_000}, OF_RATE),
    Twin(wire.FENCE_ADVANCE, said.StreamAdvanceFence, {"name": NEW, "token": 1}),
)
DOCUMENT: Final = make_document(make_routes(RequestCounts(), RefusalTrace()))


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def _properties(path: str) -> dict[str, dict[str, Any]]:
    """Return the fields of a request, as the document describes them."""
    content = DOCUMENT["paths"][path]["post"]["requestBody"]["content"][wire.JSON]
    return {name: _resolved(field) for name, field in _resolved(content["schema"])["properties"].items()}


def _values(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield values at the bounds of a field, one below and one above them, and of other types."""
    for kind in schema.get("anyOf", ()):
        yield from _values(_resolved(kind))
    if "minimum" in schema:
        yield from (schema["minimum"], schema["minimum"] - 1)
    if "maximum" in schema:
        yield from (schema["maximum"], schema["maximum"] + 1)
    for bound in (schema[bound] for bound in ("minLength", "maxLength") if bound in schema):
        yield from ("x" * length for length in (bound - 1, bound, bound + 1) if length >= 0)
    for bound in (schema[bound] for bound in ("minItems", "maxItems") if bound in schema):
        for length in (bound - 1, bound, bound + 1):
            yield [_item(schema, place) for place in range(length)]
    if "enum" in schema:
        yield from (*schema["enum"], "other")
    if schema.get("type") == "string":
        yield from ("a\nb", "x" * 2_000)
    yield from (1, "x", True, [1], 1 << 62, 0.5)


def _item(schema: dict[str, Any], place: int) -> Any:
    is_text = _resolved(schema["items"]).get("type") == "string"
    return f"n{place}" if is_text else {"name": f"n{place}"}


def _cases(twin: Twin) -> Iterator[tuple[str, Any]]:
    """Yield fields, each with a value that it is to have."""
    for field, schema in _properties(twin.path).items():
        if field in twin.only or (not twin.only and field not in ONLY_HTTP):
            for value in _values(schema):
                if _is_said(twin.command, OF_STREAM.get(field, field), value):
                    yield field, value
            if field in twin.body and _default(twin.command, field) is msgspec.NODEFAULT:
                yield field, MISSING
    yield "unknown", UNKNOWN


def _default(command: type[msgspec.Struct], field: str) -> Any:
    return next(each.default for each in msgspec.structs.fields(command) if each.name == field)


def _is_said(command: type[msgspec.Struct], field: str, value: Any) -> bool:
    """Whether a value stands for itself on a stream, and not for a field that HTTP would leave out."""
    default = _default(command, field)
    return not (type(value) is type(default) and value == default) and (default != () or value != [])


class Ways:
    """A node, and both ways to ask it the same."""

    def __init__(self, served: Streamed, session: aiohttp.ClientSession) -> None:
        self._served, self._session = served, session
        self._names = (f"name-{number}" for number in itertools.count())
        self._client: Stream | None = None

    async def client(self) -> Stream:
        """Return a stream that is open."""
        if self._client is None:
            self._client = self._served.stream()
            await self._client.connect()
            await self._client.greet()
        return self._client

    async def close(self) -> None:
        """Drop the stream."""
        if self._client is not None:
            await self._client.drop()
            self._client = None

    async def filled(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return a body with what its placeholders stand for."""
        client = await self.client()
        made: dict[str, Any] = {}
        for field, value in body.items():
            made[field] = value
            if value is NEW:
                made[field] = next(self._names)
            elif value is SESSION:
                made[field] = client.session_id
            elif value is HOLD:
                made[field] = (await client.acquire(next(self._names)))[1]
            elif value is LED:
                led = await client.call(CAMPAIGN, next(self._names), "v")
                assert led[0] == GRANTED
                made[field] = led[1]
        return made

    async def over_http(self, twin: Twin, body: dict[str, Any]) -> str:
        """Ask over HTTP; return the code of the refusal, ACCEPTED if there is none."""
        url = f"http://127.0.0.1:{self._served.port}{twin.path}"
        sent = {
            field: 1 if value is UNKNOWN else value for field, value in body.items() if value is not MISSING
        }
        async with self._session.post(url, json=sent) as response:
            answer = await response.json(content_type=None)
            return _unless_held(str(answer.get("code", ACCEPTED)))

    async def over_stream(self, twin: Twin, body: dict[str, Any]) -> str:
        """Ask on a stream, which a message that is wrong as a whole ends; return the same."""
        client = await self.client()
        try:
            told = await client.call(*_command(twin, body))
        except Closed as closed:
            await self.close()
            return INVALID if closed.code == stream.INVALID else str(closed)
        # A grant has the same number, and its token there.
        if told[0] == DECLINED and told[2] in wire.PROBLEMS:
            client.next -= 1
            return str(told[2])
        return _unless_held(str(told[1])) if told[0] == REFUSED else ACCEPTED


def _unless_held(code: str) -> str:
    """Return a code, ACCEPTED if the other way has acquired the same before."""
    return ACCEPTED if code == "lock-held" else code


def _command(twin: Twin, body: dict[str, Any]) -> list[Any]:
    """Return the command of a stream that says what a body does."""
    tag = twin.command.__struct_config__.tag
    names = {OF_STREAM.get(field, field): value for field, value in body.items()}
    command: list[Any] = [tag]
    for field in msgspec.structs.fields(twin.command):
        value = names.get(field.name, field.default)
        if value is msgspec.NODEFAULT:
            value = ""  # the name of several locks
        if value is MISSING:
            return command
        if field.name == "locks" and isinstance(value, list):
            value = [[lock["name"]] if isinstance(lock, dict) else lock for lock in value]
        command.append(value)
    return [*command, 1] if UNKNOWN in body.values() else command


@pytest.mark.parametrize("twin", TWINS, ids=lambda twin: twin.command.__name__)
async def test_both_ways_refuse_the_same(tmp_path: Path, twin: Twin) -> None:
    """With the same code, at each bound of each field, of a wrong type, too little and too much."""
    differ: list[tuple[str, ...]] = []
    async with streamed(tmp_path) as served, aiohttp.ClientSession() as session:
        ways = Ways(served, session)
        for field, value in _cases(twin):
            body = {key: old for key, old in twin.body.items() if key not in INSTEAD.get(field, ())}
            asks = (ways.over_http, ways.over_stream)
            codes = [await ask(twin, (await ways.filled(body)) | {field: value}) for ask in asks]
            if codes[0] != codes[1]:
                differ.append((field, repr(value)[:40], *codes))
        await ways.close()
    assert differ == []
