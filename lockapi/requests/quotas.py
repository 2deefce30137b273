"""Requests about quotas: how much one principal may have at a time."""

from typing import Annotated

import msgspec

from lockapi.requests.fields import UNSET, Maybe, Reason, Removal, Write, check, check_reason, invalid
from lockstate.tables.principals import EVERYBODY
from lockstate.words import limits
from lockstate.words.commands.admin import SetQuota
from lockstate.words.settings import Quota

Amount = Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 0, "maximum": limits.QUOTA_MAX})]


class SetQuotaRequest(Write, kw_only=True):
    """Bound what a principal may have; what is left out has no bound."""

    reason: Reason
    sessions: Amount | Maybe = UNSET
    holds: Amount | Maybe = UNSET
    waits: Amount | Maybe = UNSET
    cells: Amount | Maybe = UNSET
    fences: Amount | Maybe = UNSET
    rate_limits: Amount | Maybe = UNSET
    bytes: Amount | Maybe = UNSET

    def command(self, principal: str, reason: str) -> SetQuota:
        """Return the command. Raises ProblemError."""
        numbers: dict[str, int] = {}
        for what in Quota.__struct_fields__:
            number: int | msgspec.UnsetType = getattr(self, what)
            if not isinstance(number, msgspec.UnsetType):
                check(limits.check_range(what, number, limits.QUOTA_MAX))
                numbers[what] = number
        if not numbers:
            raise invalid(
                f"{', '.join(Quota.__struct_fields__)}: one of them is required; DELETE ends a quota"
            )
        check_reason(reason)
        return SetQuota(checked_principal(principal), Quota(**numbers), self.checked_id(), reason)


class RemoveQuotaRequest(Removal, kw_only=True):
    """End the quota of a principal: from now on that of everybody counts, if there is one."""

    def command(self, principal: str, reason: str) -> SetQuota:
        """Return the command. Raises ProblemError."""
        check_reason(reason)
        return SetQuota(checked_principal(principal), None, self.checked_id(), reason)


def checked_principal(principal: str) -> str:
    """Return the name of a principal, or that of all. Raises ProblemError."""
    if principal != EVERYBODY:
        check(limits.check_text("principal", principal, limits.PRINCIPAL_BYTES_MAX))
    return principal
