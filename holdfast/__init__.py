"""Holdfast's client: locks with leases and fencing tokens, from a cluster that survives its nodes.

async with holdfast.Client("10.0.0.1:7700,10.0.0.2:7700") as client:
    async with client.lock("db/migrate") as hold:
        migrate(token=hold.token)
"""

from holdfast._client import Client
from holdfast._errors import (
    InvalidRequest,
    LeaseExpired,
    LeaseLost,
    LockError,
    LockHeld,
    MemberChangeRefused,
    OutcomeUnknown,
    Refused,
    SessionExpired,
    StaleToken,
    Unavailable,
)
from holdfast._fencing import FencedResource
from holdfast._hold import Hold, Session
from holdfast._lock import Lock
from holdfast._values import ClusterInfo, Holder, LockInfo, LockPage, Member, NodeInfo, Obstacle, Waiter

__all__ = [
    "Client",
    "ClusterInfo",
    "FencedResource",
    "Hold",
    "Holder",
    "InvalidRequest",
    "LeaseExpired",
    "LeaseLost",
    "Lock",
    "LockError",
    "LockHeld",
    "LockInfo",
    "LockPage",
    "Member",
    "MemberChangeRefused",
    "NodeInfo",
    "Obstacle",
    "OutcomeUnknown",
    "Refused",
    "Session",
    "SessionExpired",
    "StaleToken",
    "Unavailable",
    "Waiter",
]
