"""How the clients of one simulated world behave."""

import msgspec


class ClientSettings(msgspec.Struct, frozen=True):
    """What the clients of one world have in common."""

    names: tuple[str, ...]
    sessions_max: int
    """Of one client at a time."""
    think_s: float
    """On average, between two actions of one client."""
    ttl_ms: tuple[int, int]
    wait_ms: tuple[int, int]
    timeout_s: tuple[float, float]
    vocabulary_share: float = 0.0
    """The share of actions that are not about single exclusive or shared locks."""
    cells_share: float = 0.0
    """The share of actions that are about cells."""
    overrides_share: float = 0.0
    """The share of actions that are about what others have, besides those of the whole vocabulary."""
    hand_overs_share: float = 0.0
    """The share of actions that are hand-overs, besides those of the whole vocabulary."""
    permits_again_share: float = 0.0
    """How often a session that asks for permits asks for as many more at the same time."""
