"""The lines of a tokens file: what they mean, and what is said of wrong ones."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import token_lines
from holdfast.token_lines import Line, LinesWrong, Right

HASH, OTHER = "sha256:" + "0a" * 32, "sha256:" + "0b" * 32
CANARY = "hft_canaryCANARYcanaryCANARYcanaryCANARY"


def one(rest: str) -> Line:
    """Return the only line of a file."""
    (line,) = token_lines.parse(f"worker {rest}\n".encode())
    return line


def wrong(content: str | bytes) -> str:
    """Return what is said of a file that cannot be used."""
    with pytest.raises(LinesWrong) as raised:
        token_lines.parse(content if isinstance(content, bytes) else content.encode())
    return str(raised.value)


def test_a_line_is_a_principal() -> None:
    """Name, what proves it, rights by prefix, and an end."""
    line = one(f"{HASH},{OTHER},cert:spiffe://a/b read,acquire@jobs read none@jobs/own")
    assert line.digests == (b"\x0a" * 32, b"\x0b" * 32)
    assert line.certificates == ("spiffe://a/b",)
    assert line.rights == {
        "jobs": {Right.READ, Right.ACQUIRE},
        "": {Right.READ},
        "jobs/own": frozenset(),
    }
    assert line.ends_at_s is None


@pytest.mark.parametrize("cut", [1, 12, 30])
def test_a_file_that_was_cut_is_refused(cut: int) -> None:
    """A line that lacks its end lacks exceptions, or its last day: it would give more than the whole one."""
    whole = f"a {HASH} read,acquire@jobs none@jobs/payroll until=2030-01-01\n"
    assert len(token_lines.parse(whole.encode())) == 1
    assert "half written" in wrong(whole[:-cut]) or "until" in wrong(whole[:-cut])
    assert "half written" in wrong(f"a {HASH} read,acquire")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_files_of_other_systems_are_read(mark: bytes, end: str) -> None:
    """With CRLF, with a byte order mark, with empty lines, comments and tabs."""
    text = end.join(["# who", "", f"a {HASH} read", f"\tb\t{OTHER}  acquire@x%20y%25 ", ""])
    first, second = token_lines.parse(mark + text.encode())
    assert (first.name, second.name) == ("a", "b")
    assert second.rights == {"x y%": {Right.ACQUIRE}}


@pytest.mark.parametrize(
    ("text", "moment"),
    [("1970-01-02", 2 * 86_400), ("1970-01-02T00:00:00Z", 86_400), ("1970-01-02T01:00:00+01:00", 86_400)],
)
def test_an_end_is_a_day_or_a_moment(text: str, moment: int) -> None:
    """A day is the last one, by UTC. One that is over is read: its line is a warning, not a mistake."""
    assert one(f"{HASH} read until={text}").ends_at_s == moment < time.time()


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", "worker: needs a hash"),
        (HASH, "worker: has no rights"),
        ("sha256:abc read", "the second word must be hashes"),
        (f"{HASH.upper()} read", "the second word must be hashes"),
        (f"{HASH}, read", "the second word must be hashes"),
        ("cert: read", "the second word must be hashes"),
        (f"{HASH} write", "right 'write': must be one of read, acquire, force, admin, metrics, or none"),
        (f"{HASH} read,,force", "right ''"),
        (f"{HASH} read@jobs/", "prefix 'jobs/': write it without the '/' at its end: 'jobs' covers"),
        (f"{HASH} read@/jobs", "prefix '/jobs': no part between two '/' may be empty"),
        (f"{HASH} read@a//b", "no part between two '/' may be empty"),
        (f"{HASH} read@a/../b", "no part may be '.' or '..'"),
        (f"{HASH} read@a%00", "only printable characters are allowed"),
        (f"{HASH} read none@secret,payroll", "rights of another prefix are another word"),
        (f"{HASH} read@jobs/*", "prefix 'jobs/*': a prefix covers all below it without '*'"),
        (f"{HASH} read@a%zz", "prefix: a % must be followed by two hexadecimal digits"),
        (f"{HASH} read@a%ff", "prefix: is not valid UTF-8"),
        (f"{HASH} read@{'/'.join('a' * 300)}", "prefix (not shown"),
        (f"{HASH} metrics@jobs", "right metrics: is about the whole cluster: give it without @'jobs'"),
        (f"{HASH} read,metrics@jobs", "right metrics: is about the whole cluster"),
        (f"{HASH} read@a acquire@a", "rights for 'a': are given twice"),
        (f"{HASH} read acquire@", "rights for 'everything': are given twice"),
        (f"{HASH} read until=tomorrow", "until 'tomorrow': must be such as 2027-01-31"),
        (f"{HASH} read until=2027-01-31T00:00:00", "until '2027-01-31T00:00:00': must be such as"),
        (f"{HASH} read until=2027-01-31 until=2027-01-31", "until: is given twice"),
        (f"{HASH} {' '.join(f'read@p{n}' for n in range(65))}", "65 prefixes; at most 64 are allowed"),
    ],
)
def test_a_wrong_line_is_named(rest: str, said: str) -> None:
    """With its number, and in the words of whoever wrote it."""
    message = wrong(f"# first\nworker {rest}\n")
    assert message.startswith("line 2: ")
    assert said in message


def test_nobody_stands_in_two_lines() -> None:
    """Neither a name, nor a hash, nor a certificate: both lines are named."""
    assert wrong(f"a {HASH} read\na {OTHER} read") == "line 2: name 'a': stands in line 1 already"
    assert wrong(f"a {HASH} read\nb {OTHER},{HASH} read") == "line 2: hash: stands in line 1 already"
    assert wrong(f"a {HASH},{HASH} read") == "line 1: hash: stands in line 1 already"
    assert wrong("a cert:x read\nb cert:x read") == "line 2: certificate 'x': stands in line 1 already"


@pytest.mark.parametrize("content", [b"", b"\n\r\n", b"# nobody\n", b"\xef\xbb\xbf"])
def test_a_file_without_a_line_lets_nobody_in(content: bytes) -> None:
    """That is hardly intended: half a file, perhaps."""
    assert "it has no line: nobody could call" in wrong(content)


def test_the_first_mistakes_are_told_together() -> None:
    """Five of them; a file is not corrected line by line."""
    message = wrong("\n".join(f"w{n} {n}" for n in range(10)))
    assert message.count("line ") == 5


@pytest.mark.parametrize(
    "content",
    [
        f"{CANARY} {HASH} read",
        f"a {CANARY} read",
        f"a sha256:{CANARY} read",
        f"a {HASH} {CANARY}",
        f"a {HASH} read@{CANARY}/",
        f"a {HASH} metrics@{CANARY}",
        f"a {HASH} read until={CANARY}",
        f"a {HASH} read,{CANARY[4:]}",
        f"a {HASH} read \xff{CANARY}".encode("latin-1"),
    ],
)
def test_a_token_in_the_wrong_place_is_not_quoted(content: str | bytes) -> None:
    """Messages end in logs. Somebody has written the token where something else belongs."""
    message = wrong(content)
    assert CANARY[4:] not in message
    assert "line 1" in message


def test_there_are_bounds() -> None:
    """Of lines and bytes, so that a wrong path does not take the memory of a node."""
    assert wrong(b"\n" * token_lines.LINES_MAX).endswith(f"at most {token_lines.LINES_MAX} are allowed")
    assert wrong(b" " * (token_lines.BYTES_MAX + 1)) == f"more than {token_lines.BYTES_MAX} bytes"


NAMES = st.text(alphabet="ab/%,@ é\u2003", min_size=1, max_size=6).map(lambda text: text.strip("/"))
PREFIXES = NAMES.filter(lambda text: text and "//" not in text and text.isprintable())
ON_NAMES = st.frozensets(st.sampled_from([Right.READ, Right.ACQUIRE, Right.FORCE]))


@given(
    st.builds(
        Line,
        st.just("worker"),
        st.just((b"\x0a" * 32,)),
        st.lists(st.text(alphabet="ab ,*%:=/", min_size=1), max_size=2, unique=True).map(tuple),
        st.dictionaries(PREFIXES, ON_NAMES, min_size=1, max_size=4),
        st.none() | st.integers(0, 4_000_000_000),
    )
)
def test_what_is_written_is_read(line: Line) -> None:
    """Whatever stands in names of prefixes and certificates."""
    assert token_lines.parse(f"{token_lines.written(line)}\n".encode()) == (line,)


def test_a_line_does_not_show_its_hash() -> None:
    """Reprs end in logs, too."""
    assert "0a" * 8 not in repr(one(f"{HASH} read"))
    assert repr(b"\x0a") not in repr(one(f"{HASH} read"))
