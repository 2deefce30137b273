"""What the cluster answers, as frozen values. Unknown fields are ignored: a newer node may send more."""

import msgspec


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lock, as others may see it."""

    owner: str
    mode: str
    token: int
    expires_in_ms: int
    note: str = ""


class Waiter(msgspec.Struct, frozen=True):
    """Who waits for a lock. `position` counts from 1."""

    owner: str
    mode: str
    position: int
    waited_ms: int


class LockInfo(msgspec.Struct, frozen=True):
    """A lock as it stands. `state` is free, held or delayed."""

    name: str
    state: str
    holders: tuple[Holder, ...] = ()
    queue: tuple[Waiter, ...] = ()


class LockPage(msgspec.Struct, frozen=True):
    """Locks in order of name. `next` is to be passed as `after` for the next page; None at the end."""

    locks: tuple[LockInfo, ...]
    next: str | None = None


class NodeInfo(msgspec.Struct, frozen=True):
    """A node as another sees it.

    `state` is leader, follower, candidate, starting, joining (not yet a voter) or unreachable.
    """

    id: str
    http: str
    peer: str
    state: str
    revision: int


class Obstacle(msgspec.Struct, frozen=True):
    """What keeps the asked node from serving, or the cluster from doing what it should.

    `peer` is the node it is about, None if it is the asked node or the whole cluster; `for_ms` is for how
    long, as far as the asked node knows. `detail` and `advice` are for people.
    """

    kind: str
    peer: str | None
    for_ms: int
    detail: str
    advice: str


class ClusterInfo(msgspec.Struct, frozen=True):
    """The cluster as the asked node sees it. `leader` is None while there is none.

    Of `obstacles`, the gravest come first. Earlier releases of the node tell none.
    """

    node_id: str
    leader: str | None
    term: int
    revision: int
    nodes: tuple[NodeInfo, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()


class Member(msgspec.Struct, frozen=True):
    """A node in the list of members. `state` is voter, or joining until it has caught up."""

    id: str
    peer: str
    state: str


class MemberList(msgspec.Struct, frozen=True):
    """The body of the answer to a change of the members: all of them."""

    members: tuple[Member, ...]


class LeadershipTransferred(msgspec.Struct, frozen=True):
    """The body of the answer to a transfer of leadership: the new leader."""

    leader: str


class SessionOpened(msgspec.Struct, frozen=True):
    """The body of the answer to opening a session."""

    session_id: str
    expires_in_ms: int


class SessionKept(msgspec.Struct, frozen=True):
    """The body of the answer to a keepalive."""

    expires_in_ms: int


class NamesReleased(msgspec.Struct, frozen=True):
    """The body of the answer to closing a session: the names of the locks that it held."""

    released: tuple[str, ...] = ()


class HoldersReleased(msgspec.Struct, frozen=True):
    """The body of the answer to a forced release: the former holders."""

    released: tuple[Holder, ...] = ()


class Granted(msgspec.Struct, frozen=True):
    """The body of the answer to an acquire. `expires_in_ms` is 0 when the hold has already ended."""

    hold_id: str
    token: int
    name: str
    mode: str
    expires_in_ms: int


class Renewed(msgspec.Struct, frozen=True):
    """The body of the answer to a renewal."""

    token: int
    expires_in_ms: int
