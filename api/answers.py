"""What a node answers to writes: one struct per JSON object. No secret but the asker's own."""

from collections.abc import Iterable

import msgspec

from api.views import Holder, Leader
from cluster.consensus.member_list import Members
from holdfast import wire
from lockstate.commands import Wanted
from lockstate.modes import Mode, Scope

_ENCODER = msgspec.json.Encoder()
encode = _ENCODER.encode


class SessionOpened(msgspec.Struct):
    """A new session. Its id is a secret: who knows it may use it."""

    session_id: str
    ttl_ms: int
    expires_in_ms: int
    revision: int


class SessionKept(msgspec.Struct):
    """A session whose ttl runs anew."""

    session_id: str
    expires_in_ms: int
    revision: int


class SessionClosed(msgspec.Struct):
    """The names of what the session held."""

    released: tuple[str, ...]
    revision: int


class Granted(msgspec.Struct):
    """A hold. `hold_id` is a secret; `token` is the fencing token, to be given to what the lock protects.

    `scope` is there when the lock covers its subtree.
    """

    hold_id: str
    token: int
    name: str
    mode: Mode
    expires_in_ms: int
    revision: int
    scope: Scope | msgspec.UnsetType = msgspec.UNSET


class HeldLock(msgspec.Struct):
    """One of the locks of a hold."""

    name: str
    mode: Mode
    scope: Scope


class GrantedSeveral(msgspec.Struct):
    """A hold of several locks, which has one id and one token."""

    hold_id: str
    token: int
    locks: tuple[HeldLock, ...]
    expires_in_ms: int
    revision: int


class Renewed(msgspec.Struct):
    """A hold whose lease runs anew."""

    token: int
    expires_in_ms: int
    revision: int


class Released(msgspec.Struct):
    """A hold that was given back. `locks` is what is left of it, when only a part was."""

    released: bool
    revision: int
    locks: tuple[HeldLock, ...] | msgspec.UnsetType = msgspec.UNSET


class ForceReleased(msgspec.Struct):
    """The holds that were ended."""

    released: tuple[Holder, ...]
    revision: int


class PermitsGranted(msgspec.Struct):
    """Permits of a semaphore; `available` are left to others."""

    hold_id: str
    token: int
    name: str
    permits: int
    available: int
    expires_in_ms: int
    revision: int


class Resized(msgspec.Struct):
    """A semaphore with a new limit. `available` is negative while more is held than that."""

    name: str
    limit: int
    available: int
    revision: int


class RateTaken(msgspec.Struct):
    """What a rate limit says to one request; `retry_after_ms` is 0 when it is allowed."""

    allowed: bool
    remaining: int
    retry_after_ms: int
    reset_in_ms: int
    revision: int


class FenceAdvanced(msgspec.Struct):
    """A resource that accepts this token and higher ones."""

    accepted: bool
    highest_token: int
    revision: int


class Elected(msgspec.Struct):
    """An election that was won. `hold_id` is the secret by which the leader proclaims and resigns."""

    hold_id: str
    token: int
    leader: Leader
    expires_in_ms: int
    revision: int


class Proclaimed(msgspec.Struct):
    """An election whose leader says something else now."""

    token: int
    revision: int


class LeadershipTransferred(msgspec.Struct):
    """Who leads now."""

    leader: str


class Member(msgspec.Struct):
    """A node of the cluster: voter, or joining as long as it does not count."""

    id: str
    peer: str
    state: str


class MemberList(msgspec.Struct):
    """All nodes of the cluster, in order of their ids."""

    members: tuple[Member, ...]
    revision: int


class Health(msgspec.Struct):
    """All is well; otherwise the answer is a problem document."""

    ok: bool


def held_locks(locks: Iterable[Wanted]) -> tuple[HeldLock, ...]:
    """Return the locks of a hold as JSON objects."""
    return tuple([HeldLock(lock.name, lock.mode, lock.scope) for lock in locks])


def member_list(members: Members, revision: int) -> MemberList:
    """Return the members as a JSON object."""
    return MemberList(
        tuple(
            Member(node_id, member.peer, "voter" if member.is_voter else wire.JOINING)
            for node_id, member in members.nodes.items()
        ),
        revision,
    )
