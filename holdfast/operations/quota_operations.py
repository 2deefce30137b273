"""The operations on quotas: how much each principal may have at a time. No I/O."""

import msgspec

from holdfast import wire
from holdfast.operations.operation import Operation, TimedAnswer, ask, decode, new_request_id, path_to, write
from holdfast.wire.operators import PrincipalInfo, Quota, QuotaPageJson, QuotaSetJson


def quotas(after: str, *, is_stale: bool) -> Operation[QuotaPageJson]:
    """Read a page of the principals that have a quota, or anything at all."""
    query = {"after": after, "consistency": wire.STALE if is_stale else ""}
    return ask(wire.QUOTAS, query, lambda answer: decode(answer, QuotaPageJson))


def quota(principal: str, *, is_stale: bool) -> Operation[PrincipalInfo]:
    """Read what a principal has and may have."""
    query = {"consistency": wire.STALE if is_stale else ""}
    return ask(_path(principal), query, lambda answer: decode(answer, PrincipalInfo))


def set_quota(principal: str, quota: Quota, reason: str) -> Operation[Quota | None]:
    """Bound what a principal may have; what is None has no bound."""
    fields = {**msgspec.structs.asdict(quota), "reason": reason, "request_id": new_request_id()}
    return write(_path(principal), fields, _quota, method="PUT")


def remove_quota(principal: str, reason: str) -> Operation[Quota | None]:
    """End the quota of a principal."""
    fields = {"reason": reason, "request_id": new_request_id()}
    return write(_path(principal), fields, _quota, method="DELETE")


def _quota(answer: TimedAnswer) -> Quota | None:
    return decode(answer, QuotaSetJson).quota


def _path(principal: str) -> str:
    return path_to(wire.QUOTA, principal)
