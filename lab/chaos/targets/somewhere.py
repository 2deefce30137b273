"""A cluster that somebody else runs, and perhaps breaks: the lab has only its URLs."""

from collections.abc import Mapping, Sequence
from typing import ClassVar
from urllib.parse import urlsplit

from lab.chaos.targets.target import LabFailure, Target


class SomewhereTarget(Target):
    """Nodes by their URLs. No fault can be done to them from here."""

    name: ClassVar = "url"

    def __init__(self, urls: Sequence[str]) -> None:
        """`urls` as the user gave them; a node without a scheme speaks plain HTTP."""
        super().__init__()
        self._given = [url if "//" in url else f"http://{url}" for url in urls]
        self._urls: dict[str, str] = {}

    def open(self) -> None:
        """Ask each node who it is. Raises LabFailure if none answers, or two are one."""
        for number, url in enumerate(self._given):
            if not urlsplit(url).hostname:
                raise LabFailure(f"{url!r} is no URL; give one of each node: http://HOST:PORT,...")
            self._urls[f"node-{number + 1}"] = url.rstrip("/")
        names = {key: (self.status(key) or {}).get("node_id") for key in self._urls}
        silent = [self._urls[key] for key, name in names.items() if name is None]
        if len(silent) == len(names):
            raise LabFailure(f"no node answers at {', '.join(silent)}")
        known = [name for name in names.values() if name is not None]
        if len(set(known)) < len(known):
            raise LabFailure(f"two of the URLs lead to the same node: {names}")
        self._urls = {str(names[key] or key): url for key, url in self._urls.items()}

    def close(self) -> None:
        """Do nothing: it is not ours."""

    def urls(self) -> Mapping[str, str]:
        """Return the URLs by the ids that the nodes told."""
        return self._urls

    def log_tail(self, node_id: str) -> str:
        """Say where to look."""
        return f"(the log of {node_id} is where {self._urls[node_id]} runs)"
