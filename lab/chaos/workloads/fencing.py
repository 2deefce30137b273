"""Workloads of fencing tokens: the cluster's own fences, and a register that checks tokens itself."""

from typing import ClassVar, Final

from lab.chaos.client import Client, Reply
from lab.chaos.history import Operation
from lab.chaos.lab import now_ns
from lab.chaos.workloads.crowd import Crowd

TTL_MS: Final = 3000
WAIT_MS: Final = 2000


class FencingTokens(Crowd):
    """Holders advance a fence with their token; some come back with it when it is stale."""

    name: ClassVar[str] = "tokens"
    clients: ClassVar[int] = 4

    def __init__(self) -> None:
        self._old: dict[int, tuple[str, int]] = {}

    async def turn(self, client: Client, number: int) -> None:
        """Acquire, advance, release; then try an older token."""
        name = self.lock(client, number % 2)
        grant = await client.acquire(name, ttl_ms=TTL_MS, wait_ms=WAIT_MS)
        if not grant.is_ok:
            return
        token = int(grant.body["token"])
        await self._advance(client, name, token)
        if number in self._old and client.choices.randrange(3) == 0:
            await self._advance(client, *self._old[number])
        self._old[number] = (name, token)
        await client.release(name, grant.hold_id)

    async def _advance(self, client: Client, name: str, token: int) -> None:
        body = {"name": name, "token": token}
        await client.ask("advance", name, "/v1/fences/advance", body)


class Register:
    """A value that a lock protects, in the memory of the lab. With a fence it refuses stale tokens.

    It asks for the token at each read, too: else a holder of yesterday could write between the read and the
    write of the one of today, and its update would be lost.
    """

    def __init__(self, *, is_fenced: bool) -> None:
        self.is_fenced = is_fenced
        self.value = 0
        self._highest_token = 0

    def read(self, token: int) -> int | None:
        """Return the value, None if the token is stale."""
        return self.value if self._accepts(token) else None

    def write(self, value: int, token: int) -> bool:
        """Write; return whether the token was accepted."""
        if not self._accepts(token):
            return False
        self.value = value
        return True

    def _accepts(self, token: int) -> bool:
        if self.is_fenced and token < self._highest_token:
            return False
        self._highest_token = max(self._highest_token, token)
        return True


class GuardedRegister(Crowd):
    """Clients read a number, sleep, and write one more, under a lock; some sleep through their lease.

    The sleep stands for a stopped process: its client goes on as if nothing had happened. Half of the
    registers have a fence, and lose no update; the others may.
    """

    name: ClassVar[str] = "register"
    clients: ClassVar[int] = 6
    ttl_ms: ClassVar[int] = 400
    long_sleep_s: ClassVar[tuple[float, float]] = (0.5, 0.9)

    def __init__(self) -> None:
        self._registers: dict[str, Register] = {}

    async def turn(self, client: Client, number: int) -> None:
        """Increment a register under its lock."""
        is_fenced = number % 2 == 0
        name = self.lock(client, "fenced" if is_fenced else "unfenced")
        register = self._registers.setdefault(name, Register(is_fenced=is_fenced))
        grant = await client.acquire(name, ttl_ms=self.ttl_ms, wait_ms=WAIT_MS)
        if not grant.is_ok:
            return
        token = int(grant.body["token"])
        base = self._read(client, register, name, token)
        if base is not None:
            is_long = client.choices.randrange(8) == 0
            await client.pause(*(self.long_sleep_s if is_long else (0.0, 0.02)))
            self._write(client, register, name, token, base)
        await self._release(client, name, grant)

    async def _release(self, client: Client, name: str, grant: Reply) -> None:
        await client.release(name, grant.hold_id)

    def _read(self, client: Client, register: Register, name: str, token: int) -> int | None:
        call_ns = now_ns()
        value = register.read(token)
        fields = {"token": token, "is_fenced": register.is_fenced}
        operation = _operation(client, "register-read", name, call_ns, is_ok=value is not None)
        operation.arguments, operation.result = fields, {"value": value}
        client.lab.history.write(operation)
        return value

    def _write(self, client: Client, register: Register, name: str, token: int, base: int) -> None:
        call_ns = now_ns()
        before = register.value
        is_ok = register.write(base + 1, token)
        fields = {"token": token, "is_fenced": register.is_fenced, "base": base, "value": base + 1}
        operation = _operation(client, "register-write", name, call_ns, is_ok=is_ok)
        operation.arguments, operation.result = fields, {"before": before}
        client.lab.history.write(operation)


def _operation(client: Client, kind: str, name: str, call_ns: int, *, is_ok: bool) -> Operation:
    """Return an operation on a register of the lab, which is over."""
    return Operation(
        id=client.lab.history.next_id(),
        client=client.name,
        workload=client.workload,
        kind=kind,
        name=name,
        call_ns=call_ns,
        return_ns=now_ns(),
        outcome="ok" if is_ok else "refused",
        code="" if is_ok else "stale-token",
    )
