"""The operations on freezes: nothing new is granted at and below a prefix. No I/O."""

from holdfast import wire
from holdfast.operations.operation import Operation, ask, decode, new_request_id, path_to, write
from holdfast.wire.operators import FreezeInfo, FreezePageJson, FrozenJson, LeftBelow, ThawedJson


def freezes(prefix: str, after: str, *, is_stale: bool) -> Operation[FreezePageJson]:
    """Read a page of the frozen prefixes that begin with `prefix`."""
    query = {"prefix": prefix, "after": after, "consistency": wire.STALE if is_stale else ""}
    return ask(wire.FREEZES, query, lambda answer: decode(answer, FreezePageJson))


def frozen(prefix: str, *, is_stale: bool) -> Operation[FreezeInfo]:
    """Read whether a prefix is frozen, and what is held and waited for below it."""
    query = {"consistency": wire.STALE if is_stale else ""}
    return ask(path_to(wire.FREEZE, prefix), query, lambda answer: decode(answer, FreezeInfo))


def freeze(prefix: str, reason: str, for_ms: int | None) -> Operation[LeftBelow]:
    """Grant nothing new at and below a prefix, for some time or until it is thawed."""
    fields = {"reason": reason, "for_ms": for_ms, "request_id": new_request_id()}
    path = path_to(wire.FREEZE, prefix)
    return write(path, fields, lambda answer: decode(answer, FrozenJson).left, method="PUT")


def thaw(prefix: str, reason: str) -> Operation[bool]:
    """End the freeze of a prefix; the answer says whether there was one."""
    fields = {"reason": reason, "request_id": new_request_id()}
    path = path_to(wire.FREEZE, prefix)
    return write(path, fields, lambda answer: decode(answer, ThawedJson).thawed, method="DELETE")
