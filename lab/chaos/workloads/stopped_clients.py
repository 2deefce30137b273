"""A guarded register whose clients are processes that are stopped (SIGSTOP) for longer than their lease.

With a fence at the register no update is lost; without one, a client that wakes up writes over what others
wrote meanwhile. The lock alone cannot prevent that: it shows why there are fencing tokens.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, ClassVar, Final

import msgspec

from lab.chaos.lab import Lab, Workload
from lab.chaos.targets.target import LabFailure
from lab.chaos.workloads.fencing import Register
from lab.chaos.workloads.register_process import Orders
from scripts.local_cluster import node_environment

TTL_MS: Final = 400
WAIT_MS: Final = 2000
BETWEEN_S: Final = (0.2, 0.5)
"""The time between two stops."""
STOPPED_S: Final = (0.6, 1.0)
"""For how long a client is stopped: longer than its lease."""
IDS_EACH: Final = 10_000_000
END_S: Final = 30.0


class RegisterServer:
    """Serves a register to processes: a line of JSON for each question and each answer."""

    def __init__(self, *, is_fenced: bool) -> None:
        self._register = Register(is_fenced=is_fenced)
        self._readers: asyncio.Queue[int] = asyncio.Queue(1)

    async def next_reader(self) -> int:
        """Wait until a client reads; return its number. It is about to write."""
        while not self._readers.empty():
            self._readers.get_nowait()
        return await self._readers.get()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client until it goes."""
        try:
            while line := await reader.readline():
                writer.write(json.dumps(self.answer(json.loads(line))).encode() + b"\n")
        except ConnectionError:
            return  # a client that was killed
        finally:
            writer.close()

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one question, as JSON objects."""
        register = self._register
        if asked["kind"] == "register-read":
            value = register.read(asked["token"])
            if value is not None and not self._readers.full():
                self._readers.put_nowait(asked["client"])
            return {"is_ok": value is not None, "value": value}
        before = register.value
        return {"is_ok": register.write(asked["value"], asked["token"]), "before": before}


class StoppedClients(Workload):
    """Processes increment a register; one after the other is stopped between its read and its write."""

    name: ClassVar[str] = "stopped-clients"
    clients: ClassVar[int] = 3
    is_fenced: ClassVar[bool] = True

    async def run(self, lab: Lab, until_s: float) -> None:
        """Run register and clients. Raises LabFailure when a client has failed by itself."""
        chance = lab.random(self.name, "stops")
        register = RegisterServer(is_fenced=self.is_fenced)
        async with await asyncio.start_server(register.serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            async with self._processes(lab, until_s, port) as clients:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(until_s - time.monotonic()):
                        while True:
                            number = await register.next_reader()
                            await _stop(clients[number], chance.uniform(*STOPPED_S))
                            await asyncio.sleep(chance.uniform(*BETWEEN_S))
                codes = await asyncio.wait_for(
                    asyncio.gather(*(client.wait() for client in clients)), END_S + lab.patience_s
                )
        if any(codes):
            raise LabFailure(f"client processes have failed: exit codes {codes}")

    @contextlib.asynccontextmanager
    async def _processes(
        self, lab: Lab, until_s: float, port: int
    ) -> AsyncIterator[list[asyncio.subprocess.Process]]:
        """Start the clients; none is left when this ends."""
        clients: list[asyncio.subprocess.Process] = []
        try:
            for number in range(self.clients):
                orders = Orders(
                    nodes=dict(lab.nodes),
                    history=str(lab.history.path.resolve()),
                    id_base=(number + 1) * IDS_EACH,
                    seed=lab.seed,
                    prefix=lab.prefix,
                    workload=self.name,
                    number=number,
                    register_port=port,
                    is_fenced=self.is_fenced,
                    ttl_ms=TTL_MS,
                    wait_ms=WAIT_MS,
                    until_s=until_s,
                )
                argv = [sys.executable, "-P", "-m", "lab.chaos.workloads.register_process"]
                text = msgspec.json.encode(orders).decode()
                clients.append(
                    await asyncio.create_subprocess_exec(
                        *argv, text, stdin=asyncio.subprocess.DEVNULL, env=node_environment()
                    )
                )
            yield clients
        finally:
            for client in clients:
                with contextlib.suppress(ProcessLookupError):
                    client.kill()
                await client.wait()


class StoppedClientsWithoutFence(StoppedClients):
    """The same with a register that takes every write: it loses updates. No promise of a lock forbids it."""

    name: ClassVar[str] = "stopped-clients-without-fence"
    is_fenced: ClassVar[bool] = False


async def _stop(client: asyncio.subprocess.Process, seconds: float) -> None:
    """Stop a process for a while, if it is there: its number is its own until `wait` has returned."""
    if client.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(client.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(seconds)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(client.pid, signal.SIGCONT)
