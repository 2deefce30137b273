"""What happens in the cluster, for threads: the twin of `Watch`."""

from types import TracebackType
from typing import Self

from holdfast.client.portal import Call
from holdfast.client.watch import Watch
from holdfast.values.answers import Event


class SyncWatch:
    """An iterator of events that waits for the next one. See `Watch`."""

    def __init__(self, twin: Watch) -> None:
        self._twin = twin

    @property
    def last_id(self) -> str:
        """Where the iteration is: to be given as `since`. Empty until the watch has begun."""
        return self._twin.last_id

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the stream. Iterating again goes on where it was."""
        Call(self._twin.close).run()

    def begin(self) -> None:
        """Wait until the watch has begun: from then on it misses nothing."""
        Call(self._twin.begin).run()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        try:
            return Call(self._twin.__anext__).run()
        except StopAsyncIteration:
            raise StopIteration from None
