"""The log as the rules of Raft ask about it: where it ends, what is committed, which term stands where."""

from cluster.consensus.engine import Engine
from cluster.consensus.library_words import EngineJournal
from cluster.consensus.log_digest import Digest


class ReplicatedLog:
    """The log of one replica (guards.LogView): what its journal holds, and how much of it is committed."""

    def __init__(self, journal: EngineJournal, engine: Engine) -> None:
        self._journal = journal
        self._engine = engine

    def __len__(self) -> int:
        """Return how many entries the log holds."""
        return len(self._journal)

    @property
    def first_index(self) -> int:
        """Return the index of the oldest entry."""
        return self._journal.first_index

    @property
    def last_index(self) -> int:
        """Return the index of the newest entry."""
        return self._journal.last_index

    @property
    def committed(self) -> int:
        """Return the highest index known to be committed."""
        return max(self._engine.commit_index, self._engine.applied_index)

    def term_at(self, index: int) -> int | None:
        """Return the term of the entry at `index`, None if it is not in the log."""
        position = index - self._journal.first_index
        return self._journal[position][2] if 0 <= position < len(self._journal) else None

    def digest_at(self, index: int) -> Digest | None:
        """Return the digest of the log at `index`, None if it is not known, or the entry not here."""
        return self._journal.digest_at(index)
