"""Priorities: 0 to 9 order a queue, and a wait makes up for a lower one, so that nobody starves.

A ticket stands at the time of its arrival, moved by `limits.PRIORITY_STEP_MS` for each step of its priority
(see `records.precedence`). That place never changes: time passes without anything being looked at again, and
a ticket that nobody of a higher priority joins within nine steps is not overtaken any more. With the same
priority everywhere this is the order of arrival.

A priority other than the default is stored as an `Extra`. In memory the class of a ticket says it, which
costs other tickets nothing and is not encoded. Each priority has queues of its own on the records of names,
so nobody enters such a queue but at its end; a semaphore has one queue, which holds at most
`limits.QUEUE_LENGTH_MAX` tickets, and who enters it further in front moves those that it overtakes: about ten
milliseconds if it overtakes all of a full one, half of that for the search for deadlocks.
"""

from typing import Final

import msgspec

from lockstate.tables.records import CONVERSION, RANKED, Ticket
from lockstate.words import limits
from lockstate.words.commands import PRIORITY_DEFAULT
from lockstate.words.results import Refused


def _made(priority: int) -> type[Ticket]:
    """Return the class of the tickets of one priority, which are stored like all others."""
    if priority == PRIORITY_DEFAULT:
        return Ticket
    says = {
        "priority": priority,
        "steps": PRIORITY_DEFAULT - priority,
        "lane": RANKED + CONVERSION * priority,
    }
    made = msgspec.defstruct(
        f"Ticket{priority}", (), bases=(Ticket,), namespace=says, array_like=True, eq=False, gc=False
    )
    assert issubclass(made, Ticket)
    return made


_CLASSES: Final = {priority: _made(priority) for priority in range(limits.PRIORITY_MAX + 1)}


def class_of(priority: int) -> type[Ticket]:
    """Return the class of the tickets of a priority. Raises KeyError if there is none of it."""
    return _CLASSES[priority]


def ranked(ticket: Ticket, priority: int) -> Ticket:
    """Return an ordinary ticket with another priority, as after a restart, when only the `Extra` says it."""
    return class_of(priority)(*msgspec.structs.astuple(ticket))


def check_priority(priority: int) -> Refused | None:
    """Return why nothing can have this priority, or None."""
    return limits.check_range("priority", priority, limits.PRIORITY_MAX)
