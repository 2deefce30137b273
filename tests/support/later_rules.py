"""A made-up later release: it knows rules 2, by which every command does what it does by rules 1."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from lockstate.words.versions import RULES, Rules, rules_newest

RULES_LATER: Final = rules_newest() + 1
"""The rules that only the later release knows."""


@contextmanager
def later_rules() -> Iterator[None]:
    """Let all nodes in this process be of that release, as long as they do not tell others less."""
    before = RULES[rules_newest()]
    RULES[RULES_LATER] = Rules(RULES_LATER, before.command_tag_max, "As before.")
    try:
        yield
    finally:
        del RULES[RULES_LATER]
