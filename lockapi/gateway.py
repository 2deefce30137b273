"""The one way from every face to the node: what a client asks for passes here, and nowhere else.

A face reads a request in its own format, lets it make its command (`lockapi/requests` checks the fields),
and hands the command to the gateway with the kind of result that it expects. A refusal comes back as a
ProblemError, a failure of the world as a ClusterError; `problems.of_exception` makes one answer of both.

A gateway is that of one principal: what it has no right for is refused before the node hears of it, and what
it may not read is left out of what it is shown.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

from cluster.config import check_member, check_node_id
from cluster.config_sources import WrongValueError
from cluster.consensus.member_list import Members
from cluster.errors import OutcomeUnknown, ShuttingDown
from holdfast.token_lines import Right
from holdfast.wire import backup
from holdfast.wire.shape import ReadAnswer
from lockapi import endings, needs, problems, right_calls, rights_needed, sight, spelling
from lockapi.allowed_names import NOWHERE, AllowedForFew
from lockapi.node import Applied, BackupBytes, Begun, NodeState, ServingNode
from lockapi.problems import ProblemError
from lockapi.rights import ANYBODY, EVERYTHING, Principal
from lockapi.turns import Turns
from lockstate.machine import LockMachine
from lockstate.reads import listings
from lockstate.words.commands.admin import PreferLeader, RecordAct
from lockstate.words.commands.cells import TransactCells
from lockstate.words.commands.entries import Cancel, Command, MayBeCancelled
from lockstate.words.commands.holds import Acquire, AcquirePermits, AddLocks, MayWait
from lockstate.words.commands.primitives import TakeRate
from lockstate.words.commands.streams import Numbered
from lockstate.words.ids import HoldId, SessionId
from lockstate.words.kinds import ClusterAct
from lockstate.words.refusals import Reason, Refused
from lockstate.words.results import Done, GrantedSeveral, LeaderPreferred, Queued, RateTaken, Result
from lockstate.words.versions import RULES
from lockstate.words.views import TicketView

UPGRADE_RETRY_MS: Final = 5_000
"""Milliseconds after which to ask again for what comes with an upgrade that is under way."""

_MAY_BE_UNCOMMON: Final = frozenset({Acquire, AcquirePermits, Numbered, TransactCells})

R = TypeVar("R", bound=Result)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Steps(Protocol[T_co]):
    """What finds something step by step (see `paging`)."""

    def step(self, machine: LockMachine) -> T_co | None:
        """Look a bit further; return what was found, None if there is more to do."""


class CommandOutcome(NamedTuple, Generic[R]):
    """What became of a command: its result, the revision, and whether an earlier attempt had it already."""

    result: R
    revision: int
    is_repeated: bool


class Unsettled(NamedTuple):
    """A request that has its place in a queue, or its hold from a moment on that has not come yet."""

    view: TicketView | None
    left_ms: int
    """Milliseconds to that moment, 0 if it has no hold yet."""
    revision: int


class Gateway:
    """Passes commands, reads and changes of the members of one principal on to one node."""

    def __init__(
        self,
        node: ServingNode,
        principal: Principal = ANYBODY,
        allowed: AllowedForFew = NOWHERE,
        turns: Turns | None = None,
    ) -> None:
        """Pass on to `node` what `principal` has the right for, and what is allowed for few.

        Large answers take their turns with all those that share `turns`.
        """
        self._node = node
        self._allowed = allowed
        self._turns = turns or Turns()
        self.principal = principal
        self.rights = principal.rights

    def of(self, principal: Principal) -> "Gateway":
        """Return the gateway of a principal to the same node."""
        return Gateway(self._node, principal, self._allowed, self._turns)

    @property
    def node(self) -> NodeState:
        """Return what the node shows of itself: everything but the calls that the gateway makes."""
        return self._node

    # -- commands -------------------------------------------------------------------------------------------

    async def submit(self, command: Command, kind: type[R], timeout_s: float) -> CommandOutcome[R]:
        """Have one command applied; return what became of it. Raises ProblemError, ClusterError."""
        known = self._known(command)
        applied = await self._node.submit(known, timeout_s, self._asking(known))
        return self._outcome(command, applied, kind)

    async def acquire(
        self, command: MayWait, kind: type[R], timeout_s: float, poll_ms: int | None = None
    ) -> CommandOutcome[R] | Unsettled:
        """Have a command applied that may wait, and wait for its end, or for `poll_ms`.

        What still waits then, or when the task is cancelled, keeps its place for a grace if it has a
        `request_id`; else a cancelled task cancels the wait. Raises ProblemError, ClusterError.
        """
        known = cast("MayWait", self._known(command))
        applied = await self._node.acquire(
            known, timeout_s, self._asking(known), None if poll_ms is None else poll_ms / 1000
        )
        if isinstance(applied.result, Queued):
            return self._still_waiting(applied.result.hold_id)
        return self._outcome(known, applied, kind)

    async def undo(self, command: Acquire, timeout_s: float) -> None:
        """Take back an attempt that nobody will ask for again: its wait, or what it was granted.

        It may have no outcome yet: in the log this comes behind it. Raises ClusterError.
        """
        await self._node.submit(Cancel(command.hold_id, command.attempt_id), timeout_s)

    def _still_waiting(self, hold_id: HoldId) -> Unsettled:
        """Return where a request stands that has not been settled on this node."""
        machine = self._node.machine
        view = listings.ticket(machine.state, machine.state.tickets[hold_id].order)
        return Unsettled(view, 0, machine.revision)

    async def withdraw(self, scope: str, request_id: str, timeout_s: float) -> bool:
        """Take back a request of this principal that waits, or what it was granted.

        Return whether there was anything. Raises ClusterError.
        """
        return await self._node.withdraw(scope, request_id, timeout_s, self.principal.name)

    def _told_of_endless(self, command: AddLocks) -> AddLocks:
        """Return an addition that says for which names this node allows no hold without a deadline.

        Whether it is one never changes: one that is known here to have a deadline needs no such word.
        """
        if self._node.machine.is_endless(command.hold_id) is False:
            return command
        missing = self._allowed.no_deadline.missing([lock.name for lock in command.locks])
        return msgspec.structs.replace(command, endless_not_for=missing)

    async def acquire_several(
        self, command: MayWait, timeout_s: float, poll_ms: int | None = None
    ) -> tuple[CommandOutcome[GrantedSeveral], int] | Unsettled:
        """Acquire things of several kinds, and wait for the moment that their rate limits have reserved.

        Return what became of it, and how many milliseconds the moment was waited for. Else as `acquire`: a
        hold whose moment has not come when the task is cancelled is left as a wait is.
        """
        known = cast("MayWait", self._known(command))
        began_s = time.monotonic()
        applied = await self._node.acquire(
            known, timeout_s, self._asking(known), None if poll_ms is None else poll_ms / 1000
        )
        if isinstance(applied.result, Queued):
            return self._still_waiting(applied.result.hold_id)
        outcome = self._outcome(known, applied, GrantedSeveral)
        if poll_ms is not None:
            poll_ms = max(0, poll_ms - int((time.monotonic() - began_s) * 1000))
        waited_ms = await self._wait_for_moment(known, applied, outcome.result.at_ms, poll_ms)
        return waited_ms if isinstance(waited_ms, Unsettled) else (outcome, waited_ms)

    async def take_rate(
        self, command: TakeRate, timeout_s: float, poll_ms: int | None = None
    ) -> tuple[CommandOutcome[RateTaken], int] | Unsettled:
        """Take from a rate limit, and wait for the moment that is reserved, or for `poll_ms`.

        Return what became of it, and how many milliseconds the moment was waited for. What is left of it when
        the task is cancelled is given back, after a grace if it has a `request_id`. Raises ProblemError,
        ClusterError.
        """
        begun = self.begin(command, timeout_s)
        try:
            applied = await asyncio.shield(cast("asyncio.Future[Applied]", begun))
        except asyncio.CancelledError:
            self.abandon(command, begun)
            raise
        outcome = self._outcome(command, applied, RateTaken)
        waited_ms = await self._wait_for_moment(command, applied, outcome.result.at_ms, poll_ms)
        return waited_ms if isinstance(waited_ms, Unsettled) else (outcome, waited_ms)

    async def _wait_for_moment(
        self, command: MayBeCancelled, applied: Applied, at_ms: int, poll_ms: int | None
    ) -> int | Unsettled:
        """Wait until cluster time is `at_ms`, or for `poll_ms`; leave what is not waited for to its end."""
        waited_ms: int | Unsettled | None = None
        try:
            waited_ms = await self.wait_until(at_ms, poll_ms)
        finally:
            if not isinstance(waited_ms, int):
                begun: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
                begun.set_result(applied)
                self.abandon(command, begun)
        return waited_ms

    def begin(self, command: Command, timeout_s: float, lane: str = "") -> Begun:
        """Have one command applied that does not wait in a queue; `outcome` says what became of it.

        What is begun in one lane is applied in this order. Raises ProblemError, ClusterError.
        """
        known = self._known(command)
        return self._node.begin(known, timeout_s, self._asking(known), lane)

    def outcome(self, command: Command, begun: Begun, kind: type[R]) -> CommandOutcome[R]:
        """Return what became of a command that has an outcome. Raises ProblemError, ClusterError."""
        return self._outcome(command, begun.result(), kind)

    def _outcome(self, command: Command, applied: Applied, kind: type[R]) -> CommandOutcome[R]:
        """Return what became of a command that gives such a result. Raises ProblemError for a refusal."""
        result = applied.result
        if isinstance(result, kind):
            return CommandOutcome(result, applied.revision, applied.is_repeated)
        if isinstance(result, Refused):
            if result.reason is Reason.WRONG_KIND:
                raise right_calls.told(command, result)
            shown, hidden = sight.refusal(self.rights, result)
            problem = problems.refusal(shown, is_repeated=applied.is_repeated)
            problem.hidden = hidden
            ended = endings.of(self._node.machine, command, result.reason, self.principal.name)
            if ended is not None:
                problem.ended, problem.detail = ended, endings.told(ended)
            if applied.waited_ms:
                problem.facts = {**problem.facts, "waited_ms": applied.waited_ms}
            if applied.position:
                problem.facts = {**problem.facts, "position": applied.position}
            raise problem
        raise AssertionError(f"expected {kind.__name__}, got {result!r}")

    def shown(self, result: Result) -> Result:
        """Return the result of a numbered command as its principal may see it."""
        return sight.refusal(self.rights, result)[0] if isinstance(result, Refused) else result

    def abandon(self, command: Command, begun: Begun) -> None:
        """Leave a command whose client went away: a hold that nobody asks for again is given back."""
        self._node.abandon(command, begun, self._asking(command))

    def _known(self, command: Command) -> Command:
        """Return a command as the cluster knows it before its last node is upgraded. Raises ProblemError.

        Also when the principal has no right for it, or a name has another spelling than it should.
        """
        if self.rights is not EVERYTHING:
            rights_needed.check_command(self.rights, command)
        spelling.check_command(command)
        if type(command) in _MAY_BE_UNCOMMON:
            command = self._allowed.told(command)
        elif isinstance(command, AddLocks):
            command = self._told_of_endless(command)
        rules = RULES[self._node.machine.rules]
        if command.__struct_config__.tag <= rules.command_tag_max:  # type: ignore[operator]
            return command
        raise ProblemError(
            "upgrade-pending",
            f"the cluster follows rules {rules.number}, which do not know this; they move on once"
            " all nodes run a newer release",
            retry_after_ms=UPGRADE_RETRY_MS,
        )

    def _asking(self, command: Command) -> str:
        """Return who asks, for the log: "" of a frame whose session is theirs."""
        name = self.principal.name
        if type(command) is Numbered and name and self._node.machine.belongs_to(command.session_id, name):
            return ""
        return name

    def now_ms(self) -> int:
        """Return the cluster time of the newest entry that this node has applied."""
        return self._node.machine.now_ms

    async def wait_until(self, cluster_ms: int, poll_ms: int | None = None) -> int | Unsettled:
        """Wait until cluster time is `cluster_ms`, or for `poll_ms`; return how many milliseconds that took.

        `now_ms` of the machine is that of the entry that reserved the moment, or of a later one, and cluster
        time never runs faster than ours: waiting for the difference never ends too early.

        Raises OutcomeUnknown if the node stops before.
        """
        delay_ms = max(0, cluster_ms - self._node.machine.now_ms)
        waited_ms = delay_ms if poll_ms is None else min(delay_ms, poll_ms)
        if waited_ms:
            stopping = asyncio.ensure_future(self._node.wait_shutdown())
            try:
                await asyncio.wait({stopping}, timeout=waited_ms / 1000)
                if stopping.done():
                    raise OutcomeUnknown(
                        "this node stops before the reserved moment; repeat the request with the same"
                        " request_id on another node"
                    )
            finally:
                stopping.cancel()
        if waited_ms < delay_ms:
            return Unsettled(None, delay_ms - waited_ms, self._node.machine.revision)
        return delay_ms

    # -- channels -------------------------------------------------------------------------------------------

    def publish(self, name: str, message: bytes) -> int:
        """Tell who listens to a channel; return how many clients of this node were told.

        Nobody knows of the other nodes, and no message is kept. Raises ProblemError.
        """
        rights_needed.check_name(self.rights, Right.ACQUIRE, name)
        return self._node.channels.publish(name, message)

    # -- reads ----------------------------------------------------------------------------------------------

    async def read(self, query: Callable[[LockMachine], T], timeout_s: float) -> T:
        """Return what `query` finds in a state as new as every answer before. Raises ClusterError."""
        return await self._node.read(query, timeout_s)

    async def read_own(
        self, query: Callable[[LockMachine], T], lease_id: SessionId | HoldId, nothing: T, timeout_s: float
    ) -> T:
        """Return what `query` finds of a session or hold; `nothing` if it belongs to another principal.

        Raises ClusterError.
        """
        return await self._node.read(self.own(query, lease_id, nothing), timeout_s)

    def own(
        self, query: Callable[[LockMachine], T], lease_id: SessionId | HoldId, nothing: T
    ) -> Callable[[LockMachine], T]:
        """Return a query that finds `nothing` of a session or hold that belongs to another principal."""
        asking = self.principal.name

        def find(machine: LockMachine) -> T:
            return query(machine) if machine.is_of(lease_id, asking) else nothing

        return find

    def check_watch(self, prefix: str) -> None:
        """Refuse a watch of names that may not all be read: a stream has no gaps. Raises ProblemError."""
        rights_needed.check_start(self.rights, Right.READ, prefix)

    async def view(
        self,
        query: Callable[[LockMachine], T],
        show: Callable[[T], ReadAnswer],
        timeout_s: float,
        *,
        name: str | None,
        is_stale: bool,
        is_large: bool = False,
    ) -> ReadAnswer:
        """Return what `query` finds as `show` shows it, of a new state or of the node's own, with its age.

        It is about `name`, which the principal must have the right to read; None if `show` leaves out itself
        what may not be seen. A large answer waits for its turn. Raises ProblemError, ClusterError.
        """
        if name is not None:
            rights_needed.check_name(self.rights, Right.READ, name)
            spelling.check_name("name", name)
        if is_large:
            view = await self._large_view(query, show, timeout_s, is_stale=is_stale)
        else:
            view = await self._view(query, show, timeout_s, is_stale=is_stale)
        return sight.read(self.rights, view)

    async def page(
        self,
        search: Steps[T],
        show: Callable[[T], ReadAnswer],
        timeout_s: float,
        *,
        name: str | None,
        is_stale: bool,
    ) -> ReadAnswer:
        """Return what `search` finds as `show` shows it, each step in a turn of its own.

        It is about `name`, as in `view`. Raises ProblemError, ClusterError.
        """
        if name is not None:
            rights_needed.check_name(self.rights, Right.READ, name)
        view = await self._large_view(search.step, show, timeout_s, is_stale=is_stale)
        return sight.read(self.rights, view)

    async def _view(
        self,
        query: Callable[[LockMachine], T],
        show: Callable[[T], ReadAnswer],
        timeout_s: float,
        *,
        is_stale: bool,
    ) -> ReadAnswer:
        if not is_stale:
            return show(await self._node.read(query, timeout_s))
        return _aged(show, *self._find(query))

    async def _large_view(
        self,
        query: Callable[[LockMachine], T | None],
        show: Callable[[T], ReadAnswer],
        timeout_s: float,
        *,
        is_stale: bool,
    ) -> ReadAnswer:
        """Find and show in steps. What is found may be newer than it has to be, never older.

        `query` is called again, in another step, as long as it finds None. Revision and age are those of the
        first step: nothing that is shown is older.
        """
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        if not is_stale:
            # The reads of many clients are answered at one place in the log: there it would be one pause.
            await self._node.read(_nothing, timeout_s)
        async with self._turns.turn(deadline_s) as turn:
            found, revision, lag_ms = self._find(query)
            began_s = time.monotonic()
            await turn.rest()
            while found is None:
                found, _, _ = self._find(query)
                await turn.rest()
            if not is_stale:
                return show(found)
            if lag_ms is not None:
                lag_ms += int((time.monotonic() - began_s) * 1000)
            return _aged(show, found, revision, lag_ms)

    def _find(self, query: Callable[[LockMachine], T]) -> tuple[T, int, int | None]:
        """Return what the state of this node has, its revision, and how long ago it heard from a leader."""
        if self._node.has_failed:
            raise ShuttingDown("this node failed; ask another")
        machine = self._node.machine
        return query(machine), machine.revision, self._node.status().lag_ms

    # -- the cluster ----------------------------------------------------------------------------------------

    async def transfer_leadership(self, act: RecordAct, timeout_s: float) -> str:
        """Hand leadership to the node that is meant, or to the most advanced one; return who leads.

        Who asks is recorded before. Raises ProblemError, ClusterError.
        """
        needs.ADMIN.check(self.rights)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        to = act.node_id or None
        if to is not None:
            self._check_member("to", to)
        if to is None or self._node.status().leader != to:
            await self.submit(act, Done, timeout_s)
        return await self._node.transfer_leadership(to, _left_s(deadline_s))

    async def prefer_leader(self, command: PreferLeader, timeout_s: float) -> CommandOutcome[LeaderPreferred]:
        """Let the node that is meant lead whenever it can; it must be a member. Raises as `submit`."""
        needs.ADMIN.check(self.rights)
        if command.node_id:
            self._check_member("id", command.node_id)
        return await self.submit(command, LeaderPreferred, timeout_s)

    def _check_member(self, field: str, node_id: str) -> None:
        """Refuse what is not the id of a member. Raises ProblemError."""
        known = [peer.id for peer in self._node.status().nodes]
        if node_id not in known:
            raise ProblemError("invalid-request", f"{field}: {node_id!r}; must be one of {', '.join(known)}")

    async def backup(self, timeout_s: float) -> BackupBytes:
        """Return a backup that is not older than this call. Raises ProblemError, ClusterError."""
        needs.ADMIN.check(self.rights)
        await self._node.read(_nothing, timeout_s)
        created_ms = int(time.time() * 1000)
        status = self._node.status()
        version = next((node.version for node in status.nodes if node.id == status.node_id), "")

        def head(members: Members, log_index: int, log_term: int, state_bytes: int) -> bytes:
            machine = self._node.machine
            return backup.head(
                backup.BackupInfo(
                    cluster_id=members.cluster_id,
                    version=version,
                    rules=machine.rules,
                    revision=machine.revision,
                    highest_token=machine.next_token - 1,
                    created_ms=created_ms,
                    members={node_id: member.peer for node_id, member in members.nodes.items()},
                    log_index=log_index,
                    log_term=log_term,
                    state_bytes=state_bytes,
                )
            )

        return await self._node.backup(head)

    async def change_members(self, act: RecordAct, timeout_s: float) -> tuple[Members, int]:
        """Add, move or remove a node; return the members and the revision.

        Who asks is recorded before, unless the list is as it shall be. Raises ProblemError, ClusterError.
        """
        needs.ADMIN.check(self.rights)
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        node, node_id, peer = self._node, act.node_id, act.peer
        try:
            if act.act is ClusterAct.REMOVE:
                check_node_id("id", node_id)
            else:
                check_member(node_id, peer)
        except WrongValueError as wrong:
            raise ProblemError(
                "invalid-request", f"{wrong.setting}: {wrong.value!r}; {wrong.allowed}"
            ) from None
        is_move = act.act is ClusterAct.MOVE
        members = await node.members_if_made(node_id, peer, timeout_s, is_move=is_move)
        if members is None:
            await self.submit(act, Done, _left_s(deadline_s))
            if act.act is ClusterAct.REMOVE:
                members = await node.remove_member(node_id, _left_s(deadline_s))
            elif is_move:
                members = await node.move_member(node_id, peer, _left_s(deadline_s))
            else:
                members = await node.add_member(node_id, peer, _left_s(deadline_s))
        return members, node.machine.revision


def _left_s(deadline_s: float) -> float:
    """Return the seconds until a moment of the loop, at least 0."""
    return max(0.0, deadline_s - asyncio.get_running_loop().time())


def _nothing(machine: LockMachine) -> None:
    """Find nothing: the answer says that this node has seen everything that was answered before."""
    del machine


def _aged(show: Callable[[T], ReadAnswer], found: T, revision: int, lag_ms: int | None) -> ReadAnswer:
    """Return what was found in the node's own state, with its age. Raises ProblemError, with it as well."""
    try:
        view = show(found)
    except ProblemError as missing:
        raise problems.as_of(missing, revision, lag_ms) from missing
    return msgspec.structs.replace(view, revision=revision, lag_ms=lag_ms)
