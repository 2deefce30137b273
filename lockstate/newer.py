"""What of a command only newer rules know though its tag is an old one: modes, what a frame numbers, null.

A node that does not know a word of a command finds the whole of it undecodable. So must one that does, as
long as older rules are active.
"""

from typing import Final

from lockstate.commands import Acquire, AcquireIf, Command, Convert, Numbered, NumberedCommand, Undecodable
from lockstate.modes import RARE
from lockstate.versions import RULES, RULES_WHOLE

MODES_SINCE: Final = RULES_WHOLE
"""The first rules that know all modes."""


def is_known(command: Command | NumberedCommand | Undecodable, rules: int) -> bool:
    """Whether `rules`, which know the command by its tag, know all that it says as well."""
    if rules >= MODES_SINCE:
        return True
    match command:
        case Numbered():
            tag_max = RULES[rules].command_tag_max
            return all(
                one.__struct_config__.tag <= tag_max and is_known(one, rules)  # type: ignore[operator]
                for one in command.commands
            )
        case AcquireIf(if_held=None):
            return False
        case Acquire():
            return command.mode.place < RARE and all(lock.mode.place < RARE for lock in command.locks)
        case Convert():
            return command.mode.place < RARE
    return True
