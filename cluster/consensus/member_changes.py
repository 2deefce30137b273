"""Changes of the member list from the request to the commit: asked for on any node, decided by the leader.

A node that is added is a learner until it has the log; then the leader makes it count, by itself. Changes are
safe to repeat: adding whom the list has at this address, and removing whom it does not have any more, change
nothing. So a change whose leader does not answer is asked for again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from cluster.config import check_member
from cluster.config_sources import WrongValueError
from cluster.consensus import member_list
from cluster.consensus.member_list import MemberRecord, Members
from cluster.consensus.replica import Replica
from cluster.errors import (
    ClusterError,
    MemberChangePending,
    MemberChangeRefused,
    MemberNotFound,
    NoLeader,
    OutcomeUnknown,
)

RETRY_S: Final = 0.05
"""Between two attempts while there is no leader, or another change is under way."""
ROUND_S: Final = 0.5
"""A learner that has what was committed so long ago is caught up: it will have the rest as soon."""
ANSWER_S: Final = 1.0
"""How long the leader may take before it is asked again, or the next one."""

logger = logging.getLogger(__name__)


class Change(msgspec.Struct, frozen=True, array_like=True):
    """What an operator asks for: add `node_id` at `peer`, move it there, or remove it (`peer` is empty)."""

    number: int
    node_id: str
    peer: str = ""
    is_move: bool = False
    is_question: bool = False
    """Whether nothing is to be changed: the verdict only says whether there is anything to change."""


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """What the leader answers: the committed list when it is done, else the `code` of a ClusterError."""

    number: int
    code: str = ""
    detail: str = ""
    members: Members = Members()
    is_to_do: bool = False
    """The answer to a question: nothing is in the way of the change, but it was not made."""


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """What changes need of the node."""

    leader_id: Callable[[], str | None]
    """Returns who leads, if it can be reached."""
    send: Callable[[str, Change], object]
    """Sends a change to the leader."""
    answer: Callable[[str, Verdict], object]
    """Sends a verdict to the node that asked."""
    disk_ids: Callable[[], dict[str, str]]
    """Returns the disk ids of this node and of those it has met."""
    belongs: Callable[[str], bool]
    """Whether a connected node says that it belongs to this cluster."""
    why_not_joining: Callable[[str], str]
    """Returns why a node cannot be connected as it is, empty if nothing is known."""
    takes_peers: bool
    """Whether this node listens for peers at all."""
    hand_over: Callable[[], object]
    """Begins to hand leadership to another node."""
    request_tick: Callable[[], None]
    """Makes the next tick come soon."""


class MemberChanges:
    """Asks the leader for changes, and decides them on the leader. One thread."""

    def __init__(self, node_id: str, replica: Replica, means: Means, loop: asyncio.AbstractEventLoop) -> None:
        self._node_id = node_id
        self._replica = replica
        self._means = means
        self._loop = loop
        self._next_number = 1
        self._asked: dict[int, asyncio.Future[Verdict]] = {}
        self._under_way: tuple[int, Members, Callable[[ClusterError | None], None]] | None = None
        # When the present round began, what was committed then, and the same of the round before it.
        self._rounds: tuple[float, int | None, int | None] = (float("-inf"), None, None)

    # -- on any node ----------------------------------------------------------------------------------------

    async def change(self, node_id: str, peer: str, timeout_s: float, *, is_move: bool = False) -> Members:
        """Add `node_id` at the address `peer`, or remove it if that is empty; return the committed list.

        With `is_move`, change the address of a member to `peer`.

        Tries again, until `timeout_s` is over, while there is no leader or another change is under way.
        Raises NoLeader, MemberChangeRefused (and its kinds), OutcomeUnknown.
        """
        return (await self._verdict(Change(0, node_id, peer, is_move), timeout_s)).members

    async def if_made(
        self, node_id: str, peer: str, timeout_s: float, *, is_move: bool = False
    ) -> Members | None:
        """Return the committed list if there is nothing to change, None if there is. Changes nothing.

        Takes and raises the same as `change`.
        """
        question = Change(0, node_id, peer, is_move, is_question=True)
        verdict = await self._verdict(question, timeout_s)
        return None if verdict.is_to_do else verdict.members

    async def _verdict(self, wanted: Change, timeout_s: float) -> Verdict:
        """Ask for what is wanted, under a new number each time, until there is a verdict."""
        deadline_s = self._loop.time() + timeout_s
        is_sure = True
        while True:
            try:
                change = msgspec.structs.replace(wanted, number=self._next_number)
                self._next_number += 1
                return await self._ask(change, min(deadline_s, self._loop.time() + ANSWER_S))
            except (NoLeader, MemberChangePending, OutcomeUnknown) as error:
                # An earlier attempt of ours may be the very change that is under way.
                is_sure = is_sure and not isinstance(error, OutcomeUnknown)
                await asyncio.sleep(RETRY_S)
                # Behind the rest, which may have been longer: who asks has some time to be answered.
                if self._loop.time() + RETRY_S >= deadline_s:
                    if is_sure:
                        raise
                    raise OutcomeUnknown(f"look, and repeat the change; last: {error}") from error

    async def _ask(self, change: Change, deadline_s: float) -> Verdict:
        """Ask the leader once, and wait for its verdict."""
        future = self._asked[change.number] = self._loop.create_future()
        try:
            leader_id = self._means.leader_id()
            if leader_id is None:
                raise NoLeader("no leader can be reached; a majority of nodes must be up")
            if leader_id == self._node_id:
                self.decide(change, self.decided)
            else:
                self._means.send(leader_id, change)
            async with asyncio.timeout_at(deadline_s):
                verdict: Verdict = await future
                return verdict
        except TimeoutError:
            raise OutcomeUnknown("the change was not seen to be committed in time") from None
        finally:
            del self._asked[change.number]

    def decided(self, verdict: Verdict) -> None:
        """Take the leader's verdict."""
        future = self._asked.get(verdict.number)
        if future is None or future.done():
            return
        if verdict.code:
            future.set_exception(_ERRORS.get(verdict.code, OutcomeUnknown)(verdict.detail))
        else:
            future.set_result(verdict)

    def asked(self, peer_id: str, change: Change) -> None:
        """Decide a change that a peer asks for, on behalf of its operator."""

        def answer(verdict: Verdict) -> None:
            self._means.answer(peer_id, verdict)

        self.decide(change, answer)

    # -- on the leader --------------------------------------------------------------------------------------

    def decide(self, change: Change, answer: Callable[[Verdict], None]) -> None:
        """Begin a change, or refuse it; `answer` is called once, at the latest when leadership is lost."""

        def done(error: ClusterError | None) -> None:
            if error is None:
                answer(Verdict(change.number, members=self._replica.membership.committed))
            else:
                answer(Verdict(change.number, error.code, str(error)))

        try:
            new = self._wanted(change)
        except ClusterError as error:
            done(error)
            return
        if new is self._replica.membership.latest:
            done(None)
        elif change.is_question:
            answer(Verdict(change.number, is_to_do=True))
        else:
            logger.info("event=member-change from=%s to=%s", self._replica.membership.latest, new)
            self._begin(new, done)

    def _wanted(self, change: Change) -> Members:
        """Return the list that `change` leads to; the present one if nothing is to be done."""
        replica = self._replica
        if not replica.role.is_leader:
            raise NoLeader("this node no longer leads")
        if not replica.may_change_members:
            raise MemberChangePending("another change is under way, or the leader is new; try again")
        present = replica.membership.latest
        known = present.nodes.get(change.node_id)
        if change.peer:
            if not self._means.takes_peers:
                raise MemberChangeRefused(
                    "this node accepts no other nodes: give it a secret and a peer port, and restart it"
                )
            if known is not None and known.peer == change.peer and not change.is_move:
                self._check_joining(change.node_id, known)
                return present
            if change.is_move:
                return self._moved(change, known)
            self._check_addresses(change)
            return member_list.with_learner(present, change.node_id, change.peer)
        if known is None and change.node_id in present.removed.values():
            return present
        disk_id = self._means.disk_ids().get(change.node_id, "")
        new = member_list.without(present, change.node_id, disk_id, replica.reachable())
        if change.node_id == self._node_id and not change.is_question:
            self._means.hand_over()
            raise MemberChangePending(f"{self._node_id} leads, and hands leadership over first")
        return new

    def _moved(self, change: Change, known: MemberRecord | None) -> Members:
        """Return the list with a node at another address. Raises MemberChangeRefused."""
        present = self._replica.membership.latest
        if known is not None and known.peer == change.peer:
            return present
        new = member_list.moved(present, change.node_id, change.peer)
        self._check_addresses(change)
        return new

    def _check_joining(self, node_id: str, known: MemberRecord) -> None:
        """Tell who waits for a node to count that it will not, as it is. Raises MemberChangeRefused."""
        reason = self._means.why_not_joining(node_id)
        if reason and not known.is_voter:
            raise MemberChangeRefused(
                f"{node_id} at {known.peer} cannot join: {reason}. Start the right node there, or remove"
                f" {node_id}"
            )

    def _check_addresses(self, change: Change) -> None:
        """Refuse a node that the others, or that could not reach the others. Raises MemberChangeRefused."""
        addresses = {
            node_id: member.peer for node_id, member in self._replica.membership.latest.nodes.items()
        }
        for node_id, peer in (addresses | {change.node_id: change.peer}).items():
            try:
                check_member(node_id, peer)
            except WrongValueError as wrong:
                raise MemberChangeRefused(f"{node_id} has the address {peer}: {wrong.allowed}") from None

    def _begin(self, new: Members, done: Callable[[ClusterError | None], None]) -> None:
        self._under_way = (self._replica.role.term, new, done)
        self._replica.change_members(new)
        self._means.request_tick()

    def step(self) -> None:
        """Look what became of the change under way; make a learner count that has caught up.

        Called after ticks and changes of leadership.
        """
        replica = self._replica
        if self._under_way is not None:
            self._look(*self._under_way)
        if not replica.role.is_leader or not replica.membership.learners:
            self._rounds = (float("-inf"), None, None)
        elif replica.may_change_members:
            self._begin_round()
            self._promote()

    def _look(self, term: int, new: Members, done: Callable[[ClusterError | None], None]) -> None:
        """Tell who asked when the change of this leader in `term` is committed, or may never be."""
        replica = self._replica
        if replica.membership.committed == new:
            self._under_way = None
            done(None)
        elif not replica.role.is_leader or replica.role.term != term:
            self._under_way = None
            done(OutcomeUnknown("leadership was lost before the change was committed; look, and repeat it"))

    def _begin_round(self) -> None:
        """Now and again, note how far the log is committed: what a learner must have by the next time.

        Under load a learner never has all that is committed at this moment (dissertation, section 4.2.1).
        """
        began_s, goal, _ = self._rounds
        if self._loop.time() - began_s >= ROUND_S:
            self._rounds = (self._loop.time(), self._replica.log.committed, goal)

    def _promote(self) -> None:
        """Make the first learner count that has the log and can be reached."""
        replica = self._replica
        reachable, disk_ids = replica.reachable(), self._means.disk_ids()
        for node_id in sorted(replica.membership.learners & reachable):
            has_place = member_list.can_promote(replica.membership.latest, node_id, reachable)
            is_ours = node_id in disk_ids and self._means.belongs(node_id)
            if has_place and is_ours and replica.caught_up(node_id, self._rounds[2]):
                new = member_list.promoted(replica.membership.latest, node_id, disk_ids[node_id])
                logger.info("event=member-promoted node=%s", node_id)
                self._begin(new, _ignore)
                return


def _ignore(_: ClusterError | None) -> None:
    """Nobody asked; if it fails, the next step tries again."""


_ERRORS: dict[str, Any] = {
    error.code: error
    for error in (NoLeader, MemberChangeRefused, MemberChangePending, MemberNotFound, OutcomeUnknown)
}
