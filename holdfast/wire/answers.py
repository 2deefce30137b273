"""The answers of the HTTP API that nodes give and the client reads: one struct per JSON object.

The API's published description names a component after its struct, without `Json`; the structs without it
are values that the client's users see as well. `HoldGiven` and `LeaseRenewed` are what is read of several
answers: a test looks for it in each of them. No answer contains a secret but the asker's own.
"""

import msgspec

Unset = msgspec.UnsetType
UNSET = msgspec.UNSET


class WriteAnswer(msgspec.Struct, kw_only=True):
    """Base of the answers to what may be repeated: `repeated` says that it was answered so before."""

    repeated: bool | Unset = UNSET


# -- what is held -----------------------------------------------------------------------------------------


class HoldGiven(msgspec.Struct, frozen=True):
    """What is read of every answer that gives a hold. `hold_id` is a secret, `token` the fencing token.

    `expires_in_ms` is 0 when the hold has already ended, and not there if `no_deadline` is.
    """

    hold_id: str
    token: int
    expires_in_ms: int | Unset = UNSET
    no_deadline: bool | Unset = UNSET


class Revocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A request to a holder to give up within `ends_in_ms`, after which it is ended by force.

    `put_off` says whether it has been put off, which is possible once; `ticket` is the number of the wait
    that needs the hold, 0 if there is none.
    """

    reason: str
    ends_in_ms: int
    put_off: bool
    ticket: int = 0


class LeaseRenewed(msgspec.Struct, frozen=True):
    """What is read of an answer to a renewal. With a `revocation` the hold is to be given up nevertheless."""

    token: int
    expires_in_ms: int | Unset = UNSET
    no_deadline: bool | Unset = UNSET
    revocation: Revocation | Unset = UNSET


class PutOffJson(WriteAnswer):
    """A hold that is not forced for so long; nor can that be put off again."""

    token: int
    ends_in_ms: int
    revision: int


class WithdrawnJson(msgspec.Struct):
    """Whether there was anything to take back: a place in a queue, or a hold."""

    withdrawn: bool
    revision: int


class ProclaimedJson(WriteAnswer):
    """An election whose leader has changed its value."""

    token: int
    revision: int


class DelaysLiftedJson(WriteAnswer):
    """How many delays were ended, and how long the longest of them would have gone on."""

    lifted: int
    left_ms: int
    revision: int


# -- sessions ---------------------------------------------------------------------------------------------


class SessionOpenedJson(WriteAnswer):
    """A new session. Its id is a secret: whoever knows it may use it."""

    session_id: str
    ttl_ms: int
    expires_in_ms: int
    revision: int


class SessionClosedJson(WriteAnswer):
    """The names of what the session held."""

    released: tuple[str, ...]
    revision: int


class SessionForcedJson(WriteAnswer):
    """A session that was ended by force, with the names of what it held."""

    session_name: str
    owner: str
    released: tuple[str, ...]
    revision: int


# -- fences and rate limits -------------------------------------------------------------------------------


class FenceAdvancedJson(WriteAnswer):
    """A resource that accepts this token and higher ones."""

    accepted: bool
    highest_token: int
    revision: int


class FenceForgottenJson(WriteAnswer):
    """The highest token that was forgotten; null if the resource never saw one."""

    forgotten: bool
    highest_token: int | None
    revision: int


# -- operators --------------------------------------------------------------------------------------------


class Used(msgspec.Struct, frozen=True):
    """How much a principal has. `holds` counts its waits, too, and `waits` only these.

    `bytes` counts its cells (keys and values), the notes and values of its holds and waits, and the labels of
    its sessions.
    """

    sessions: int
    holds: int
    waits: int
    cells: int
    fences: int
    bytes: int


class NamespaceUsed(msgspec.Struct, frozen=True):
    """How much there is in a namespace of what was made since it was set; `holds` counts waits, too."""

    holds: int
    waits: int
    cells: int
    fences: int
    bytes: int


class RefusedAttempt(msgspec.Struct, frozen=True):
    """A call, or a command of a stream, that a node has refused because of its caller.

    `code` is unauthenticated, forbidden, forbidden-host or forbidden-origin. `principal` is empty for an
    unknown caller; `method` and `route` are "-" if the call was refused before it was parsed. `number` counts
    the refusals of this node, and `unix_ms` is its clock.
    """

    number: int
    unix_ms: int
    code: str
    principal: str
    address: str
    method: str
    route: str
    detail: str
    request_id: str


class Refusals(msgspec.Struct, frozen=True):
    """The newest of them on the node that answered, the newest first; `count` since it was started."""

    refusals: tuple[RefusedAttempt, ...]
    count: int
    node_id: str


class Member(msgspec.Struct, frozen=True):
    """A node in the list of members. `state` is voter, or joining until it has caught up."""

    id: str
    peer: str
    state: str


class MemberListJson(msgspec.Struct):
    """All nodes of the cluster, in order of their ids."""

    members: tuple[Member, ...]
    revision: int


class LeadershipTransferredJson(msgspec.Struct):
    """The node that leads now."""

    leader: str
