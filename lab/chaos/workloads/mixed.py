"""A workload of all kinds on a few names, of which the audit tells what happened."""

import asyncio
from typing import Any, ClassVar, Final, NamedTuple

from lab.chaos.checkers.audit_replay import FIELDS, Part
from lab.chaos.client import Client
from lab.chaos.history import Operation
from lab.chaos.lab import Lab
from lab.chaos.workloads.crowd import Crowd

TTL_MS: Final = 3000
SESSION_MS: Final = 6000
"""Nobody keeps it alive: a leader that is lost is over soon."""
WAIT_MS: Final = 1500
LIMIT: Final = 3
"""Permits of the semaphore."""
PAGE: Final = 1000
READ_S: Final = 0.3
"""The pause between two reads of the audit, which keeps the newest 10,000 records."""

TREE: Final = ("a", "a/x", "a/y", "b")
MODES: Final = ("concurrent-read", "concurrent-write", "shared", "update", "exclusive")
CALLS: Final = {
    "lock": ("locks", "release", "force-release"),
    "semaphore": ("semaphores", "release", "force-release"),
    "election": ("elections", "resign", "depose"),
}
"""By kind: where its calls are, which one gives a hold back, and which one ends those of others."""


class Held(NamedTuple):
    """What a client was granted."""

    hold_id: str
    owner: str
    parts: list[Part]

    @property
    def kind(self) -> str:
        """The kind whose calls are for the hold: locks, if it is of several kinds."""
        return self.parts[0].kind


class Auditor(Client):
    """Reads the audit from its beginning, and records what it says of the lab's names."""

    _behind = 0

    async def read(self) -> None:
        """Read everything that is new, or what there is of it before the cluster falls silent."""
        while True:
            path = f"/v1/audit?behind={self._behind}&limit={PAGE}"
            keep = {"behind": self._behind, "limit": PAGE}
            page = await self.ask("audit", self.lab.prefix, path, method="GET", keep=keep)
            if not page.is_ok or not page.body["events"]:
                return
            self._behind = page.body["events"][-1]["number"]
            if len(page.body["events"]) < PAGE:
                return

    async def _attempts(self, operation: Operation, *rest: Any) -> dict[str, Any]:
        """Leave out of the history what others do, but for their numbers, and the hashes."""
        answer = await super()._attempts(operation, *rest)
        events = operation.result.pop("events", [])
        operation.result["numbers"] = [event["number"] for event in events]
        operation.result["records"] = [
            [event.get(field) for field in FIELDS]
            for event in events
            if event["name"].startswith(f"{self.lab.prefix}/{self.workload}/")
        ]
        return answer


