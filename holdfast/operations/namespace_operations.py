"""The operations on namespaces: what holds for the names at and below a prefix. No I/O."""

from urllib.parse import quote

import msgspec

from holdfast import wire
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode, new_request_id, write
from holdfast.values import answers


def namespaces(prefix: str, after: str, *, is_stale: bool) -> Operation[answers.NamespacePage]:
    """Read a page of the namespaces whose own prefixes begin with `prefix`."""
    query = {"prefix": prefix, "after": after, "consistency": wire.STALE if is_stale else ""}
    return ask(wire.NAMESPACES, query, lambda answer: decode(answer, answers.NamespacePage))


def set_namespace(
    prefix: str, settings: answers.NamespaceSettings
) -> Operation[answers.NamespaceSettings | None]:
    """Say what holds for the names at and below a prefix; what is None is left open."""
    said = {what: value for what, value in msgspec.structs.asdict(settings).items() if value is not None}
    return write(_path(prefix), {**said, "request_id": new_request_id()}, _settings, method="PUT")


def remove_namespace(prefix: str) -> Operation[answers.NamespaceSettings | None]:
    """Remove a namespace."""
    return write(_path(prefix), {"request_id": new_request_id()}, _settings, method="DELETE")


def _settings(answer: TimedAnswer) -> answers.NamespaceSettings | None:
    return decode(answer, answers.NamespaceSet).settings


def _path(prefix: str) -> str:
    return wire.NAMESPACE.replace("{name}", quote(prefix, safe=""))
