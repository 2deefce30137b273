"""How the command line is described and read: commands that know what they take, and types of arguments."""

import argparse
import difflib
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias, get_args

from holdfast.cli import exit_codes
from holdfast.cli.inspector import Inspector
from holdfast.cli.printing import OUTPUTS, TABLE, say
from holdfast.values.durations import parse_rate
from holdfast.values.words import Algorithm

Run: TypeAlias = Callable[[Inspector, argparse.Namespace], Awaitable[int]]
"""What carries out a command: returns the exit code, and raises LockError, ValueError or OSError."""
RunAlone: TypeAlias = Callable[[argparse.Namespace], int]
"""What carries out a command that asks no node: returns the exit code, and raises ValueError or OSError."""

FOREVER: Final = "forever"


class CommandParser(argparse.ArgumentParser):
    """The parser of a command, which also knows what it takes.

    Shell completion, the manual page and advice for misspelt words are made of that. Options are never
    abbreviated: a new one would make scripts ambiguous.
    """

    def __init__(self, *, path: Sequence[str] = (), text: str = "", **options: Any) -> None:
        """Begin to describe a command: `path` is its words, `text` one line about it."""
        self.path = tuple(path)
        self.text = text
        self.options: list[argparse.Action] = []
        self.arguments: list[argparse.Action] = []
        self.below: dict[str, CommandParser] = {}
        super().__init__(allow_abbrev=False, **options)
        if sys.version_info >= (3, 14):
            self.color = False  # the manual page is made of usage lines, and colours are our own everywhere

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Describe an argument or an option, as any parser does, and remember it."""
        action = super().add_argument(*names, **options)
        (self.options if action.option_strings else self.arguments).append(action)
        return action

    def command(
        self, name: str, text: str, run: Run | None = None, *, alone: RunAlone | None = None, **options: Any
    ) -> "CommandParser":
        """Describe a command below this one, and what carries it out; neither for one that has others."""
        if not self.below:
            self._children = self.add_subparsers(
                dest="action" if self.path else "command",
                metavar="ACTION" if self.path else "COMMAND",
                required=True,
                parser_class=CommandParser,
            )
        options.setdefault("description", text[:1].upper() + text[1:] + ".")
        child: CommandParser = self._children.add_parser(
            name, help=text, path=(*self.path, name), text=text, **options
        )
        if run or alone:
            child.set_defaults(run=run, alone=alone)
        self.below[name] = child
        return child

    def add_output(self) -> None:
        """Describe `-o`, for a command that shows something."""
        self.add_argument(
            "-o",
            "--output",
            choices=OUTPUTS,
            default=TABLE,
            help="a table or sentence for people, one JSON document, or one in each line (default: table)",
        )

    def add_force(self) -> None:
        """Describe `--force`, for a command that writes a file."""
        self.add_argument("--force", action="store_true", help="replace an existing file")

    def add_reason(self) -> None:
        """Describe `--reason`, for a command of operators that changes something."""
        self.add_argument("--reason", metavar="TEXT", required=True, help="why; the audit keeps it")

    def walk(self) -> Iterator["CommandParser"]:
        """Yield it, and all commands below it."""
        yield self
        for command in self.below.values():
            yield from command.walk()

    def error(self, message: str) -> NoReturn:
        """Say what is wrong with the command line, and where it is described; exit."""
        say(f"{message}", f"see `{self.prog} --help`")
        sys.exit(exit_codes.USAGE)

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """Exit if a word is an option or a command that does not exist, and name the nearest one that does.

        argparse would complain first of what is missing, or take the value of a misspelt option for a name.
        """
        command, left = self, iter(words)
        for word in left:
            if word.startswith("-") and word != "-" and not word[1:2].isdigit():
                flag, _, value = word.partition("=")
                action = command.option(flag)
                if action is None:
                    command.error(self._advice(command, flag))
                if action.nargs != 0 and not value and flag in action.option_strings:
                    next(left, None)
            elif command.below:
                if word not in command.below:
                    near = _nearest(word, command.below)
                    command.error(f"unknown command {' '.join((*command.path, word))!r}{near}")
                command = command.below[word]

    def option(self, flag: str) -> argparse.Action | None:
        """Return the option that a word begins, `-ojson` included; None if there is none."""
        for action in self.options:
            if flag in action.option_strings or (flag[1] != "-" and flag[:2] in action.option_strings):
                return action
        return None

    def _advice(self, command: "CommandParser", flag: str) -> str:
        if self.option(flag) is not None:
            wait = flag == "--timeout" and command.option("--wait") is not None
            meant = "; how long to wait in the queue is --wait" if wait else ""
            return f"{flag} goes before the command: holdfast {flag} ... {' '.join(command.path)}{meant}"
        flags = [flag for action in command.options for flag in action.option_strings]
        return f"unknown option {flag}{_nearest(flag, flags)}"


_OTHER_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "lock": ("acquire",),
    "unlock": ("release",),
    "show": ("get", "list", "status", "members"),
    "locks": ("list",),
    "ls": ("list",),
    "restore": ("holdfast-node restore",),
    "nodes": ("status",),
    "leader": ("status",),
    "health": ("status",),
    "get": ("show", "list"),
    "info": ("get", "list"),
    "holders": ("get",),
    "set": ("put",),
    "semaphore": ("run --semaphore N",),
    "thaw": ("end", "freeze end PREFIX"),
    "unfreeze": ("end", "freeze end PREFIX"),
    "members": ("cluster members",),
    "prefer": ("cluster prefer",),
    "transfer": ("cluster transfer",),
    "rules": ("cluster rules",),
    "--json": ("-o json",),
    "--limit": ("--semaphore",),
    "--no-wait": ("--wait 0",),
}
"""What people type who know other tools, and what it is called here: the first that the command has.

