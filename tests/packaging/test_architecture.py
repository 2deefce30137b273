"""The floor plan in docs/architecture.md: its table lists the rooms and files that exist."""

import re
from pathlib import Path

from tests.packaging import rooms

ROOT = Path(__file__).resolve().parents[2]
PLAN = (ROOT / "docs" / "architecture.md").read_text("utf-8")
ROOMS = PLAN.partition("## The rooms\n")[2]
PARTS = {
    "lockapi/requests",
    "lockstate/words/commands",
    "lockstate/invariants",
    "lockstate/rules/holds",
    "http_api/v1/handlers",
}
"""Packages that are a part of the room above them."""


def rows(part: str) -> list[list[str]]:
    """Return the cells of each row of a table, without those of its head."""
    lines = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_table_lists_every_room_and_no_other() -> None:
    """Each package of the product is a room of the table, and each room of the table is a package."""
    listed = [cells[0] for cells in rows(ROOMS)]
    inits = [path for package in rooms.PACKAGES for path in (ROOT / package).rglob("__init__.py")]
    packages = {path.parent.relative_to(ROOT).as_posix() for path in inits} - PARTS
    assert sorted(listed) == sorted(f"`{package}/`" for package in packages)


def test_the_table_lists_what_each_room_may_import() -> None:
    """The last column has the arrows that test_imports.py enforces, room by room."""
    for room, _, _, may_import in rows(ROOMS):
        allowed = {room_name(module) for module in rooms.ROOMS[room.strip("`/")].may_import} - {""}
        assert set(re.findall(r"`([^`]+)`", may_import)) == allowed, room


def room_name(module: str) -> str:
    """Return what the table calls the room of a module; nothing for settings and errors of a node."""
    parts = module.split(".")
    match parts:
        case [
            "cluster",
            "build" | "config" | "config_secrets" | "config_sources" | "errors" | "file_watch" | "tracing",
            *_,
        ]:
            return ""
        case ["lockstate", "machine"]:
            return "lockstate"
        case ["cluster" | "http_api" | "lockstate" | "redis_api", room, *_]:
            return room
        case ["holdfast", *_]:
            return module
    return parts[0]


def test_the_files_of_the_plan_exist() -> None:
    """Each Python file that the plan names is there, in the room whose row names it."""
    for room, _, holds, _ in rows(ROOMS):
        for name in re.findall(r"`(\w+\.py)`", holds):
            assert (ROOT / room.strip("`") / name).is_file(), f"{room}: {name}"
    for path in re.findall(r"`(\w+/[\w/]+\.py)`", PLAN):
        assert (ROOT / path).is_file(), path


def test_the_plan_is_one_page() -> None:
    """The plan can be read in one go."""
    assert len(PLAN.splitlines()) <= 100
