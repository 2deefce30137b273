"""The operations on namespaces: what holds for the names at and below a prefix. No I/O."""

import msgspec

from holdfast import wire
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode, new_request_id, path_to, write
from holdfast.wire.operators import NamespaceInfo, NamespacePageJson, NamespaceSetJson, NamespaceSettings


def namespaces(prefix: str, after: str, *, is_stale: bool) -> Operation[NamespacePageJson]:
    """Read a page of the namespaces whose own prefixes begin with `prefix`."""
    query = {"prefix": prefix, "after": after, "consistency": wire.STALE if is_stale else ""}
    return ask(wire.NAMESPACES, query, lambda answer: decode(answer, NamespacePageJson))


def namespace(prefix: str, *, is_stale: bool) -> Operation[NamespaceInfo]:
    """Read one namespace."""
    query = {"consistency": wire.STALE if is_stale else ""}
    return ask(_path(prefix), query, lambda answer: decode(answer, NamespaceInfo))


def set_namespace(
    prefix: str, settings: NamespaceSettings, reason: str
) -> Operation[NamespaceSettings | None]:
    """Say what holds for the names at and below a prefix; what is None is left open."""
    said = {what: value for what, value in msgspec.structs.asdict(settings).items() if value is not None}
    return write(_path(prefix), {**said, **_why(reason)}, _settings, method="PUT")


def remove_namespace(prefix: str, reason: str) -> Operation[NamespaceSettings | None]:
    """Remove a namespace."""
    return write(_path(prefix), _why(reason), _settings, method="DELETE")


def _why(reason: str) -> dict[str, str]:
    return {"reason": reason, "request_id": new_request_id()}


def _settings(answer: TimedAnswer) -> NamespaceSettings | None:
    return decode(answer, NamespaceSetJson).settings


def _path(prefix: str) -> str:
    return path_to(wire.NAMESPACE, prefix)
