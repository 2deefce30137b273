"""What operators do to the cluster and to all that use it: the commands that need the right `admin`."""

from lockstate.words.commands.base import WithRequestId
from lockstate.words.kinds import ClusterAct
from lockstate.words.settings import NamespaceSettings, Quota


class SetQuota(WithRequestId, frozen=True, tag=84):
    """Bound what a principal may have, or with "*" each one without a quota of its own; None ends the bound.

    What it has already stays.
    """

    principal: str
    quota: Quota | None = None
    request_id: str = ""
    reason: str = ""


class SetNamespace(WithRequestId, frozen=True, tag=85):
    """Set a namespace, or with None remove it. What is there already stays, and is not counted."""

    prefix: str
    settings: NamespaceSettings | None = None
    request_id: str = ""
    reason: str = ""


class RecordAct(WithRequestId, frozen=True, tag=91):
    """Record that somebody asks for a change of the members, or for another leader. It changes nothing else.

    `node_id` is the node that is to join, move, leave or lead (empty: whichever can best), `peer` its address
    if it gets one.
    """

    act: ClusterAct
    node_id: str
    peer: str
    reason: str
    request_id: str = ""


class HoldRules(WithRequestId, frozen=True, tag=93):
    """Keep the cluster at the rules that it follows, or, if not `is_held`, let it follow newer ones again."""

    is_held: bool
    reason: str
    request_id: str = ""


class PreferLeader(WithRequestId, frozen=True, tag=94):
    """Say which node should lead whenever it can, or, with an empty `node_id`, that it does not matter.

    The state has no members: whoever asks for it makes sure that it is the id of one.
    """

    node_id: str
    reason: str
    request_id: str = ""
