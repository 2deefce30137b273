"""A lean client of HTTP/1.1 with JSON: one keep-alive connection, one request at a time."""

import abc
from typing import Final

from lab.peers.closed_loop import Worker
from lab.peers.connection import Address, Answered, Connection

_END_OF_HEAD: Final = b"\r\n\r\n"
_LENGTH: Final = b"content-length:"
_STATUS: Final = slice(9, 12)
_OK: Final = b"200"


def post(address: Address, path: str) -> bytes:
    """Return the head of a request, up to the length of its body."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: {address.netloc}\r\n"
        "Content-Type: application/json\r\nContent-Length: "
    ).encode()


class Http1(Connection, abc.ABC):
    """A connection to one node. Every answer must have a Content-Length, as those of the systems here do."""

    def ask(self, worker: Worker, head: bytes, body: bytes, answered: Answered) -> None:
        """Send one request; `answered` gets the body of an answer with the status 200."""
        self.due.append((worker, answered))
        self.put(b"%b%d\r\n\r\n%b" % (head, len(body), body))

    def take(self, data: bytes) -> int:
        """Read whole answers."""
        used = 0
        while (end_of_head := data.find(_END_OF_HEAD, used)) >= 0:
            head = data[used:end_of_head].lower()
            length_at = head.find(_LENGTH)
            assert length_at >= 0, f"no Content-Length: {head.decode(errors='replace')}"
            length = int(head[length_at + len(_LENGTH) :].split(b"\r\n", 1)[0])
            begin = end_of_head + len(_END_OF_HEAD)
            if len(data) < begin + length:
                break
            used = begin + length
            worker, answered = self.due.popleft()
            body = data[begin:used]
            if head[_STATUS] == _OK:
                answered(worker, body)
            else:
                worker.failed(f"{head[_STATUS].decode()} {body[:300].decode(errors='replace')}")
        return used
