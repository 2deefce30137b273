"""Which call is the right one for what a client has: told to one that asked with that of another kind."""

from typing import Final

from holdfast import wire
from lockapi.problems import ProblemError
from lockstate.words.commands.entries import Command
from lockstate.words.commands.holds import PutOff, Release, Renew
from lockstate.words.commands.overrides import ForceRelease, Revoke, WithdrawRevocation
from lockstate.words.kinds import HoldKind
from lockstate.words.refusals import Refused

_LOCK, _SEMAPHORE, _ELECTION = HoldKind.LOCK, HoldKind.SEMAPHORE, HoldKind.ELECTION
_CALLS: Final[dict[type[Command], dict[HoldKind, str]]] = {
    Release: {
        _LOCK: wire.LOCK_RELEASE,
        _SEMAPHORE: wire.SEMAPHORE_RELEASE,
        _ELECTION: wire.ELECTION_RESIGN,
    },
    Renew: {
        _LOCK: wire.LOCK_RENEW,
        _SEMAPHORE: wire.SEMAPHORE_RENEW,
        _ELECTION: wire.SESSION_KEEPALIVE,  # a leader has no lease but that of its session
    },
    ForceRelease: {
        _LOCK: wire.LOCK_FORCE_RELEASE,
        _SEMAPHORE: wire.SEMAPHORE_FORCE_RELEASE,
        _ELECTION: wire.ELECTION_DEPOSE,
    },
    Revoke: {
        _LOCK: wire.LOCK_REVOKE,
        _SEMAPHORE: wire.SEMAPHORE_REVOKE,
        _ELECTION: wire.ELECTION_REVOKE,
    },
    WithdrawRevocation: {
        _LOCK: wire.LOCK_WITHDRAW,
        _SEMAPHORE: wire.SEMAPHORE_WITHDRAW,
        _ELECTION: wire.ELECTION_WITHDRAW,
    },
    PutOff: {
        _LOCK: wire.LOCK_PUT_OFF,
        _SEMAPHORE: wire.SEMAPHORE_PUT_OFF,
        _ELECTION: wire.ELECTION_PUT_OFF,
    },
}
"""The calls of each kind, by the command that they make."""


def told(command: Command, refused: Refused) -> ProblemError:
    """Return the problem for a command about another kind than that of the first holder that `refused` names.

    Only these commands name a kind, so only they are refused for it.
    """
    path = _CALLS[type(command)][refused.holders[0].kind]
    return ProblemError(refused.reason.value, f"{refused.detail}: use POST {path}")
