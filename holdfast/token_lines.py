"""The lines of a tokens file: who may call, by what they prove it, and what they may do where. No I/O.

The node reads these lines and `holdfast token` writes them: both use this file. One line is one principal:

    worker-7  sha256:9f86d0…a08  read,acquire@jobs read@config until=2027-01-31
    ops       sha256:60303a…e75  read,acquire,force,admin,metrics

A name; what proves it, one or more with commas between them (two while a token is being exchanged); rights,
each with the prefix in which they count, or without one for everything; and perhaps an end. Empty lines and
those that begin with # say nothing. White space, `,`, `*` and % in prefixes and certificates are
percent-encoded.

A token has 256 random bits, so nobody can guess it, and one fast hash is enough: slow ones are for secrets
that people choose, and would let strangers keep the node busy. The hash only keeps those that read the file
from being one of its principals.
"""

import datetime as dt
import enum
import hashlib
import re
import urllib.parse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

TOKEN_PREFIX: Final = "hft_"  # noqa: S105 - what tokens begin with, for people and for scanners of leaks
TOKEN_BYTES: Final = 32
"""Random bytes of a token."""
TOKEN_CHARS_MIN, TOKEN_CHARS_MAX = 32, 256
"""Characters of a token, from wherever it comes."""
LINES_MAX: Final = 100_000
BYTES_MAX: Final = 64 << 20
"""Lines and bytes of a file, at most."""
RULES_MAX: Final = 64
"""Prefixes of one principal, at most."""
_TOLD_MAX: Final = 5
"""Mistakes that are told at once."""
_PREFIX_BYTES_MAX: Final = 512
"""Bytes of a prefix: no name is longer."""

_HASH: Final = "sha256:"
_CERTIFICATE: Final = "cert:"
_UNTIL: Final = "until="
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,62}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_TOKEN: Final = re.compile(rf"[!-~]{{{TOKEN_CHARS_MIN},{TOKEN_CHARS_MAX}}}")
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


class Right(enum.StrEnum):
    """What somebody may do. The value is the word used in files and answers. None includes another one."""

    READ = "read"
    """See what is there, who holds it and who waits, and hear of changes."""
    ACQUIRE = "acquire"
    """Acquire, and change what is not somebody else's: cells, rate limits, fences."""
    FORCE = "force"
    """End what others hold."""
    ADMIN = "admin"
    """Change the members, and who leads; with a prefix only the namespaces at and below it."""
    METRICS = "metrics"
    """Read the metrics."""

    __hash__ = str.__hash__  # that of Enum is a Python function, and slow


ON_THE_WHOLE: Final = frozenset({Right.METRICS})
"""Rights that are about nothing but the whole cluster, so no prefix goes with them."""


class LinesWrong(ValueError):
    """The lines cannot be used. The message names them; it quotes no token and no hash."""


@dataclass(frozen=True, slots=True)
class Line:
    """One principal. `rights` are by prefix, "" for everything; `ends_at_s` is in seconds since 1970."""

    name: str
    digests: tuple[bytes, ...] = field(repr=False, default=())
    certificates: tuple[str, ...] = ()
    rights: Mapping[str, frozenset[Right]] = field(default_factory=dict)
    ends_at_s: int | None = None

    def idle_prefixes(self) -> list[str]:
        """Return the prefixes that take all rights away where no shorter one gives any."""
        return [
            prefix
            for prefix, rights in sorted(self.rights.items())
            if prefix and not (rights or self._around(prefix))
        ]

    def _around(self, prefix: str) -> frozenset[Right]:
        """Return the rights that count around a prefix: those of the longest shorter one that covers it."""
        while prefix:
            prefix = prefix.rpartition("/")[0]
            if prefix in self.rights:
                return self.rights[prefix]
        return frozenset()


def digest(token: bytes) -> bytes:
    """Return the hash of a token."""
    return hashlib.sha256(token).digest()


def is_token(text: str) -> bool:
    """Whether a text can be a token: 32 to 256 visible ASCII characters."""
    return _TOKEN.fullmatch(text) is not None


