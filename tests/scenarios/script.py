"""Scenario files: blocks of commands, each with the trace it must leave. Parsing and printing, nothing else.

A block is some lines of commands, a line `----`, and the trace up to the next empty line. Lines that start
with `#` between blocks are for the reader and are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass

RULE = "----"


@dataclass
class Block:
    """Commands that form one log entry, and the trace that they must leave."""

    lines: list[str]
    expected: list[str]
    line_number: int


def parse(text: str) -> list[Block | str]:
    """Return the blocks of a scenario and, between them, its other lines as they are."""
    parts: list[Block | str] = []
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        if not lines[index] or lines[index].startswith("#"):
            parts.append(lines[index])
            index += 1
            continue
        end = lines.index("", index) if "" in lines[index:] else len(lines)
        chunk = lines[index:end]
        middle = chunk.index(RULE) if RULE in chunk else len(chunk)
        parts.append(Block(chunk[:middle], chunk[middle + 1 :], index + 1))
        index = end
    return parts


def rewritten(parts: list[Block | str], run: Callable[[Block], list[str]]) -> str:
    """Return the scenario with the trace that `run` leaves for each block."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Block):
            lines += [*part.lines, RULE, *run(part)]
        else:
            lines.append(part)
    return "\n".join(lines) + "\n"
