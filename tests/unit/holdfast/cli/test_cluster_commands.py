"""Changes of the members through the client and the command line."""

import asyncio
import os
import sys

import pytest

import holdfast
from tests.unit.holdfast.scripted import ScriptedNode, Step, answer, problem

DEADLINE_S = 30
WHY = ("--reason", "by hand")
ADD = ("cluster", "add", *WHY, "n4", "h4:7800")
REPLACE = ("cluster", "replace", *WHY, "n3", "n4", "h4:7800")


async def _holdfast(node_url: str, *argv: str) -> tuple[int | None, str, str]:
    """Run the command line against a node; return exit code, stdout and stderr."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "--timeout", "500ms", *argv),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"HOLDFAST_NODES": node_url},
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def _members(*nodes: str, joining: str = "") -> Step:
    """Answer a change with these members."""
    members = [
        {"id": node, "peer": f"h{node[1:]}:7800", "state": "joining" if node == joining else "voter"}
        for node in nodes
    ]
    return answer(members=members, revision=9)


def _view(*nodes: str, joining: str = "") -> Step:
    """Answer how the cluster is."""
    infos = [
        {"id": node, "http": f"http://h{node[1:]}:7700", "peer": f"h{node[1:]}:7800", "revision": 7}
        | {"state": "joining" if node == joining else "follower"}
        for node in nodes
    ]
    return answer(node_id="n1", leader="n1", term=2, revision=7, nodes=infos)


async def test_the_client_adds_and_removes() -> None:
    """Members come back as values; a refusal is an exception with code and reason."""
    script = (
        _members("n1", "n4", joining="n4"),
        _members("n1"),
        problem("member-not-found", detail="who?"),
        _members("n1", "n2"),
    )
    async with ScriptedNode(*script) as node, holdfast.Client([node.url]) as client:
        added = await client.admin.add_member("n4", "h4:7800", reason="by hand")
        assert added[1] == holdfast.Member(id="n4", peer="h4:7800", state="joining")
        assert [member.id for member in await client.admin.remove_member("n4", reason="by hand")] == ["n1"]
        with pytest.raises(holdfast.MemberChangeRefused, match="member-not-found: who"):
            await client.admin.remove_member("n9", reason="by hand")
        assert [
            member.peer for member in await client.admin.move_member("n2", "h2:7800", reason="by hand")
        ] == [
            "h1:7800",
            "h2:7800",
        ]
        assert [(seen.method, seen.path) for seen in (*node.seen[:2], node.seen[3])] == [
            ("POST", "/v1/cluster/members"),
            ("DELETE", "/v1/cluster/members"),
            ("PATCH", "/v1/cluster/members"),
        ]
        said = [{**seen.fields} for seen in (node.seen[0], node.seen[1], node.seen[3])]
        assert len({fields.pop("request_id") for fields in said}) == 3
        assert said == [
            {"id": "n4", "peer": "h4:7800", "reason": "by hand"},
            {"id": "n4", "reason": "by hand"},
            {"id": "n2", "peer": "h2:7800", "reason": "by hand"},
        ]


async def test_members_are_shown_with_their_addresses() -> None:
    """One line for each node: id, role, peer address, URL, revision."""
    async with ScriptedNode(_view("n1", "n4", joining="n4")) as node:
        code, out, _ = await _holdfast(node.url, "cluster", "members")
        assert code == 0
        assert [line.split() for line in out.splitlines()] == [
            ["ID", "STATE", "PEER", "HTTP", "REVISION"],
            ["n1", "follower", "h1:7800", "http://h1:7700", "7"],
            ["n4", "joining", "h4:7800", "http://h4:7700", "7"],
        ]


async def test_add_prints_how_the_node_is_started() -> None:
    """The command line has --join and all members, the new one among them."""
    async with ScriptedNode(_members("n1", "n2", "n4", joining="n4")) as node:
        code, out, _ = await _holdfast(node.url, *ADD)
        assert code == 0
        command = " ".join(out.partition("holdfast-node ")[2].replace("\\\n", "").split())
        assert command == (
            "--join --node-id n4 --http h4:7700 --peers n1=h1:7800,n2=h2:7800,n4=h4:7800"
            " --data-dir /var/lib/holdfast --secret-file /etc/holdfast/secret"
        )
        assert len(node.seen) == 1


async def test_add_waits_until_the_node_counts() -> None:
    """With --wait the command returns when the node votes, and fails when that takes too long."""
    joining = _members("n1", "n4", joining="n4")
    async with ScriptedNode(joining, joining, _members("n1", "n4")) as node:
        code, out, _ = await _holdfast(node.url, *ADD, "--wait", "20s")
        assert code == 0
        assert out.endswith("n4 votes\n")
    async with ScriptedNode(joining) as node:
        code, _, err = await _holdfast(node.url, *ADD, "--wait", "300ms")
        assert code == 121
        assert "n4 is still joining: does it run, and do the others reach h4:7800?" in err
        assert "holdfast cluster remove" in err


async def test_a_refused_change_is_exit_code_119_with_the_reason() -> None:
    """The cluster's reason is shown, and what to do next."""
    refused = problem("member-change-refused", detail="without n2 the cluster would lose its quorum")
    async with ScriptedNode(refused) as node:
        code, _, err = await _holdfast(node.url, "cluster", "remove", "--yes", *WHY, "n2")
        assert code == 119
        assert "would lose its quorum" in err
        assert "this change was not made" in err


