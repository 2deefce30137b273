"""What operators do, for either client: to what others have, to members, and to what they may have."""

import os
from collections.abc import Callable
from typing import BinaryIO, Literal

from holdfast.client import backups, ending
from holdfast.client.twins import ForThreads, waiting
from holdfast.operations import (
    cluster_operations,
    freeze_operations,
    namespace_operations,
    override_operations,
    quota_operations,
)
from holdfast.operations.operation import Operation
from holdfast.operations.terms import DEFAULT_GRACE_S
from holdfast.transport.transport import Transport
from holdfast.values.answers import PrincipalEnded
from holdfast.values.durations import Seconds, to_ms
from holdfast.values.errors import Refused
from holdfast.values.names import Name, to_name
from holdfast.values.other_words import Suggesting
from holdfast.values.words import HoldKind, LogLevel
from holdfast.wire.answers import RatesForgottenJson
from holdfast.wire.backup import BackupInfo
from holdfast.wire.held import Holder, Waiter
from holdfast.wire.operators import (
    DebugInfo,
    FreezeInfo,
    LeftBelow,
    Member,
    NamespaceInfo,
    NamespaceSettings,
    PrincipalInfo,
    Quota,
    Refusals,
)


class Admin(Suggesting):
    """The calls of operators: `client.admin`. With tokens in use they need the right `force` or `admin`.

    Calls that change something take a `reason`, which the audit keeps.
    """

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    # -- what others have -----------------------------------------------------------------------------------

    async def force_release(
        self,
        name: Name,
        *,
        reason: str,
        lock_delay: Seconds = 0,
        kind: HoldKind = "lock",
        token: int | None = None,
    ) -> tuple[Holder, ...]:
        """End every hold of a name, or the one with `token`, and return the former holders.

        Everything they held stays closed for `lock_delay`; an election has no delay. Raises Refused:
        `wrong-kind` when something of another kind is held, `not-holder` when no hold has the token (any
        more).
        """
        delay_ms = to_ms(lock_delay, "lock_delay")
        operation = override_operations.force_release(kind, to_name(name), reason, delay_ms, token=token)
        return await self._transport.call(operation)

    async def revoke(
        self,
        name: Name,
        *,
        reason: str,
        grace: Seconds = DEFAULT_GRACE_S,
        kind: HoldKind = "lock",
        token: int | None = None,
        ticket: int | None = None,
    ) -> tuple[Holder, ...]:
        """Ask the holders of a name, or the one with `token`, to give up; return them.

        They hear of it with their next renewal, may put it off once, and are ended as by force when the grace
        is over. `ticket` is the number of the wait that needs the hold.
        """
        grace_ms = to_ms(grace, "grace")
        operation = override_operations.revoke(
            kind, to_name(name), reason, grace_ms, token=token, ticket=ticket
        )
        return await self._transport.call(operation)

    async def withdraw_revocation(
        self,
        name: Name,
        *,
        reason: str,
        kind: HoldKind = "lock",
        token: int | None = None,
        ticket: int | None = None,
    ) -> int:
        """Take back what the holders of a name were asked, or the one with `token`; return how much that was.

        They keep what they have, and hear of it with their next renewal. With `ticket`, only what was asked
        for the wait with that number is taken back. 0 when nobody was asked. One call takes back a limited
        number: this calls until none is left.
        """
        count, left = 0, 1
        while left:
            operation = override_operations.withdraw_revocation(
                kind, to_name(name), reason, token=token, ticket=ticket
            )
            answer = await self._transport.call(operation)
            count += answer.withdrawn
            left = answer.left
        return count

    async def force_waits(
        self, name: Name, *, reason: str, kind: HoldKind = "lock", ticket: int | None = None
    ) -> tuple[Waiter, ...]:
        """End every wait for a name, or the one with the number `ticket`, and return those that waited.

        Their clients are refused with `ticket-ended`, and so are you if nobody waits with that number. One
        call ends a limited number of waits: this calls until none is left.
        """
        ended: list[Waiter] = []
        left = 1
        while left:
            operation = override_operations.force_waits(kind, to_name(name), reason, ticket=ticket)
            answer = await self._transport.call(operation)
            ended += answer.ended
            left = answer.left
        return tuple(ended)

    async def force_principal(
        self, principal: str, *, reason: str, waits_only: bool = False
    ) -> PrincipalEnded:
        """End all sessions, holds and waits of a principal, or with `waits_only` only its waits.

        Each is ended by a call of its own, as far as you may read and force it. Shut the principal out first
        (take it out of the tokens files): one that is let in may make more all the time.
        """
        return await ending.end_all(self._transport, principal, reason, waits_only=waits_only)

    async def force_close_session(self, session_name: str, *, reason: str) -> tuple[str, ...]:
        """End another client's session by its public name, and return the names that it held.

        Raises SessionExpired when there is no such session (any more).
        """
        return await self._transport.call(override_operations.force_close_session(session_name, reason))

    async def lift_delay(
        self, name: Name, *, reason: str, kind: Literal["lock", "semaphore"] = "lock"
    ) -> int:
        """End the lock-delays of a lock or a semaphore before their time, and return how many there were."""
        return await self._transport.call(override_operations.lift_delay(kind, to_name(name), reason))

    async def forget_fence(self, name: Name, *, reason: str) -> int | None:
        """Make a resource accept any token again, and return the highest that it had seen, None if none."""
        return await self._transport.call(override_operations.forget_fence(to_name(name), reason))

    async def forget_rate_limit(self, name: Name, *, reason: str) -> int:
        """Make the rate limits of a name as new, and return how many there were that were not.

        Clients that wait for a place keep its moment: they go on then, and do not count.
        """
        return await self._forget_rates(lambda: override_operations.forget_rate_limit(to_name(name), reason))

    async def forget_rate_limits(self, prefix: str, *, reason: str) -> int:
        """Make all rate limits whose names begin with `prefix` as new, a thousand in each step.

        Returns how many there were. An empty prefix is refused: `forget_all_rate_limits` forgets all.
        """
        if not prefix:
            raise ValueError("the prefix is empty; forget_all_rate_limits() forgets all rate limits")
        return await self._forget_rates(lambda: override_operations.forget_rate_limits(prefix, reason))

    async def forget_all_rate_limits(self, *, reason: str) -> int:
        """Make all rate limits as new, a thousand in each step; return how many there were."""
        return await self._forget_rates(lambda: override_operations.forget_rate_limits(None, reason))

    async def _forget_rates(self, some: Callable[[], Operation[RatesForgottenJson]]) -> int:
        """Forget some rate limits until none is left; each step is a request of its own."""
        count, is_more = 0, True
        while is_more:
            answer = await self._transport.call(some())
            count += answer.forgotten
            is_more = answer.more
        return count

    async def freeze(self, prefix: str, *, reason: str, duration: Seconds | None = None) -> LeftBelow:
        """Grant nothing new at and below `prefix` for `duration` seconds, or until `thaw`.

        What is held there goes on; return how much that is. A prefix that is frozen gets another end and
        reason.
        """
        for_ms = None if duration is None else to_ms(duration, "duration")
        return await self._transport.call(freeze_operations.freeze(prefix, reason, for_ms))

    async def thaw(self, prefix: str, *, reason: str) -> bool:
        """End the freeze of `prefix`, and grant what waits; return whether it was frozen."""
        return await self._transport.call(freeze_operations.thaw(prefix, reason))

    async def frozen(self, prefix: str, *, is_stale: bool = False) -> FreezeInfo:
        """Return whether `prefix` is frozen itself, and how much is held and waited for below it."""
        return await self._transport.call(freeze_operations.frozen(prefix, is_stale=is_stale))

    async def freezes(self, prefix: str = "", *, is_stale: bool = False) -> tuple[FreezeInfo, ...]:
        """Return the frozen prefixes that begin with `prefix`, as far as the caller may see them."""
        found: list[FreezeInfo] = []
        after: str | None = ""
        while after is not None:
            page = await self._transport.call(freeze_operations.freezes(prefix, after, is_stale=is_stale))
            found += page.freezes
            after = page.next
        return tuple(found)

    # -- what principals and namespaces may have ------------------------------------------------------------

    async def quotas(self, *, is_stale: bool = False) -> tuple[PrincipalInfo, ...]:
        """Return the principals that have a quota or anything, by name. Raises AccessDenied without admin."""
        found: list[PrincipalInfo] = []
        after: str | None = ""
        while after is not None:
            page = await self._transport.call(quota_operations.quotas(after, is_stale=is_stale))
            found += page.quotas
            after = page.next
        return tuple(found)

    async def quota(self, principal: str, *, is_stale: bool = False) -> PrincipalInfo:
        """Return what a principal has, and its own quota if it has one. Raises AccessDenied without admin."""
        return await self._transport.call(quota_operations.quota(principal, is_stale=is_stale))

    async def set_quota(
        self,
        principal: str,
        *,
        reason: str,
        sessions: int | None = None,
        holds: int | None = None,
        waits: int | None = None,
        cells: int | None = None,
        fences: int | None = None,
        rate_limits: int | None = None,
        bytes: int | None = None,  # noqa: A002 - the word of the API
    ) -> Quota | None:
        """Bound what a principal may have at a time, "*" for all without a quota of their own; return it.

        The quota is replaced as a whole: None means no bound.
        """
        quota = Quota(sessions, holds, waits, cells, fences, rate_limits, bytes)
        return await self._transport.call(quota_operations.set_quota(principal, quota, reason))

    async def remove_quota(self, principal: str, *, reason: str) -> None:
        """End the quota of a principal: from now on the quota of "*" counts, if there is one."""
        await self._transport.call(quota_operations.remove_quota(principal, reason))

    async def namespaces(self, prefix: str = "", *, is_stale: bool = False) -> tuple[NamespaceInfo, ...]:
        """Return the namespaces whose own prefixes begin with `prefix`, as far as the caller may see them."""
        found: list[NamespaceInfo] = []
        after: str | None = ""
        while after is not None:
            operation = namespace_operations.namespaces(prefix, after, is_stale=is_stale)
            page = await self._transport.call(operation)
            found += page.namespaces
            after = page.next
        return tuple(found)

    async def namespace(self, prefix: str, *, is_stale: bool = False) -> NamespaceInfo | None:
        """Return the namespace with this prefix, None if there is none."""
        try:
            return await self._transport.call(namespace_operations.namespace(prefix, is_stale=is_stale))
        except Refused as error:
            if error.code == "namespace-not-found":
                return None
            raise

    async def set_namespace(
        self, prefix: str, settings: NamespaceSettings, *, reason: str
    ) -> NamespaceSettings | None:
        """Set the rules for the names at and below `prefix`, instead of the earlier ones; return them."""
        return await self._transport.call(namespace_operations.set_namespace(prefix, settings, reason))

    async def remove_namespace(self, prefix: str, *, reason: str) -> None:
        """Remove a namespace; holds, waits, cells and fences stay."""
        await self._transport.call(namespace_operations.remove_namespace(prefix, reason))

    # -- the cluster ----------------------------------------------------------------------------------------

    async def add_member(self, node_id: str, peer: str, *, reason: str) -> tuple[Member, ...]:
        """Add a node that listens for the others at `peer` (HOST:PORT); return all members.

        It is `joining` until it has caught up; add it again to see. Raises MemberChangeRefused.
        """
        return await self._transport.call(cluster_operations.add_member(node_id, peer, reason))

    async def move_member(self, node_id: str, peer: str, *, reason: str) -> tuple[Member, ...]:
        """Make the other nodes reach a node at `peer` (HOST:PORT) from now on; return all members.

        It keeps its id, its data directory and its vote. Raises MemberChangeRefused.
        """
        return await self._transport.call(cluster_operations.move_member(node_id, peer, reason))

    async def remove_member(self, node_id: str, *, reason: str) -> tuple[Member, ...]:
        """Remove a node and return the members that are left.

        Raises MemberChangeRefused, also when the cluster would lose its quorum.
        """
        return await self._transport.call(cluster_operations.remove_member(node_id, reason))

    async def hold_rules(self, *, reason: str) -> bool:
        """Keep the cluster at the rules it follows, even when all nodes know newer ones.

        Return whether it was kept there before. Until the rules move, an upgrade can be taken back.
        """
        return (await self._transport.call(cluster_operations.hold_rules(reason, is_held=True))).was_held

    async def release_rules(self, *, reason: str) -> bool:
        """Let the cluster follow newer rules once all nodes know them; return whether they were held."""
        return (await self._transport.call(cluster_operations.hold_rules(reason, is_held=False))).was_held

    async def prefer_leader(self, node_id: str, *, reason: str) -> str | None:
        """Let a node lead whenever it can, and return which one should before; None if it did not matter.

        It is handed leadership once it has been well for half a minute. Raises InvalidRequest if it is not a
        member.
        """
        answer = await self._transport.call(cluster_operations.prefer_leader(node_id, reason))
        return answer.was_preferred

    async def prefer_nobody(self, *, reason: str) -> str | None:
        """Let whichever node is elected lead, and return which one should before."""
        return (await self._transport.call(cluster_operations.prefer_nobody(reason))).was_preferred

    async def transfer_leadership(self, to: str = "", *, reason: str) -> str:
        """Hand leadership to a node, or to the most advanced one, and return the new leader."""
        return await self._transport.call(cluster_operations.transfer_leadership(to, reason))

    async def backup(self, to: str | os.PathLike[str] | BinaryIO) -> BackupInfo:
        """Save a backup of the cluster, not older than the call, and return what is in it.

        `to` is the path of a file, which is whole or not there, or an open file: what was written there is
        not a backup if this raises. The file has the ids of all holds: keep it as the nodes' directories.
        """
        return await backups.save(self._transport, to)

    async def refusals(self, *, limit: int = 100) -> Refusals:
        """Return the calls that a node has refused because of their caller, the newest first.

        Each node knows only its own: ask with a client for each, or use `holdfast refusals`.
        """
        return await self._transport.call(cluster_operations.refusals(limit))

    async def debug_info(self) -> DebugInfo:
        """Return the newest log lines of a node, its settings, and where its threads and tasks are.

        Each node knows only its own: ask with a client for each, or use `holdfast debug`.
        """
        return await self._transport.call(cluster_operations.debug_info())

    async def set_log_level(self, node_id: str, level: LogLevel, *, duration: Seconds = 600) -> str:
        """Let a node log from a level on for so long, then as its settings say; return the level before.

        Call it with a client for that node alone: another one refuses it.
        """
        for_ms = to_ms(duration, "duration")
        answer = await self._transport.call(cluster_operations.set_log_level(node_id, level, for_ms))
        return answer.before


