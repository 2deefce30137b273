"""A workload of cells: read, written, written on a condition, and deleted."""

from typing import Any, ClassVar

from lab.chaos.checkers.value_models import ABSENT
from lab.chaos.client import Client
from lab.chaos.workloads.crowd import Crowd


class Cells(Crowd):
    """Clients read two cells and exchange what they read; some write or delete whatever is there."""

    name: ClassVar[str] = "cells"
    clients: ClassVar[int] = 4

    async def turn(self, client: Client, number: int) -> None:
        """Read, and do something to what was read."""
        del number
        name = self.lock(client, client.choices.randrange(2))
        path = f"/v1/cells/{name}"
        read = await client.ask("cell-read", name, path, method="GET", patience_s=4.0)
        deed = client.choices.randrange(6)
        if deed == 0:
            await client.ask("cell-delete", name, path, method="DELETE", patience_s=4.0)
            return
        body: dict[str, Any] = {"value": client.new_owner()}
        keep: dict[str, Any] = {}
        if deed > 1:
            if not read.is_ok and read.operation.code != "cell-not-found":
                return
            body["if_mod_revision"] = read.body.get("mod_revision", 0) if read.is_ok else 0
            keep["expected"] = read.body["value"] if read.is_ok else ABSENT
        await client.ask("cell-write", name, path, body, method="PUT", patience_s=4.0, keep=keep)
