"""The ids and names that commands, results, records and views carry, each a type of its own.

They are strings at run time and in every encoding; only the type checker tells them apart. Ids are made by
nodes, at random, and are secrets: knowing one is the right to use what it names. Convert a plain string where
it enters the program (a decoded request, a test), never in between.
"""

from typing import Final, NewType

SessionId = NewType("SessionId", str)
"""The secret id of a session."""

HoldId = NewType("HoldId", str)
"""The secret id of a hold, from its request on: what waits for a hold has the hold's id already.

A waiting conversion has an id of this type too, its `ticket_id`; it shares the namespace of the holds.
"""

AttemptId = NewType("AttemptId", str)
"""The id of one attempt at a request that can wait. A repeated request is a new attempt.

Mostly it is the same text as the id that the attempt has for its hold or ticket, which is as new.
"""

OwnerName = NewType("OwnerName", str)
"""The public name of whoever holds or waits. Not secret, not unique."""


def attempt_of(hold_id: HoldId, attempt_id: AttemptId) -> AttemptId:
    """Return the id of an attempt as a record keeps it: if both are the same text, they are one string."""
    own = AttemptId(hold_id)
    return own if attempt_id == own else attempt_id


NO_SESSION: Final = SessionId("")
"""In place of a session: what carries it has a lease of its own."""
NO_HOLD: Final = HoldId("")
"""In place of a hold, where there is none."""
NO_ATTEMPT: Final = AttemptId("")
"""In place of an attempt that was taken back."""
NO_OWNER: Final = OwnerName("")
"""In place of an owner's name, where none was given."""