class SyncAdmin(ForThreads[Admin]):
    """The calls of operators, for threads: `client.admin`. See `Admin`."""

    force_release = waiting(Admin.force_release)
    revoke = waiting(Admin.revoke)
    withdraw_revocation = waiting(Admin.withdraw_revocation)
    force_waits = waiting(Admin.force_waits)
    force_principal = waiting(Admin.force_principal)
    force_close_session = waiting(Admin.force_close_session)
    lift_delay = waiting(Admin.lift_delay)
    forget_fence = waiting(Admin.forget_fence)
    forget_rate_limit = waiting(Admin.forget_rate_limit)
    forget_rate_limits = waiting(Admin.forget_rate_limits)
    forget_all_rate_limits = waiting(Admin.forget_all_rate_limits)
    freeze = waiting(Admin.freeze)
    thaw = waiting(Admin.thaw)
    frozen = waiting(Admin.frozen)
    freezes = waiting(Admin.freezes)
    quotas = waiting(Admin.quotas)
    quota = waiting(Admin.quota)
    set_quota = waiting(Admin.set_quota)
    remove_quota = waiting(Admin.remove_quota)
    namespaces = waiting(Admin.namespaces)
    namespace = waiting(Admin.namespace)
    set_namespace = waiting(Admin.set_namespace)
    remove_namespace = waiting(Admin.remove_namespace)
    add_member = waiting(Admin.add_member)
    move_member = waiting(Admin.move_member)
    remove_member = waiting(Admin.remove_member)
    hold_rules = waiting(Admin.hold_rules)
    release_rules = waiting(Admin.release_rules)
    prefer_leader = waiting(Admin.prefer_leader)
    prefer_nobody = waiting(Admin.prefer_nobody)
    transfer_leadership = waiting(Admin.transfer_leadership)
    backup = waiting(Admin.backup)
    refusals = waiting(Admin.refusals)
    debug_info = waiting(Admin.debug_info)
    set_log_level = waiting(Admin.set_log_level)
