"""The switch: makes the namespaces of a lab, and passes all packets between them. A process of its own.

The lab starts it with one end of a socket pair, `python -m lab.chaos.netns.switch FD`, and sends the
names and addresses of the ends. The first answer brings a descriptor of each namespace. When the lab ends,
however it ends, the socket closes and the switch ends, too: no device, no namespace stays.

One thread, one epoll: every packet is one read, one look at its link, and one write.
"""

import contextlib
import heapq
import itertools
import os
import random
import resource
import select
import socket
import sys
import time
from typing import Final

import msgspec

from lab.chaos.netns.links import HEADER_BYTES, PLAIN, Link, Rule, together
from lab.chaos.netns.namespaces import MTU_BYTES, new_namespace

BURST: Final = 64
"""How many packets of one end are read before the other ends have their turn."""
MESSAGE_BYTES_MAX: Final = 1 << 17
NICENESS: Final = -10
"""A network does not become slow because the nodes' processors are busy."""
IPV4: Final = 4


class Open(msgspec.Struct, frozen=True, tag="open"):
    """Make the ends: an address (10.77.0.1) by the name of each. The first message; `seed` makes chance."""

    addresses: dict[str, str]
    seed: int = 0


class Change(msgspec.Struct, frozen=True, tag="change"):
    """From now on these links (source, destination) obey this rule, beside the rules under other keys."""

    key: str
    links: list[tuple[str, str]]
    rule: Rule


class Clear(msgspec.Struct, frozen=True, tag="clear"):
    """The rules under this key are over; all rules, if it is empty. It need not be known."""

    key: str = ""


class Count(msgspec.Struct, frozen=True, tag="count"):
    """Ask how many packets each link has got and dropped."""


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the switch says to each message. `counts` are (source, destination, sent, dropped)."""

    failure: str = ""
    counts: list[tuple[str, str, int, int]] = []


Message = Open | Change | Clear | Count


class Switch:
    """All ends and the links between them."""

    def __init__(self, devices: dict[str, int], addresses: dict[str, str], seed: int) -> None:
        """`devices` are the TUN descriptors by name."""
        self._links = {
            (source, destination): Link(random.Random(f"{seed}/{source}/{destination}"))
            for source, destination in itertools.permutations(devices, 2)
        }
        ends = {name: socket.inet_aton(address) for name, address in addresses.items()}
        self._ways = {
            ends[source] + ends[destination]: (link, devices[destination])
            for (source, destination), link in self._links.items()
        }
        """Link and device by both addresses as they stand in a packet: the source, then the destination."""
        self._rules: dict[str, Change] = {}
        self._under_way: list[tuple[float, int, bytes, Link, int]] = []
        self._numbers = itertools.count()

    def receive(self, device: int) -> None:
        """Take what one end has sent."""
        now_s = time.monotonic()
        for _ in range(BURST):
            try:
                packet = os.read(device, MTU_BYTES)
            except BlockingIOError:
                return
            # Other packets (of IPv6, or to nobody) have nowhere to go.
            way = self._ways.get(packet[12:HEADER_BYTES]) if packet[0] >> 4 == IPV4 else None
            if way is None:
                continue
            link, out = way
            if link.rule is PLAIN:
                link.sent += 1
                _deliver(out, packet)
                continue
            for due_s, outgoing in link.send(packet, now_s):
                if due_s <= now_s:
                    _deliver(out, outgoing)
                else:
                    heapq.heappush(self._under_way, (due_s, next(self._numbers), outgoing, link, out))

    def deliver_due(self) -> float | None:
        """Hand out what has arrived; return in how many seconds the next packet does, None if none is due."""
        now_s = time.monotonic()
        while self._under_way and self._under_way[0][0] <= now_s:
            _, _, packet, link, out = heapq.heappop(self._under_way)
            if not link.drops_on_arrival():
                _deliver(out, packet)
        return self._under_way[0][0] - now_s if self._under_way else None

    def obey(self, message: Message) -> Answer:
        """Carry out what the lab wants."""
        match message:
            case Change():
                unknown = [link for link in message.links if link not in self._links]
                if unknown:
                    return Answer(failure=f"there is no link {unknown[0]}")
                self._rules[message.key] = message
            case Clear(key=""):
                self._rules.clear()
            case Clear():
                self._rules.pop(message.key, None)
            case Count():
                return Answer(counts=[(*ends, link.sent, link.dropped) for ends, link in self._links.items()])
            case Open():
                return Answer(failure="the switch is open already")
        self._apply_rules()
        return Answer()

    def _apply_rules(self) -> None:
        """Give each link what all rules together make of it."""
        of_links: dict[tuple[str, str], list[Rule]] = {}
        for change in self._rules.values():
            for ends in change.links:
                of_links.setdefault(ends, []).append(change.rule)
        for ends, link in self._links.items():
            rule = together(of_links[ends]) if ends in of_links else PLAIN
            if rule != link.rule:
                link.rule = rule


def _deliver(device: int, packet: bytes) -> None:
    """Give a packet to the kernel of its receiver, which may drop it, as every receiver may."""
    with contextlib.suppress(BlockingIOError):
        os.write(device, packet)


def serve(control: socket.socket) -> None:
    """Make the ends, then pass packets until the other end of `control` is closed."""
    encode, decoder = msgspec.json.encode, msgspec.json.Decoder(Message)
    first = decoder.decode(control.recv(MESSAGE_BYTES_MAX))
    assert isinstance(first, Open), "the first message opens the switch"
    namespaces, devices = [], {}  # both stay open: a device does not outlive its namespace
    try:
        for name, address in first.addresses.items():
            namespace, devices[name] = new_namespace(address)
            namespaces.append(namespace)
    except OSError as error:
        control.send(encode(Answer(failure=f"no network namespace could be made: {error}")))
        return
    switch = Switch(devices, first.addresses, first.seed)
    socket.send_fds(control, [encode(Answer())], namespaces)
    poll = select.epoll()
    poll.register(control, select.EPOLLIN)
    for device in devices.values():
        poll.register(device, select.EPOLLIN)
    timeout_s: float | None = None
    while True:
        for descriptor, _ in poll.poll(timeout_s):
            if descriptor != control.fileno():
                switch.receive(descriptor)
            elif data := control.recv(MESSAGE_BYTES_MAX):
                control.send(encode(switch.obey(decoder.decode(data))))
            else:
                return
        timeout_s = switch.deliver_due()


def main() -> None:
    """Serve the lab at the other end of the descriptor in the command line."""
    with contextlib.suppress(OSError):  # not allowed: then it shares the processors as everybody
        os.setpriority(os.PRIO_PROCESS, 0, NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(sys.argv[1])) as control, contextlib.suppress(ConnectionError):
        serve(control)


if __name__ == "__main__":
    main()