class Mixed(Crowd):
    """Clients take and change locks, subtrees, permits and leadership, and end what others have."""

    name: ClassVar[str] = "mixed"
    clients: ClassVar[int] = 6

    def __init__(self) -> None:
        self._sessions: dict[str, str] = {}
        """The session of each client."""

    async def run(self, lab: Lab, until_s: float) -> None:
        """Run clients, and read the audit meanwhile and once more behind them."""
        async with Auditor(lab, self.name, self.clients) as auditor:
            reading = asyncio.create_task(self._keep_reading(auditor))
            try:
                await super().run(lab, until_s)
            finally:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            await auditor.read()

    async def _keep_reading(self, auditor: Auditor) -> None:
        while True:
            await auditor.read()
            await asyncio.sleep(READ_S)

    async def turn(self, client: Client, number: int) -> None:
        """Read, end what others have, or take something, change it, and give it back."""
        del number
        if client.choices.randrange(4):
            await self._hold(client)
            return
        kind, name = self._any_name(client)
        tokens = await self._show(client, kind, name)
        if client.choices.randrange(3) == 0:
            await self._force(client, kind, name, tokens)

    # --- names

    def _lock(self, client: Client, name: str, *, is_subtree: bool = False) -> Part:
        mode = client.choices.choice(MODES)
        return Part("lock", self.lock(client, name), mode, "subtree" if is_subtree else "node")

    def _any_name(self, client: Client) -> tuple[str, str]:
        """Return a kind and one of its names."""
        kind = client.choices.choice(("lock", "lock", "semaphore", "election"))
        name = {"semaphore": "s", "election": "e"}.get(kind) or client.choices.choice(TREE)
        return kind, self.lock(client, name)

    # --- what clients do

    async def _show(self, client: Client, kind: str, name: str) -> list[int]:
        """Read who has something; return the tokens."""
        path = f"/v1/{CALLS[kind][0]}/{name}"
        shown = await client.ask("show", name, path, method="GET", patience_s=4.0, keep={"of": kind})
        leader = shown.body.get("leader")
        return [holder["token"] for holder in shown.body.get("holders", [leader] if leader else [])]

    async def _force(self, client: Client, kind: str, name: str, tokens: list[int]) -> None:
        """End all that is held under a name, or what was seen there. The reason tells who did it."""
        base, _, force = CALLS[kind]
        body: dict[str, Any] = {"name": name, "reason": client.new_owner()}
        if tokens and client.choices.randrange(2):
            body["token"] = client.choices.choice(tokens)
        await client.ask("force", name, f"/v1/{base}/{force}", body, keep={"of": kind})

    async def _hold(self, client: Client) -> None:
        held = await self._take(client)
        if held is None:
            return
        await client.pause(0.0, 0.03)
        is_sure = True
        if {part.kind for part in held.parts} == {"lock"}:
            change = client.choices.choice((self._convert, self._add, self._give_back_one, None))
            is_sure = change is None or await change(client, held)
        if is_sure and held.kind != "election" and client.choices.randrange(8) == 0:
            return  # it is left to expire
        await self._give_back(client, held)

    async def _take(self, client: Client) -> Held | None:
        """Ask for one thing or several; return what was granted."""
        choices = client.choices
        shape = choices.choice(("lock", "lock", "subtree", "several", "kinds", "permits", "election"))
        owner = client.new_owner()
        body: dict[str, Any] = {"owner": owner, "wait_ms": choices.choice((0, WAIT_MS))}
        permits = Part("semaphore", self.lock(client, "s"), permits=choices.randint(1, 2))
        match shape:
            case "permits":
                parts, path = [permits], "/v1/semaphores/acquire"
                body |= {"name": permits.name, "limit": LIMIT, "permits": permits.permits}
            case "election":
                parts, path = [Part("election", self.lock(client, "e"))], "/v1/elections/campaign"
                body |= {"name": parts[0].name, "value": owner, "session_id": await self._session(client)}
            case "several" | "kinds":
                names = choices.sample(TREE, 2 if shape == "several" else 1)
                parts, path = [self._lock(client, name) for name in names], "/v1/locks/acquire"
                body["locks"] = [part.as_lock() for part in parts]
                if shape == "kinds":
                    parts, path = [*parts, permits], "/v1/acquire"
                    wanted = {"name": permits.name, "limit": LIMIT, "permits": permits.permits}
                    body["permits"] = [wanted]
            case _:
                part = self._lock(client, choices.choice(TREE), is_subtree=shape == "subtree")
                parts, path = [part], "/v1/locks/acquire"
                body |= part.as_lock()
        if shape != "election":
            body["ttl_ms"] = TTL_MS
        keep = {"parts": parts, "limit": LIMIT}
        grant = await client.ask("get", parts[0].name, path, body, keep=keep)
        if grant.operation.code == "session-expired":
            del self._sessions[client.name]
        return Held(grant.hold_id, owner, parts) if grant.is_ok else None

    async def _session(self, client: Client) -> str:
        """Return the session in which a client campaigns, empty if the cluster opens none."""
        if client.name not in self._sessions:
            body = {"ttl_ms": SESSION_MS}
            opened = await client.ask("session-open", client.name, "/v1/sessions", body)
            self._sessions[client.name] = str(opened.body.get("session_id", ""))
        return self._sessions[client.name]

    async def _convert(self, client: Client, held: Held) -> bool:
        """Ask for another mode; return whether it is known what came of it."""
        mode = client.choices.choice([mode for mode in MODES if mode != held.parts[0].mode])
        body = {"hold_id": held.hold_id, "mode": mode, "wait_ms": client.choices.choice((0, WAIT_MS))}
        return await self._change(client, held, "convert", body, {"mode": mode})

    async def _add(self, client: Client, held: Held) -> bool:
        """Ask for one more lock; return whether it is known what came of it."""
        own = {part.name for part in held.parts}
        if any(part.scope == "subtree" for part in held.parts):
            return True
        names = [name for name in TREE if self.lock(client, name) not in own]
        part = self._lock(client, client.choices.choice(names))
        body = {"hold_id": held.hold_id, "locks": [part.as_lock()]}
        return await self._change(client, held, "add", body, {"parts": [part]})

    async def _change(
        self, client: Client, held: Held, kind: str, body: dict[str, Any], keep: dict[str, Any]
    ) -> bool:
        keep["owner"] = held.owner
        name = held.parts[0].name
        done = await client.ask(kind, name, f"/v1/locks/{kind}", body, keep=keep)
        return done.operation.outcome != "unknown"

    async def _give_back_one(self, client: Client, held: Held) -> bool:
        """Give back one of several locks; return whether it is known what came of it."""
        if len(held.parts) == 1:
            return True
        return await self._give_back(client, held, held.parts[-1].name)

    async def _give_back(self, client: Client, held: Held, *names: str) -> bool:
        """Give back what was granted, or some of it."""
        base, give_back, _ = CALLS[held.kind]
        body: dict[str, Any] = {"hold_id": held.hold_id} | ({"names": list(names)} if names else {})
        keep = {"owner": held.owner, "names": list(names)}
        path = f"/v1/{base}/{give_back}"
        done = await client.ask("give-back", held.parts[0].name, path, body, keep=keep)
        return done.operation.outcome != "unknown"
