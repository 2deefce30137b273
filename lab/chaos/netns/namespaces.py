"""Network namespaces without names: they live as long as a process or a descriptor holds them. Linux, root.

A thread enters a namespace for a moment; a socket that was made meanwhile stays in it.
"""

import contextlib
import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from typing import Final

CLONE_NEWNET: Final = 0x40000000
HERE: Final = "/proc/thread-self/ns/net"
TUN: Final = "/dev/net/tun"
DEVICE: Final = "lab0"
MTU_BYTES: Final = 1500
NETMASK: Final = "255.255.255.0"

# From linux/if_tun.h, linux/if.h and linux/sockios.h; the library has no names for them.
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_SIOCSIFADDR: Final = 0x8916
_SIOCSIFNETMASK: Final = 0x891C
_SIOCSIFMTU: Final = 0x8922
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP_RUNNING: Final = 0x41

_libc = ctypes.CDLL(None, use_errno=True)


def new_namespace(address: str) -> tuple[int, int]:
    """Make a namespace whose only way out is a TUN device with `address`.

    Returns the descriptors of the namespace and of the device, which does not block. Raises OSError; needs
    root. The calling thread is where it was.
    """
    with _returning():
        _check(_libc.unshare(CLONE_NEWNET))
        device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN_NO_PI))
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
                _up(control, "lo")
                fcntl.ioctl(control, _SIOCSIFADDR, _address_request(address))
                fcntl.ioctl(control, _SIOCSIFNETMASK, _address_request(NETMASK))
                fcntl.ioctl(control, _SIOCSIFMTU, struct.pack("16si20x", DEVICE.encode(), MTU_BYTES))
                _up(control, DEVICE)
            return os.open(HERE, os.O_RDONLY | os.O_CLOEXEC), device
        except BaseException:
            os.close(device)
            raise


def socket_in(
    namespace: int, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, protocol: int = 0
) -> socket.socket:
    """Return a new socket that sends and listens in a namespace. From any thread. Raises OSError."""
    with _returning():
        _check(_libc.setns(namespace, CLONE_NEWNET))
        return socket.socket(family, kind, protocol)


@contextlib.contextmanager
def _returning() -> Iterator[None]:
    """Bring the thread back to the namespace that it is in."""
    home = os.open(HERE, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield
    finally:
        _check(_libc.setns(home, CLONE_NEWNET))
        os.close(home)


def _check(result: int) -> None:
    """Raise OSError when a system call has failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _up(control: socket.socket, device: str) -> None:
    """Switch a device on."""
    fcntl.ioctl(control, _SIOCSIFFLAGS, struct.pack("16sh22x", device.encode(), _IFF_UP_RUNNING))


def _address_request(address: str) -> bytes:
    """Return a `struct ifreq` with an IPv4 address for the TUN device."""
    return struct.pack("16sHH4s16x", DEVICE.encode(), socket.AF_INET, 0, socket.inet_aton(address))
