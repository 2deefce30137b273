"""Which secret is used with which peer, and whether all nodes use the same (decision 14).

A node proves itself with its current secret. A peer that does not know that one yet, or no longer, hangs up;
then the other secret is tried, if there is one. So nodes may learn of an exchange in any order.

Connected nodes tell each other which secrets they accept: not the secrets, but a MAC made with each, which
holds for one connection only. That is how the command that exchanges a secret knows when to go on.
"""

import hmac
from collections.abc import Iterable, Mapping

import msgspec

from cluster.config_secrets import STEPS, Secrets
from cluster.peers.handshake import HandshakeState


class SecretsSaid(msgspec.Struct, frozen=True, array_like=True):
    """What a node tells of the secrets that it accepts: how far an exchange is, and a MAC with each."""

    step: str
    shown: tuple[bytes, ...]


class SecretUse:
    """The secrets of one node, and what its peers say of theirs."""

    def __init__(self, secrets: Secrets) -> None:
        self.secrets = secrets
        self._failed: dict[str, int] = {}
        self._said: dict[str, tuple[HandshakeState, SecretsSaid]] = {}

    def change(self, secrets: Secrets) -> None:
        """Use these from now on."""
        self.secrets = secrets
        self._failed.clear()

    def to_dial(self, peer_id: str) -> bytes:
        """Return the secret to prove this node with when it dials a peer."""
        accepted = self.secrets.accepted
        return accepted[self._failed.get(peer_id, 0) % len(accepted)]

    def failed(self, peer_id: str) -> bool:
        """Record that a peer hung up on the last one; tell whether another is to be tried at once."""
        self._failed[peer_id] = self._failed.get(peer_id, 0) + 1
        return self._failed[peer_id] % len(self.secrets.accepted) != 0

    def succeeded(self, peer_id: str) -> None:
        """Record that a peer was reached: the next time the current secret is tried first."""
        self._failed.pop(peer_id, None)

    # -- what the nodes tell each other ---------------------------------------------------------------------

    def saying(self, exchange: HandshakeState, node_id: str) -> SecretsSaid:
        """Return what the node with this id tells on the link of `exchange` if its secrets are those here."""
        shown = tuple(exchange.shows(secret, node_id) for secret in self.secrets.accepted)
        return SecretsSaid(self.secrets.step, shown)

    def heard(self, peer_id: str, exchange: HandshakeState, said: SecretsSaid) -> None:
        """Take what a peer tells on its link."""
        self._said[peer_id] = (exchange, said)

    def forget(self, peer_id: str) -> None:
        """Record that a peer is not connected any more."""
        self._said.pop(peer_id, None)

    def agrees(self, peer_id: str) -> bool:
        """Whether a connected peer has told the very secrets and step that this node has now."""
        if peer_id not in self._said:
            return False
        exchange, said = self._said[peer_id]
        ours = self.saying(exchange, peer_id)
        is_same = said.step == ours.step and len(said.shown) == len(ours.shown)
        return is_same and all(map(hmac.compare_digest, said.shown, ours.shown))

    def is_current_accepted(self, peer_id: str) -> bool:
        """Whether a connected peer has told that it accepts the current secret of this node."""
        if peer_id not in self._said:
            return False
        exchange, said = self._said[peer_id]
        ours = exchange.shows(self.secrets.current, peer_id)
        return any(hmac.compare_digest(ours, shown) for shown in said.shown)

    def steps(self) -> Mapping[str, bool]:
        """Return which of the steps of an exchange this node is in: none of them if it has one secret."""
        return {step: self.secrets.step == step for step in STEPS}

    def behind(self, proven_with: Iterable[bytes]) -> int:
        """Return how many links, by the secret that each was proven with, do not use the current one."""
        return sum(secret != self.secrets.current for secret in proven_with)
