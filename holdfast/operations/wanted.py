"""What every request for something to hold may say. No I/O."""

import msgspec

from holdfast import wire
from holdfast.operations.operation import new_request_id
from holdfast.wire.words import PRIORITY_DEFAULT


class HoldRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What every request for something to hold may say: one of `ttl_ms`, `session_id` and no deadline.

    `wait_ms` None waits as long as the cluster allows. A wait that is longer than `ask_after_ms` asks those
    in its way to give up within `grace_ms`. One that `is_counted` needs one more release each time that its
    session acquires it.
    """

    owner: str = ""
    ttl_ms: int | None = None
    session_id: str = ""
    wait_ms: int | None = 0
    lock_delay_ms: int = 0
    note: str = ""
    value: str = ""
    is_value_secret: bool = False
    has_no_deadline: bool = False
    priority: int = PRIORITY_DEFAULT
    is_counted: bool = False
    ask_after_ms: int | None = None
    grace_ms: int | None = None

    def fields(self) -> dict[str, object]:
        """Return it as fields of a body."""
        return {
            "session_id": self.session_id,
            "ttl_ms": self.ttl_ms,
            "owner": self.owner,
            "wait_ms": self.longest_wait_ms or None,
            "lock_delay_ms": self.lock_delay_ms or None,
            "note": self.note,
            "value": self.value or None,
            "value_secret": self.is_value_secret or None,
            "no_deadline": self.has_no_deadline or None,
            "priority": None if self.priority == PRIORITY_DEFAULT else self.priority,
            "if_held": "count" if self.is_counted else None,
            "ask_after_ms": self.ask_after_ms if self.asks else None,
            "grace_ms": self.grace_ms if self.asks else None,
            "request_id": new_request_id(),
        }

    @property
    def asks(self) -> bool:
        """Whether it waits for so long that it asks by itself."""
        return self.ask_after_ms is not None and self.ask_after_ms < self.longest_wait_ms

    @property
    def longest_wait_ms(self) -> int:
        """How long the request itself waits."""
        return wire.WAIT_MS_MAX if self.wait_ms is None else self.wait_ms