def parse(content: bytes) -> tuple[Line, ...]:
    """Read a whole file: all of it, or nothing. Raises LinesWrong, which names the first wrong lines.

    A last line without an end is one of them: of a line that was cut, fewer exceptions would be left.
    """
    rows = _rows(content)
    found: list[Line] = []
    wrong: list[str] = []
    seen: dict[object, int] = {}
    for number, row in enumerate(rows, 1):
        words = row.split()
        if not words or words[0].startswith("#"):
            continue
        try:
            line = _line(words)
            _check_new(line, seen, number)
            found.append(line)
        except ValueError as error:
            wrong.append(f"line {number}: {error}")
            if len(wrong) == _TOLD_MAX:
                break
    if wrong:
        raise LinesWrong("; ".join(wrong))
    _check_end(rows)
    if not found:
        raise LinesWrong("it has no line: nobody could call. Make one with `holdfast token new`")
    return tuple(found)


def _rows(content: bytes) -> list[str]:
    """Return the lines of a file. Raises LinesWrong."""
    if len(content) > BYTES_MAX:
        raise LinesWrong(f"more than {BYTES_MAX} bytes")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise LinesWrong(f"line {content[: error.start].count(10) + 1}: is not UTF-8") from None
    rows = text.split("\n")
    if len(rows) > LINES_MAX:
        raise LinesWrong(f"{len(rows)} lines; at most {LINES_MAX} are allowed")
    return rows


def _check_end(rows: list[str]) -> None:
    if rows[-1].strip():
        raise LinesWrong(f"line {len(rows)}: has no newline at its end: the file may be half written")


def _check_new(line: Line, seen: dict[object, int], number: int) -> None:
    """Refuse what an earlier line has: who somebody is must not depend on the order of lines."""
    for what, key in (
        (f"name {line.name!r}", ("name", line.name)),
        *(("hash", ("hash", one)) for one in line.digests),
        *((f"certificate {one!r}", ("certificate", one)) for one in line.certificates),
    ):
        if key in seen:
            raise ValueError(f"{what}: stands in line {seen[key]} already")
        seen[key] = number


def _line(words: list[str]) -> Line:
    """Read one line. Raises ValueError."""
    if not _NAME.fullmatch(words[0]):
        raise ValueError(
            "name: the first word must be 1 to 63 letters, digits, '.', '_', '@', '+' or '-', and begin with"
            " a letter or digit"
        )
    if words[0].startswith(TOKEN_PREFIX):
        raise ValueError(
            "name: this is a token, which must not stand here; `holdfast token hash` makes a line"
        )
    if len(words) < 2:  # noqa: PLR2004 - a name and what proves it
        raise ValueError(f"{words[0]}: needs a hash, as `holdfast token new` writes it, and rights")
    digests, certificates = _proofs(words[1])
    rights: dict[str, frozenset[Right]] = {}
    ends_at_s: int | None = None
    for word in words[2:]:
        if word.startswith(_UNTIL):
            if ends_at_s is not None:
                raise ValueError("until: is given twice")
            ends_at_s = parse_end(word.removeprefix(_UNTIL))
        else:
            names, at, prefix = word.partition("@")
            prefix = _prefix(prefix) if at else ""
            if prefix in rights:
                raise ValueError(f"rights for {prefix or 'everything'!r}: are given twice")
            rights[prefix] = _rights(names, prefix)
    if not rights:
        raise ValueError(f"{words[0]}: has no rights: such as read,acquire@jobs, or none@ to lock it out")
    if len(rights) > RULES_MAX:
        raise ValueError(f"{words[0]}: {len(rights)} prefixes; at most {RULES_MAX} are allowed")
    return Line(words[0], digests, certificates, rights, ends_at_s)


def _proofs(word: str) -> tuple[tuple[bytes, ...], tuple[str, ...]]:
    """Read hashes and certificates. Raises ValueError, which quotes nothing: it may be a token."""
    digests: list[bytes] = []
    certificates: list[str] = []
    for proof in word.split(","):
        if proof.startswith(_CERTIFICATE) and len(proof) > len(_CERTIFICATE):
            certificates.append(_unquoted("certificate", proof.removeprefix(_CERTIFICATE)))
        elif proof.startswith(_HASH) and _DIGEST.fullmatch(proof.removeprefix(_HASH)):
            digests.append(bytes.fromhex(proof.removeprefix(_HASH)))
        else:
            raise ValueError(
                "the second word must be hashes (sha256: and 64 hexadecimal digits) or certificates (cert:"
                " and a common name or URI), with commas between them; `holdfast token hash` makes a hash"
                " of a token"
            )
    return tuple(digests), tuple(certificates)


