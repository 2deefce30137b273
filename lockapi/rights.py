"""What a principal may do where: rights by prefix, of which the longest one that covers a name counts.

A prefix covers the name that it is and all below it, part by part: `jobs` covers `jobs` and `jobs/7`, and
not `jobs2`. A longer prefix replaces what a shorter one gives, it does not add to it: so an exception can
also take away. Where no prefix covers, there is no right.
"""

import time
from collections.abc import Mapping
from typing import Final

from holdfast.token_lines import Right

_NONE: Final[frozenset[Right]] = frozenset()


def as_bytes(text: str) -> bytes:
    """Return a name, or the beginning of one, as bytes: names are compared so where they are kept."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        # No name has such a character, nor begins with it.
        return text.encode("utf-8", "surrogatepass")


class Rights:
    """The rights of one principal. Read only."""

    __slots__ = ("_anywhere", "_by_prefix", "_everywhere", "_on_the_whole")

    def __init__(self, by_prefix: Mapping[str, frozenset[Right]]) -> None:
        """Take rights by prefix, "" for everything that no other prefix covers."""
        self._by_prefix = dict(by_prefix)
        self._on_the_whole = by_prefix.get("", _NONE)
        self._anywhere = frozenset().union(*by_prefix.values())
        self._everywhere = self._on_the_whole.intersection(*by_prefix.values())

    def by_prefix(self) -> dict[str, list[str]]:
        """Return the names of all rights by the prefix that they are given for, "" for everything else."""
        return {prefix: sorted(rights) for prefix, rights in self._by_prefix.items()}

    def somewhere(self, right: Right) -> bool:
        """Whether there is any name for which it is given."""
        return right in self._anywhere

    def everywhere(self, right: Right) -> bool:
        """Whether it is given for all names, without an exception."""
        return right in self._everywhere

    def on_the_whole(self, right: Right) -> bool:
        """Whether it is given without a prefix."""
        return right in self._on_the_whole

    def covers(self, right: Right, name: str) -> bool:
        """Whether it is given for this name."""
        return right in self._everywhere or right in self._by_prefix.get(self._rule(name), _NONE)

    def gap_below(self, right: Right, name: str) -> str | None:
        """Return the prefix that lacks it, of this name and all below it; None if none does."""
        if right in self._everywhere:
            return None
        if not self.covers(right, name):
            return name
        below = f"{name}/"
        return self._first_without(right, below)

    def gap_behind(self, right: Right, start: str) -> str | None:
        """Return the prefix that lacks it, of all texts that begin with `start`; None if none does.

        `start` need not end where a part does.
        """
        if right in self._everywhere:
            return None
        # What covers all of them: the longest prefix of which `start` is already below.
        around = self._rule(start.rpartition("/")[0]) if "/" in start else ""
        if right not in self._by_prefix.get(around, _NONE):
            return start
        return self._first_without(right, start)

    def reaches_behind(self, right: Right, start: str) -> bool:
        """Whether there can be a text that begins with `start` and has it."""
        if self.gap_behind(right, start) is None:
            return True
        around = self._rule(start.rpartition("/")[0]) if "/" in start else ""
        is_around = right in self._by_prefix.get(around, _NONE)
        return is_around or any(right in self._by_prefix[prefix] for prefix in self._behind(start))

    def _first_without(self, right: Right, start: str) -> str | None:
        """Return the first prefix that begins with `start` and lacks the right."""
        lacking = [prefix for prefix in self._behind(start) if right not in self._by_prefix[prefix]]
        return min(lacking, default=None)

    def _behind(self, start: str) -> list[str]:
        """Return the prefixes that begin with `start`, which may end in the middle of a character."""
        begins = as_bytes(start)
        return [prefix for prefix in self._by_prefix if as_bytes(prefix).startswith(begins)]

    def with_implied(self, right: Right, implied: Right) -> "Rights":
        """Return these rights, where whoever has `right` has `implied` as well.

        A `right` without a prefix counts everywhere then.
        """
        is_everywhere = self.on_the_whole(right)
        return Rights(
            {
                prefix: rights | {implied} if is_everywhere or right in rights else rights
                for prefix, rights in self._by_prefix.items()
            }
        )

    def _rule(self, name: str) -> str:
        """Return the longest prefix that covers a name, "" if none does but that for everything."""
        rules = self._by_prefix
        while name not in rules:
            slash = name.rfind("/")
            if slash < 0:
                return ""
            name = name[:slash]
        return name


EVERYTHING: Final = Rights({"": frozenset(Right)})


class Principal:
    """Somebody who may call: `name` is for logs. `ends_at_s` is in seconds since 1970."""

    __slots__ = ("ends_at_s", "name", "rights")

    def __init__(self, name: str, rights: Rights, ends_at_s: int | None = None) -> None:
        self.name, self.rights, self.ends_at_s = name, rights, ends_at_s

    @property
    def has_ended(self) -> bool:
        """Whether its time is over."""
        return self.ends_at_s is not None and time.time() >= self.ends_at_s


ANYBODY: Final = Principal("", EVERYTHING)
"""Who calls a node that was told of no principals: it lets everybody do everything."""
