"""What the product takes from its machine, taken from the simulated one while a world runs.

The modules of the product and of the Raft library see stand-ins for `time`, `random`, `secrets` and `os`.
What a stand-in does not know it refuses, and a module of ours that still sees the real thing ends the run:
nothing real gets in unseen.
"""

import contextlib
import importlib
import inspect
import pkgutil
import random as real_random
import secrets as real_secrets
import sys
import time as real_time
from collections.abc import Iterator
from random import Random
from typing import Any, Final, NoReturn, Protocol

import pysyncobj.syncobj

import cluster
import cluster.consensus.library
import lockapi
import lockstate
import redis_api

PACKAGES: Final = (cluster, lockstate, lockapi, redis_api)
"""Those of ours that run in a simulated world."""
_LEFT_ALONE: Final = {"cluster.storage.files", "cluster.storage.forked_child"}
"""They are replaced as a whole."""
_REPLACED: Final = (real_time, real_random, real_secrets, sys.modules["os"])
"""The modules that have a stand-in."""
_REAL: Final = {id(module): module.__name__ for module in _REPLACED} | {
    id(value): f"{module.__name__}.{name}"
    for module in _REPLACED
    for name, value in vars(module).items()
    if name in getattr(module, "__all__", dir(module)) and inspect.isroutine(value)
}
"""What no module of ours may see while a world runs, as `time` or as `from time import monotonic`."""


class Machine(Protocol):
    """Where a process of the world runs."""

    def monotonic_us(self) -> int:
        """Return the monotonic clock of the process that runs now."""

    def wall_s(self) -> float:
        """Return its wall clock."""

    def pid(self) -> int:
        """Return its pid."""


class _Refusing:
    """Base of all stand-ins."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, attribute: str) -> NoReturn:
        raise AssertionError(f"{self.__dict__['_name']}.{attribute} has no simulated twin: give it one")


class _Time(_Refusing):
    def __init__(self, machine: Machine) -> None:
        super().__init__("time")
        self.__dict__["_machine"] = machine

    def monotonic(self) -> float:
        us: int = self.__dict__["_machine"].monotonic_us()
        return us / 1_000_000

    perf_counter = monotonic

    def monotonic_ns(self) -> int:
        return int(self.__dict__["_machine"].monotonic_us()) * 1000

    perf_counter_ns = monotonic_ns

    def time(self) -> float:
        return float(self.__dict__["_machine"].wall_s())

    def thread_time(self) -> float:
        return 0.0  # what is computed takes no simulated time

    def time_ns(self) -> int:
        return int(self.time() * 1_000_000_000)


class _Random(_Refusing):
    def __init__(self, source: Random) -> None:
        super().__init__("random")
        self.__dict__["random"] = source.random
        self.__dict__["choice"] = source.choice
        self.__dict__["uniform"] = source.uniform
        self.__dict__["Random"] = Random


class _Secrets(_Refusing):
    def __init__(self, source: Random) -> None:
        super().__init__("secrets")
        self.__dict__["_source"] = source

    def token_bytes(self, size_bytes: int) -> bytes:
        return bytes(self.__dict__["_source"].randbytes(size_bytes))

    def randbelow(self, limit: int) -> int:
        return int(self.__dict__["_source"].randrange(limit))

    def token_hex(self, size_bytes: int) -> str:
        return self.token_bytes(size_bytes).hex()


class _Os(_Refusing):
    def __init__(self, machine: Machine, source: Random) -> None:
        super().__init__("os")
        self.__dict__["getpid"] = machine.pid
        self.__dict__["urandom"] = source.randbytes


@contextlib.contextmanager
def simulated(machine: Machine, source: Random) -> Iterator[None]:
    """Let the product run on `machine` for a while. Worlds do not overlap."""
    stand_ins: dict[int, Any] = {
        id(real_time): _Time(machine),
        id(real_random): _Random(source),
        id(real_secrets): _Secrets(source),
        id(sys.modules["os"]): _Os(machine, source),
        id(pysyncobj.syncobj.monotonicTime): _Time(machine).monotonic,
    }
    before: list[tuple[Any, str, Any]] = []
    try:
        for module in _modules():
            for name, value in list(vars(module).items()):
                if id(value) in stand_ins:
                    before.append((module, name, value))
                    setattr(module, name, stand_ins[id(value)])
        _refuse_what_is_real()
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _modules() -> Iterator[Any]:
    """Yield every module whose surroundings are simulated, in all rooms."""
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name not in _LEFT_ALONE:
                yield importlib.import_module(found.name)
    yield pysyncobj.syncobj


def _refuse_what_is_real() -> None:
    """Raise AssertionError if a loaded module of ours sees a real clock, disk or random number."""
    for module_name, module in list(sys.modules.items()):
        is_ours = module_name.partition(".")[0] in {package.__name__ for package in PACKAGES}
        if not is_ours or module_name in _LEFT_ALONE:
            continue
        for name, value in vars(module).items():
            if id(value) in _REAL:
                raise AssertionError(
                    f"{module_name}.{name} is the real {_REAL[id(value)]} in a simulated world: import the"
                    " module by its name, and let patches.py find it"
                )