`holdfast-node` is another program, on the machines of the nodes.
"""


def _nearest(word: str, known: Iterable[str]) -> str:
    """Return a question for the nearest of the known words, nothing if none is near."""
    known = list(known)
    for other in _OTHER_WORDS.get(word, ()):
        if other.split()[0] in (*known, "holdfast-node"):
            return f"; did you mean {other}?"
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def taken(path: Path) -> ValueError:
    """Return the refusal to write a file that exists, for a command with `--force`."""
    return ValueError(f"{path} is there already: name another file, or replace it with --force")


# -- types of arguments --------------------------------------------------------------------------------------


ALGORITHMS: Final = get_args(Algorithm)
"""How a rate limit may count; the first one is the default."""


def limit_and_s(text: str) -> tuple[int, float]:
    """Read a rate such as 100/minute: the limit, and the seconds of the window."""
    try:
        return parse_rate(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("limit: ")) from None


def duration_ms(text: str) -> int:
    """Read a length of time such as 500ms, 10s, 5m, 1h or 1d; a bare number means seconds."""
    units = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
    unit = next((unit for unit in units if text.endswith(unit)), "")
    try:
        value = round(float(text.removesuffix(unit)) * units.get(unit, 1000))
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a length of time; write it like 500ms, 10s or 5m")
    return value


def wait_s(text: str) -> float | None:
    """Read how long to wait, in seconds; `forever` is None."""
    return None if text == FOREVER else duration_ms(text) / 1000


def count(text: str) -> int:
    """Read a number of things, at least one."""
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def number(text: str) -> int:
    """Read the number of a record, or of a version: 0 or more."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def add_conflict_exit_code(parser: CommandParser, when: str) -> None:
    """Describe how a command exits when somebody else has what it wants."""
    parser.add_argument(
        "--conflict-exit-code",
        metavar="CODE",
        type=int,
        choices=range(256),
        default=exit_codes.CONFLICT,
        help=f"exit code when {when} (default: {exit_codes.CONFLICT})",
    )
