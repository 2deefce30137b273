"""What happens to a packet on its way: decided here from a rule, a time and chance, without I/O.

A link has one direction. What is delayed stays in order, unless the rule says `reorder`.
"""

import random
from collections.abc import Iterable
from typing import Final

import msgspec

HELD_BACK_S: Final = 0.03
"""For how long, in seconds, a reordered packet is held back, while others pass."""
QUEUE_BYTES_MAX: Final = 32 * 1024
"""What waits in front of a slow link at most; more is dropped, as a router does."""
HEADER_BYTES: Final = 20
"""An IPv4 header. It is never damaged: a network would not know where such a packet is to go."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a link does to packets. `loss`, `reorder`, `duplicate` and `corrupt` are chances from 0 to 1."""

    is_cut: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """Each packet is delayed by up to so much more."""
    loss: float = 0.0
    reorder: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    rate_kbit_s: float = 0.0
    """1000 bits a second; 0 for no bound."""


PLAIN: Final = Rule()
CUT: Final = Rule(is_cut=True)


def together(rules: Iterable[Rule]) -> Rule:
    """Return the rule of a link that several faults hit at once."""
    result = PLAIN
    for rule in rules:
        rates = [each for each in (result.rate_kbit_s, rule.rate_kbit_s) if each]
        result = Rule(
            is_cut=result.is_cut or rule.is_cut,
            delay_ms=result.delay_ms + rule.delay_ms,
            jitter_ms=result.jitter_ms + rule.jitter_ms,
            loss=_either(result.loss, rule.loss),
            reorder=_either(result.reorder, rule.reorder),
            duplicate=_either(result.duplicate, rule.duplicate),
            corrupt=_either(result.corrupt, rule.corrupt),
            rate_kbit_s=min(rates, default=0.0),
        )
    return result


def _either(one: float, other: float) -> float:
    """Return the chance that at least one of two independent things happens."""
    return 1 - (1 - one) * (1 - other)


class Link:
    """The way from one end to another, under one rule at a time."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._rule = PLAIN
        self._free_s = 0.0
        self._last_s = 0.0
        self.sent = 0
        """How many packets came in."""
        self.dropped = 0
        """How many of them were lost, or found the link cut or its queue full."""

    @property
    def rule(self) -> Rule:
        """What the link does now."""
        return self._rule

    @rule.setter
    def rule(self, rule: Rule) -> None:
        """Change it. What is under way arrives when it was to arrive, unless the link is cut then."""
        self._rule = rule
        self._free_s = self._last_s = 0.0

    def send(self, packet: bytes, now_s: float) -> list[tuple[float, bytes]]:
        """Return when (at `now_s` or later) which packets come out at the other end."""
        rule, chance = self._rule, self._chance
        self.sent += 1
        if rule.is_cut or (rule.loss and chance.random() < rule.loss):
            self.dropped += 1
            return []
        due_s = now_s
        if rule.rate_kbit_s:
            queued_s = max(0.0, self._free_s - now_s)
            if queued_s * rule.rate_kbit_s * 125 + len(packet) > QUEUE_BYTES_MAX:
                self.dropped += 1
                return []
            due_s += queued_s + len(packet) / (rule.rate_kbit_s * 125)
            self._free_s = due_s
        due_s += (rule.delay_ms + rule.jitter_ms * chance.random()) / 1000
        if rule.reorder and chance.random() < rule.reorder:
            due_s += HELD_BACK_S  # and those behind it need not wait for it
        else:
            due_s = self._last_s = max(due_s, self._last_s)
        if rule.corrupt and chance.random() < rule.corrupt:
            packet = damaged(packet, chance)
        copies = 2 if rule.duplicate and chance.random() < rule.duplicate else 1
        return [(due_s, packet)] * copies

    def drops_on_arrival(self) -> bool:
        """Whether what was under way is lost, too: the link has been cut meanwhile. Counts it if so."""
        self.dropped += self._rule.is_cut
        return self._rule.is_cut


def damaged(packet: bytes, chance: random.Random) -> bytes:
    """Return a packet with one wrong bit behind its header."""
    if len(packet) <= HEADER_BYTES:
        return packet
    place = chance.randrange(HEADER_BYTES, len(packet))
    changed = bytearray(packet)
    changed[place] ^= 1 << chance.randrange(8)
    return bytes(changed)
