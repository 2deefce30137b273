"""Requests of operators about what others have: the reason of each is kept in the audit.

Force on holds is in `locks`, with what is particular to it.
"""

from typing import Annotated

import msgspec

from api.requests.fields import Name, Write, check, check_reason
from lockstate import commands, limits
from lockstate.kinds import HoldKind

Reason = Annotated[str, msgspec.Meta(extra_json_schema={"minLength": 1})]


class ForceCloseSessionRequest(Write, kw_only=True):
    """End a session, known by its public name."""

    session_name: Name
    reason: Reason

    def command(self) -> commands.ForceCloseSession:
        """Return the command. Raises ProblemError."""
        check(limits.check_id("session_name", self.session_name))
        check_reason(self.reason)
        return commands.ForceCloseSession(self.session_name, self.reason, self.checked_id())


class LiftDelayRequest(Write, kw_only=True):
    """End the lock-delays of a name before their time."""

    name: Name
    reason: Reason

    def command(self, kind: HoldKind) -> commands.LiftDelay:
        """Return the command for a lock or a semaphore. Raises ProblemError."""
        check(limits.check_name(self.name))
        check_reason(self.reason)
        return commands.LiftDelay(self.name, self.reason, kind, self.checked_id())


class ForgetFenceRequest(Write, kw_only=True):
    """Forget the highest token that a resource has seen."""

    resource: Name
    reason: Reason

    def command(self) -> commands.ForgetFence:
        """Return the command. Raises ProblemError."""
        check(limits.check_name(self.resource))
        check_reason(self.reason)
        return commands.ForgetFence(self.resource, self.reason, self.checked_id())
