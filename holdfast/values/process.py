"""What belongs to one process: what a forked child must forget, and what cannot be handed to another one."""

import os
from collections.abc import Callable
from typing import Never, SupportsIndex


def after_fork(forget: Callable[[], object]) -> None:
    """Call `forget` in every child that is forked from now on; where processes do not fork, never."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


class OfOneProcess:
    """Base of what has connections, secrets or threads: it is neither pickled nor copied."""

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> Never:
        """Refuse to be pickled and copied. Raises TypeError."""
        name = type(self).__name__
        raise TypeError(f"a {name} cannot be pickled or copied: make a client in each process")
