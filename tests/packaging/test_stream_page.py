"""docs/stream.md, from which clients in other languages are written, lists what `holdfast.wire` has."""

import re
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from holdfast.wire import stream
from holdfast.wire.commands import Command
from holdfast.wire.results import Result, StreamCellRead

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "stream.md").read_text("utf-8")
_BRACKETS = re.compile(r"\([^()]*(?:\([^()]*\)[^()]*)*\)|`[^`]*`")


def listed(heading: str) -> dict[int, list[str]]:
    """Return what the table below a heading lists: fields by number."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (\d+) \| (.*) \|$", section, re.MULTILINE)
    return {int(number): fields_of(text) for number, text in rows}


def fields_of(text: str) -> list[str]:
    """Return the names of the fields in a row: what stands behind the colon, without remarks."""
    told = _BRACKETS.sub("", text).partition(";")[0]
    fields = told.partition(": ")[2]
    return [field.strip() for field in fields.split(",") if field.strip()]


def has(kinds: tuple[Any, ...]) -> dict[int, list[str]]:
    """Return what there is: fields by tag."""
    classes = [get_origin(kind) or kind for kind in kinds]
    assert len({each.__struct_config__.tag for each in classes}) == len(classes)
    return {each.__struct_config__.tag: list(each.__struct_fields__) for each in classes}


@pytest.mark.parametrize(
    ("heading", "kinds"), [("Commands", get_args(Command)), ("Results", get_args(Result))]
)
def test_the_tables_list_every_field_in_its_place(heading: str, kinds: tuple[Any, ...]) -> None:
    """Whoever writes a client counts them there."""
    assert listed(heading) == has(kinds)


@pytest.mark.parametrize(
    ("table", "kinds"),
    [("client to node", get_args(stream.ToNode)), ("node to client", get_args(stream.ToClient))],
)
def test_every_message_is_listed_with_as_many_elements(table: str, kinds: tuple[Any, ...]) -> None:
    """A message is an array of its number and its fields."""
    rows = PAGE.partition(f"| {table} | |\n")[2].partition("\n\n")[0]
    messages = re.findall(r"^\| `\[(\d+)(.*?)\]` \|", rows, re.MULTILINE)
    counts = {int(number): len(re.sub(r"\[.*\]", "list", rest).split(",")) - 1 for number, rest in messages}
    assert counts == {tag: len(fields) for tag, fields in has(kinds).items()}


def test_what_a_transaction_reads_has_the_number_on_the_page() -> None:
    """Only transactions have it, so it has no row."""
    assert f"`[{StreamCellRead.__struct_config__.tag}, cell]`" in PAGE
