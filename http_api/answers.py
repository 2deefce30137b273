"""What a node answers: one struct per JSON object. No secret but the asker's own."""

from collections.abc import Iterable

import msgspec

from cluster.members import Members
from holdfast import wire
from lockstate.modes import Mode
from lockstate.results import HolderView, LockView, SessionView, WaiterView

_ENCODER = msgspec.json.Encoder()
encode = _ENCODER.encode


class Holder(msgspec.Struct):
    """Who holds a lock, as others may see it."""

    owner: str
    mode: Mode
    token: int
    expires_in_ms: int
    note: str


class Waiter(msgspec.Struct):
    """Who waits for a lock; position 1 is next."""

    owner: str
    mode: Mode
    position: int
    waited_ms: int


class Held(Holder):
    """A lock that a session holds."""

    name: str


class Ticket(Waiter):
    """A lock that a session waits for."""

    name: str


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
    """The names of the locks that the session held."""

    released: tuple[str, ...]
    revision: int


class Session(msgspec.Struct, kw_only=True):
    """A session, for who knows its id. Stale answers say how old they are."""

    ttl_ms: int
    expires_in_ms: int
    owner: str
    labels: dict[str, str]
    holds: tuple[Held, ...]
    tickets: tuple[Ticket, ...]
    revision: int | msgspec.UnsetType = msgspec.UNSET
    lag_ms: int | msgspec.UnsetType = msgspec.UNSET


class Granted(msgspec.Struct):
    """A hold. `hold_id` is a secret; `token` is the fencing token, to be given to what the lock protects."""

    hold_id: str
    token: int
    name: str
    mode: Mode
    expires_in_ms: int
    revision: int


class Renewed(msgspec.Struct):
    """A hold whose lease runs anew."""

    token: int
    expires_in_ms: int
    revision: int


class Released(msgspec.Struct):
    """A hold that was given back."""

    released: bool
    revision: int


class ForceReleased(msgspec.Struct):
    """The holds that were ended."""

    released: tuple[Holder, ...]
    revision: int


class Lock(msgspec.Struct, kw_only=True):
    """A lock: free, held or delayed. Stale answers say how old they are."""

    name: str
    state: str
    holders: tuple[Holder, ...]
    queue: tuple[Waiter, ...]
    revision: int | msgspec.UnsetType = msgspec.UNSET
    lag_ms: int | msgspec.UnsetType = msgspec.UNSET


class LockPage(msgspec.Struct, kw_only=True):
    """Locks in order of name, and the name to pass as `after` for more."""

    locks: tuple[Lock, ...]
    next: str | None
    revision: int | msgspec.UnsetType = msgspec.UNSET
    lag_ms: int | msgspec.UnsetType = msgspec.UNSET


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


def holders_of(views: Iterable[HolderView]) -> tuple[Holder, ...]:
    """Return holders as JSON objects."""
    return tuple([Holder(view.owner, view.mode, view.token, view.expires_in_ms, view.note) for view in views])


def member_list(members: Members, revision: int) -> MemberList:
    """Return the members as a JSON object."""
    return MemberList(
        tuple(
            Member(node_id, member.peer, "voter" if member.is_voter else wire.JOINING)
            for node_id, member in members.nodes.items()
        ),
        revision,
    )


def waiters_of(views: Iterable[WaiterView]) -> tuple[Waiter, ...]:
    """Return waiters as JSON objects."""
    return tuple([Waiter(view.owner, view.mode, view.position, view.waited_ms) for view in views])


def lock_of(view: LockView) -> Lock:
    """Return a lock as a JSON object."""
    return Lock(
        name=view.name, state=view.state, holders=holders_of(view.holders), queue=waiters_of(view.queue)
    )


def session_of(view: SessionView) -> Session:
    """Return a session as a JSON object."""
    return Session(
        ttl_ms=view.ttl_ms,
        expires_in_ms=view.expires_in_ms,
        owner=view.owner,
        labels=view.labels,
        holds=tuple(
            [
                Held(hold.owner, hold.mode, hold.token, hold.expires_in_ms, hold.note, hold.name)
                for hold in view.holds
            ]
        ),
        tickets=tuple(
            [
                Ticket(ticket.owner, ticket.mode, ticket.position, ticket.waited_ms, ticket.name)
                for ticket in view.tickets
            ]
        ),
    )
