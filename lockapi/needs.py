"""What a call needs of its caller before it is read. The row of a route says which of these (v1/table.py).

What a command or a read names is checked later, by rights_needed.py.
"""

from typing import Final, NamedTuple

from holdfast.token_lines import Right
from lockapi.problems import ProblemError
from lockapi.rights import Rights


def forbidden(right: Right, name: str | None = None) -> ProblemError:
    """Return the refusal of a principal that lacks a right: for a name or prefix, for all, or anywhere."""
    if name is None:
        return ProblemError("forbidden", f"this needs the right {right}, which the caller has for no name")
    where = f"for {name!r}" if name else "for everything"
    return ProblemError("forbidden", f"this needs the right {right} {where}")


class Need(NamedTuple):
    """What a call needs of a principal before anything of it is read."""

    right: Right | None = None
    """None: no right, only to be known."""
    is_open: bool = False
    """Whether not even that."""
    on_everything: bool = False
    """Whether the right is needed for all names: what is shown has none by which it could be left out."""
    on_the_whole: bool = False
    """Whether the right is needed without a prefix: it is about the cluster, and not about names."""
    instead: Right | None = None
    """The right that will do as well."""

    def check(self, rights: Rights) -> None:
        """Refuse a principal that can in no case make this call. Raises ProblemError."""
        right = self.right
        if right is None:
            return
        if self.on_everything:
            if not rights.everywhere(right):
                raise forbidden(right, "")
        elif self.on_the_whole:
            if not rights.on_the_whole(right):
                raise forbidden(right)
        elif not (rights.somewhere(right) or (self.instead and rights.somewhere(self.instead))):
            raise forbidden(right)


OPEN: Final = Need(is_open=True)
"""Whoever asks may know it: probes have no token."""
KNOWN: Final = Need()
READ: Final = Need(Right.READ)
ACQUIRE: Final = Need(Right.ACQUIRE)
FORCE: Final = Need(Right.FORCE)
ADMIN: Final = Need(Right.ADMIN, on_the_whole=True)
METRICS: Final = Need(Right.METRICS)
READ_ALL: Final = Need(Right.READ, on_everything=True)
FORCE_ALL: Final = Need(Right.FORCE, on_everything=True)
ADMIN_BELOW: Final = Need(Right.ADMIN)
"""The right `admin` for some prefix: what is set counts only for names below it."""
READ_OR_ADMIN: Final = Need(Right.READ, instead=Right.ADMIN)