async def test_a_pending_change_is_waited_for() -> None:
    """One change at a time: with --wait the command tries again, without it it says so."""
    pending = problem("member-change-pending")
    async with ScriptedNode(pending, pending, _members("n1", "n2")) as node:
        code, out, _ = await _holdfast(node.url, "cluster", "remove", "--yes", *WHY, "n3", "--wait", "20s")
        assert (code, out) == (0, "n3 was removed; the members are n1, n2\n")
    async with ScriptedNode(pending) as node:
        code, _, err = await _holdfast(node.url, "cluster", "remove", "--yes", *WHY, "n3")
        assert code == 119
        assert "under way" in err


@pytest.mark.parametrize(("left", "is_asked"), [(("n1", "n2", "n4"), False), (("n1", "n2"), True)])
async def test_a_removal_that_leaves_fewer_than_three_voters_is_confirmed(
    left: tuple[str, ...],
    is_asked: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """Without a terminal and --yes nothing is removed; what would be left is told, and what to do instead."""
    async with ScriptedNode(_view(*left, "n3"), _members(*left)) as node:
        code, out, err = await _holdfast(node.url, "cluster", "remove", *WHY, "n3")
        assert len(node.seen) == (1 if is_asked else 2)
    if is_asked:
        assert (code, out) == (119, "")
        assert "without n3 only n1, n2 would vote, and no node may fail" in err
        assert "holdfast cluster replace" in err
        assert "--yes" in err
    else:
        assert (code, out) == (0, "n3 was removed; the members are n1, n2, n4\n")


@pytest.mark.parametrize(("said", "code"), [("y\n", 0), ("\n", 119)])
async def test_a_person_is_asked_before_too_few_voters_are_left(said: str, code: int) -> None:
    """At a terminal the command waits for the answer: all but yes leaves the cluster as it is."""
    ours, theirs = os.openpty()
    try:
        async with ScriptedNode(_view("n1", "n2", "n3"), _members("n1", "n2")) as node:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "holdfast", "cluster", "remove", *WHY, "n3"),
                stdin=theirs,
                stderr=asyncio.subprocess.PIPE,
                env=os.environ | {"HOLDFAST_NODES": node.url},
            )
            assert process.stderr is not None
            async with asyncio.timeout(DEADLINE_S):
                question = await process.stderr.readuntil(b"[y/N] ")
                os.write(ours, said.encode())
                assert await process.wait() == code
            assert len(node.seen) == (2 if code == 0 else 1)
        assert b"Remove n3?" in question
    finally:
        os.close(ours)
        os.close(theirs)


async def test_the_rules_are_held_and_released() -> None:
    """The command says which rules these are, and whether anything has changed."""
    held = answer(rules=1, held=True, was_held=False, revision=9)
    released = answer(rules=1, held=False, was_held=False, revision=10)
    async with ScriptedNode(held, released) as node:
        code, out, _ = await _holdfast(node.url, "cluster", "rules", "hold", *WHY)
        assert (code, out) == (0, "rules 1 are held, until `holdfast cluster rules release`\n")
        code, out, _ = await _holdfast(node.url, "cluster", "rules", "release", *WHY)
        assert (code, out) == (0, "rules 1 were not held; see `holdfast version`\n")
        assert [call.method for call in node.seen] == ["PUT", "DELETE"]


async def test_a_node_is_moved() -> None:
    """The command waits for another change that is under way, and says what to do on the node's machine."""
    pending = problem("member-change-pending")
    async with ScriptedNode(pending, _members("n1", "n2")) as node:
        code, out, _ = await _holdfast(node.url, "cluster", "move", *WHY, "n2", "h2:7800", "--wait", "20s")
        assert (code, node.seen[1].method) == (0, "PATCH")
        assert out == "the others reach n2 at h2:7800 from now on; let it run there, on its data directory\n"


async def test_an_unknown_outcome_says_that_repeating_does_no_harm() -> None:
    """Exit code 122, and what to do."""
    async with ScriptedNode(problem("outcome-unknown")) as node:
        code, _, err = await _holdfast(node.url, "cluster", "remove", "--yes", *WHY, "n3")
        assert code == 122
        assert "repeat it: that does no harm" in err