def _rights(names: str, prefix: str) -> frozenset[Right]:
    """Read rights. Raises ValueError."""
    if names == "none":
        return frozenset()
    found: set[Right] = set()
    for name in names.split(","):
        try:
            right = Right(name)
        except ValueError:
            raise ValueError(f"right {_shown(name)}: must be one of {', '.join(Right)}, or none") from None
        if prefix and right in ON_THE_WHOLE:
            raise ValueError(f"right {right}: is about the whole cluster: give it without @{_shown(prefix)}")
        found.add(right)
    return frozenset(found)


def _prefix(text: str) -> str:
    """Read a prefix: whole parts of names. Raises ValueError."""
    if "," in text:
        raise ValueError(
            f"prefix {_shown(text)}: rights of another prefix are another word, such as read@a read@b; in a"
            " name, ',' is written %2C"
        )
    if "*" in text:
        raise ValueError(
            f"prefix {_shown(text)}: a prefix covers all below it without '*'; in a name, it is written %2A"
        )
    prefix = _unquoted("prefix", text)
    if not prefix:
        return ""
    problem = ""
    if prefix.endswith("/"):
        problem = (
            f"write it without the '/' at its end: {_shown(prefix.rstrip('/'))} covers all below it, too"
        )
    elif prefix.startswith("/") or "//" in prefix:
        problem = "no part between two '/' may be empty"
    elif not {".", ".."}.isdisjoint(prefix.split("/")):
        problem = "no part may be '.' or '..'"
    elif not prefix.isprintable():
        problem = "only printable characters are allowed"
    elif len(prefix.encode("utf-8", "surrogatepass")) > _PREFIX_BYTES_MAX:
        problem = f"at most {_PREFIX_BYTES_MAX} bytes are allowed"
    if problem:
        raise ValueError(f"prefix {_shown(prefix)}: {problem}")
    return prefix


def _unquoted(what: str, text: str) -> str:
    """Read percent-encoded text. Raises ValueError."""
    if _ESCAPE.search(text):
        raise ValueError(f"{what}: a % must be followed by two hexadecimal digits; % itself is written %25")
    try:
        return urllib.parse.unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"{what}: is not valid UTF-8") from None


def parse_end(text: str) -> int:
    """Read an end: a moment with its zone, or a day of UTC, which is the last one. Raises ValueError."""
    problem = ValueError(f"until {_shown(text)}: must be such as 2027-01-31 or 2027-01-31T12:00:00Z")
    try:
        if "T" not in text:
            last = dt.date.fromisoformat(text)
            end = dt.datetime(last.year, last.month, last.day, tzinfo=dt.UTC)
            return int((end + dt.timedelta(days=1)).timestamp())
        moment = dt.datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        raise problem from None
    if moment.tzinfo is None:
        raise problem
    return int(moment.timestamp())


def _shown(text: str) -> str:
    """Return a word for a message. One that may be a token, or a piece of it, is not shown."""
    is_secret = TOKEN_PREFIX in text or len(text) >= TOKEN_CHARS_MIN
    return "(not shown: it may be a token)" if is_secret else repr(text)


def written(line: Line) -> str:
    """Return a line as `parse` reads it."""
    return " ".join(_words(line))


def _words(line: Line) -> Iterator[str]:
    yield line.name
    proofs = [_HASH + one.hex() for one in line.digests]
    yield ",".join([*proofs, *(_CERTIFICATE + _quoted(one) for one in line.certificates)])
    for prefix, rights in line.rights.items():
        names = ",".join([right for right in Right if right in rights]) or "none"
        yield f"{names}@{_quoted(prefix)}" if prefix else names
    if line.ends_at_s is not None:
        moment = dt.datetime.fromtimestamp(line.ends_at_s, dt.UTC)
        yield f"{_UNTIL}{moment:%Y-%m-%dT%H:%M:%SZ}"


def _quoted(text: str) -> str:
    """Encode what would end a word, or begin another proof."""
    return "".join([urllib.parse.quote(one) if one.isspace() or one in "%,*" else one for one in text])
