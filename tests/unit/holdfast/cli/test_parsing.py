"""How the command line is read: what is misspelt, and in what formats answers come."""

import argparse
import json

import pytest

import holdfast
from holdfast.cli import waiting
from holdfast.cli.main import build_parser, read
from holdfast.cli.parsing import CommandParser, wait_s
from holdfast.cli.printing import OUTPUTS
from tests.process.patient_requests import without_times
from tests.unit.holdfast.cli.test_commands import Line
from tests.unit.holdfast.conftest import a_node

SILENT = {"elect", "run", "completion", "man", "cluster rotate-secret", "token new", "token hash"}
"""The commands that print nothing, text of others, or lines for files."""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("acqire x", "unknown command 'acqire'; did you mean acquire?"),
        ("cell gett x", "unknown command 'cell gett'; did you mean get?"),
        ("zzz", "unknown command 'zzz'"),
        ("acquire x --waitt 3s", "unknown option --waitt; did you mean --wait?"),
        ("acquire x --waitt=3s", "unknown option --waitt; did you mean --wait?"),
        ("force release x --reasn y", "unknown option --reasn; did you mean --reason?"),
        ("run x --shard -- true", "unknown option --shard; did you mean --shared?"),
        ("list --lim 3", "unknown option --lim; did you mean --limit?"),
        ("status -x", "unknown option -x"),
        ("status --nodes n1", "--nodes goes before the command: holdfast --nodes ... status"),
        ("run x --timeout 5 -- true", "holdfast --timeout ... run; how long to wait in the queue is --wait"),
        ("get x --timeout 5", "--timeout goes before the command: holdfast --timeout ... get"),
        ("run x --no-wait -- true", "unknown option --no-wait; did you mean --wait 0?"),
        ("run x --limit 3 -- true", "unknown option --limit; did you mean --semaphore?"),
        ("prefer n1", "unknown command 'prefer'; did you mean cluster prefer?"),
        ("unlock x", "unknown command 'unlock'; did you mean release?"),
        ("semaphore gpu", "unknown command 'semaphore'; did you mean run --semaphore N?"),
        ("cell set x 1", "unknown command 'cell set'; did you mean put?"),
        ("namespace get x", "unknown command 'namespace get'; did you mean list?"),
        ("namespace show x", "unknown command 'namespace show'; did you mean list?"),
        ("show x", "unknown command 'show'; did you mean get?"),
        ("freeze get x", "unknown command 'freeze get'; did you mean show?"),
        ("freeze thaw x", "unknown command 'freeze thaw'; did you mean end?"),
        ("thaw x", "unknown command 'thaw'; did you mean freeze end PREFIX?"),
        ("restore b", "unknown command 'restore'; did you mean holdfast-node restore?"),
        ("backup restore b", "unknown command 'backup restore'; did you mean holdfast-node restore?"),
        ("backup show b", "unknown command 'backup show'; did you mean status?"),
        ("locks", "unknown command 'locks'; did you mean list?"),
        ("nodes", "unknown command 'nodes'; did you mean status?"),
        ("leader", "unknown command 'leader'; did you mean status?"),
        ("health", "unknown command 'health'; did you mean status?"),
        ("cluster show", "unknown command 'cluster show'; did you mean members?"),
        ("status --json", "unknown option --json; did you mean -o json?"),
        ("get a b", "unexpected argument: b"),
        ("list -o yaml", "invalid choice: 'yaml'"),
    ],
)
def test_what_does_not_exist_is_named(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before anything else that is wrong, with the nearest that exists; the exit code is 2."""
    with pytest.raises(SystemExit) as ended:
        read(line.split())
    assert ended.value.code == 2
    first, second = capsys.readouterr().err.splitlines()
    assert said in first
    assert second.startswith("holdfast: see `holdfast")
    assert second.endswith("--help`")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("release -", {"hold_id": "-"}),
        ("run x --priority -1 -- true", {"priority": -1, "argv": ["true"]}),
        ("list -ojson", {"output": "json", "prefix": ""}),
        ("list -o=jsonl acquire", {"output": "jsonl", "prefix": "acquire"}),
        ("run x -- timeout --unknown 3", {"argv": ["timeout", "--unknown", "3"]}),
        ("acquire --ttl=5s --note --wait x", {}),
    ],
)
def test_what_looks_like_something_else_is_read(line: str, expected: dict[str, object]) -> None:
    """The value of an option is not a command, and words behind -- are not options of ours."""
    if not expected:
        with pytest.raises(SystemExit):
            read(line.split())
        return
    arguments = vars(read(line.split()))
    assert {name: arguments[name] for name in expected} == expected


@pytest.mark.parametrize(("text", "expected"), [("forever", None), ("0", 0.0), ("1m", 60.0)])
def test_how_long_to_wait(text: str, expected: float | None) -> None:
    """A length of time, or as long as it takes."""
    assert wait_s(text) == expected
    with pytest.raises(argparse.ArgumentTypeError):
        wait_s("never")


def leaves() -> list[CommandParser]:
    """Return all commands that do something."""
    return [command for command in build_parser().walk() if not command.below]


@pytest.mark.parametrize("command", leaves(), ids=lambda command: "-".join(command.path))
def test_whatever_shows_something_takes_a_format(command: CommandParser) -> None:
    """It is called -o and --output everywhere, and has the same three formats; there is no other one."""
    name = " ".join(command.path)
    option = command.option("-o")
    assert (option is None) == (name in SILENT or command.path[0] == "cert"), name
    assert command.option("--json") is None
    if option is not None:
        assert option.choices is not None
        assert [choice for choice in option.choices if choice != "value"] == list(OUTPUTS)


async def test_each_format_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    """Many things are a table, one array, or a document in each line; one thing is one document."""
    async with a_node() as (_, url), holdfast.Client(url, owner="ann") as client:
        line = Line(url, capsys)
        async with client.lock("a"), client.lock("b"):
            for command, count in (
                (("list",), 2),
                (("audit",), 2),
                (("cluster", "members"), 1),
                (("list", "--kind", "cells"), 0),
            ):
                code, table, _ = await line(*command)
                assert (code, len(table.splitlines())) == (0, 1 + count)
                _, array, _ = await line(*command, "-o", "json")
                _, lines, _ = await line(*command, "-o", "jsonl")
                rows = [json.loads(text) for text in lines.splitlines()]
                assert without_times(json.loads(array)) == without_times(rows)
                assert len(json.loads(array)) == count
            for command in (("status",), ("get", "a"), ("top", "--once")):
                _, document, _ = await line(*command, "-o", "json")
                _, one_line, _ = await line(*command, "-o", "jsonl")
                assert json.loads(document).keys() == json.loads(one_line).keys()
                assert (document.count("\n") > 1, one_line.count("\n")) == (True, 1)


@pytest.mark.parametrize(
    ("shown", "waited_s", "said"),
    [
        (
            {"holders": [{"owner": "a"}], "queue": [{"owner": "us", "position": 2, "waited_ms": 40_000}]},
            40.2,
            "waiting for 'x': held by a, 2nd in the queue",
        ),
        ({"holders": [{"owner": "a"}, {"owner": "b"}, {"owner": "c"}]}, 1.0, "held by a and 2 more"),
        ({"leader": {"owner": "a"}, "queue": [{"owner": "b", "position": 1}]}, 1.0, "held by a"),
        (
            {
                "queue": [
                    {"owner": "us", "position": 11, "waited_ms": 90_000},
                    {"owner": "us", "position": 13, "waited_ms": 5_000},
                ]
            },
            4.0,
            "waiting for 'x': 13th in the queue",
        ),
        ({"leader": None, "holders": []}, 1.0, "waiting for 'x'"),
        (None, 1.0, "no node says who has it"),
    ],
)
def test_what_is_waited_for(shown: dict[str, object] | None, waited_s: float, said: str) -> None:
    """Who has it, and our place: of several waits under our name, the one that is as old as ours."""
    text = waiting.describe("x", shown, "us", waited_s)
    assert text.endswith(said)


def test_numbers_in_words() -> None:
    """Places and times as people say them."""
    assert [waiting.ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        *("1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "112th")
    ]
    assert [waiting.spoken(seconds) for seconds in (0.4, 40, 119, 120, 7199, 7200)] == [
        *("0 s", "40 s", "119 s", "2 min", "120 min", "2 h")
    ]