async def test_replace_removes_the_old_node_when_the_new_one_counts() -> None:
    """The order is: add, wait, remove. Until then the old one stays."""
    script = (
        _view("n1", "n2", "n3"),
        _members("n1", "n2", "n3", "n4", joining="n4"),
        _members("n1", "n2", "n3", "n4", joining="n4"),
        _members("n1", "n2", "n3", "n4"),
        _members("n1", "n2", "n4"),
    )
    async with ScriptedNode(*script) as node:
        code, out, _ = await _holdfast(node.url, *REPLACE)
        assert code == 0
        assert out.endswith("n4 votes\nn3 was removed; the members are n1, n2, n4\n")
        assert [seen.method for seen in node.seen] == ["GET", "POST", "POST", "POST", "DELETE"]


async def test_replace_removes_nothing_while_the_new_node_does_not_count() -> None:
    """A new node that never comes leaves the cluster as it was, but for one that is joining."""
    script = (_view("n1", "n2", "n3"), _members("n1", "n2", "n3", "n4", joining="n4"))
    async with ScriptedNode(*script) as node:
        code, _, err = await _holdfast(node.url, *REPLACE, "--wait", "300ms")
        assert code == 121
        assert "still joining" in err
        assert {seen.method for seen in node.seen} == {"GET", "POST"}


@pytest.mark.parametrize(
    "argv",
    [
        ("cluster", "replace", "n9", "n4", "h4:7800", *WHY),
        ("cluster", "replace", "n3", "n3", "h3:7800", *WHY),
    ],
)
async def test_replace_begins_nothing_that_cannot_end(argv: tuple[str, ...]) -> None:
    """A node that is not a member, or the same id twice, is refused before anything is added."""
    async with ScriptedNode(_view("n1", "n2", "n3")) as node:
        code, _, err = await _holdfast(node.url, *argv)
        assert code == 119
        assert "not a member" in err or "remove it, then add it again" in err
        assert {seen.method for seen in node.seen} <= {"GET"}


async def test_a_leader_is_preferred() -> None:
    """The command says who is; what it cannot mean is refused before anything is asked."""
    preferred = answer(preferred="n2", was_preferred=None, revision=9)
    ended = answer(preferred=None, was_preferred="n2", revision=10)
    nobody = answer(preferred=None, was_preferred=None, revision=11)
    async with ScriptedNode(preferred, ended, nobody) as node:
        code, out, _ = await _holdfast(node.url, "cluster", "prefer", "n2", *WHY)
        assert (code, out) == (
            0, "prefers n2, which takes over once it has been well for 30 s; see `holdfast status`\n"
        )  # fmt: skip
        code, out, _ = await _holdfast(node.url, "cluster", "prefer", "--nobody", *WHY)
        assert (code, out) == (0, "n2 is not preferred any more\n")
        code, out, _ = await _holdfast(node.url, "cluster", "prefer", "--nobody", *WHY)
        assert (code, out) == (0, "no node was preferred\n")
        assert [call.method for call in node.seen] == ["PUT", "DELETE", "DELETE"]
        for wrong in ((), ("n2", "--nobody"), ("",)):
            code, _, err = await _holdfast(node.url, "cluster", "prefer", *wrong, *WHY)
            assert (code, err.splitlines()[0]) == (
                2, "holdfast: name the node that should lead, or say --nobody"
            )  # fmt: skip
        assert len(node.seen) == 3


async def test_leadership_is_transferred() -> None:
    """To a node that is named, or to the best."""
    done = answer(leader="n2")
    async with ScriptedNode(done, _view("n1", "n2"), done, problem("forbidden")) as node:
        for to in ("n2",), ():
            assert await _holdfast(node.url, "cluster", "transfer", *WHY, *to) == (0, "n2 leads\n", "")
        asked = [seen for seen in node.seen if seen.method == "POST"]
        assert [(seen.fields.get("to"), seen.fields["reason"]) for seen in asked] == [
            ("n2", "by hand"),
            (None, "by hand"),
        ]


@pytest.mark.parametrize(("preferred", "is_warned"), [("n1", True), ("n2", False)])
async def test_a_transfer_that_will_not_last_is_warned_of(preferred: str, *, is_warned: bool) -> None:
    """Another node is preferred, and takes over again: the command says so, and what to do."""
    wish = {"id": preferred, "by": "ann", "reason": "near", "for_ms": 5, "why_not": ""}
    view = answer(node_id="n1", leader="n2", term=2, revision=7, nodes=[], preferred=wish)
    async with ScriptedNode(answer(leader="n2"), view) as node:
        code, out, err = await _holdfast(node.url, "cluster", "transfer", *WHY, "n2")
    assert (code, out) == (0, "n2 leads\n")
    told = "holdfast: n1 is preferred, and takes over again once it has been well for 30 s: to keep n2, say"
    assert err.startswith(told) if is_warned else err == ""


@pytest.mark.parametrize("action", [("add", "n4", "h4:7800"), ("remove", "n3"), ("transfer",)])
async def test_a_change_without_a_reason_is_not_asked_for(action: tuple[str, ...]) -> None:
    """The audit keeps why: no command line leaves it out."""
    async with ScriptedNode(_members("n1")) as node:
        code, _, err = await _holdfast(node.url, "cluster", *action)
        assert (code, node.seen) == (2, [])
        assert "--reason" in err
