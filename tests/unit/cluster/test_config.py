"""Configuration: where it comes from, what wins, and how wrong values are told."""

from pathlib import Path

import pytest

from cluster.config import Address, NodeConfig, load
from cluster.errors import ConfigError

SECRET = "0123456789abcdef"
THREE = "n1=10.0.0.1:7800,n2=10.0.0.2:7800,n3=10.0.0.3:7800"


def _write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "node.toml"
    path.write_text(text)
    return str(path)


def test_defaults_are_one_node_on_loopback() -> None:
    """Without any setting, a node runs alone and can be reached from this machine only."""
    config = load([], {})
    assert config.is_single
    assert (config.node_id, config.data_dir) == ("n1", Path("holdfast-data"))
    assert (config.http, config.peer) == (Address("127.0.0.1", 7700), Address("127.0.0.1", 7800))
    assert (config.peers, config.founders) == ({}, {"n1": config.peer})
    assert config.advertise_http == "http://127.0.0.1:7700"
    assert config.secret == b""
    assert config.warnings == ()


def test_flags_win_over_variables_and_those_over_the_file(tmp_path: Path) -> None:
    """Each source wins over the next, setting by setting."""
    text = 'node_id = "file"\nheartbeat_ms = 51\ncompact_entries = 1000\nlog_level = "debug"\n'
    environ = {
        "HOLDFAST_CONFIG": _write(tmp_path, text),
        "HOLDFAST_NODE_ID": "variable",
        "HOLDFAST_HEARTBEAT_MS": "52",
        "UNRELATED": "x",
    }
    config = load(["--node-id", "flag"], environ)
    assert (config.node_id, config.heartbeat_ms) == ("flag", 52)
    assert (config.compact_entries, config.log_level) == (1000, "debug")


def test_a_cluster_listens_on_its_own_entry() -> None:
    """The peer address is the node's entry in peers, unless another is given."""
    arguments = ["--node-id", "n2", "--peers", THREE, "--secret", SECRET]
    config = load(arguments, {})
    assert config.peer == Address("10.0.0.2", 7800)
    assert list(config.peers) == ["n1", "n2", "n3"]
    assert config.secret == SECRET.encode()
    assert load([*arguments, "--peer", "0.0.0.0:99"], {}).peer == Address("0.0.0.0", 99)  # noqa: S104 - the value under test


def test_peers_may_be_a_table_in_the_file(tmp_path: Path) -> None:
    """In the file, peers may be written as a table."""
    path = _write(tmp_path, f'secret = "{SECRET}"\n[peers]\nn1 = "a:1"\nn2 = "[::1]:2"\nn3 = "c:3"\n')
    assert load(["--config", path], {}).peers["n2"] == Address("::1", 2)


def test_who_listens_everywhere_advertises_a_host() -> None:
    """A wildcard is not an address for clients: the host known to peers stands for it."""
    arguments = ["--peers", THREE, "--secret", SECRET, "--http", "0.0.0.0:80"]
    assert load(arguments, {}).advertise_http == "http://10.0.0.1:80"
    told = load([*arguments, "--advertise-http", "https://locks.example:443/"], {})
    assert told.advertise_http == "https://locks.example:443"


@pytest.mark.parametrize(
    ("arguments", "http"),
    [
        (["--http", "unix:/run/h.sock"], None),
        (["--http", "10.0.0.1:80", "--http", "unix:/run/h.sock"], Address("10.0.0.1", 80)),
        (["--http", "unix:/run/h.sock, 10.0.0.1:80"], Address("10.0.0.1", 80)),
        (["--http", "unix:///run/h.sock"], None),
    ],
)
def test_clients_come_to_an_address_a_socket_or_both(arguments: list[str], http: Address | None) -> None:
    """In one list, or by a flag for each; clients are sent to the address, if there is one."""
    config = load(arguments, {})
    assert (config.http, config.http_unix) == (http, Path("/run/h.sock"))
    assert config.advertise_http == ("http://10.0.0.1:80" if http else "unix:/run/h.sock")
    assert config.warnings == ()
    told = load([*arguments, "--advertise-http", "unix:/run/other.sock"], {})
    assert told.advertise_http == "unix:/run/other.sock"


def test_an_even_number_of_nodes_is_allowed_with_a_warning() -> None:
    """Two nodes work, and the log says that they survive nothing more than one."""
    config = load(["--peers", "n1=a:1,n2=b:2", "--secret", SECRET], {})
    (warning,) = config.warnings
    assert warning.startswith("peers: 2 nodes")


def test_a_switch_is_given_by_flag_variable_or_file(tmp_path: Path) -> None:
    """It is off unless that is asked for."""
    assert not load([], {}).insecure_http
    assert load(["--insecure-http"], {}).insecure_http
    assert load([], {"HOLDFAST_INSECURE_HTTP": "true"}).insecure_http
    assert load(["--config", _write(tmp_path, "insecure_http = true")], {}).insecure_http
    with pytest.raises(ConfigError, match="must be true or false"):
        load([], {"HOLDFAST_INSECURE_HTTP": "yes"})


def test_a_secret_file_is_read_without_its_last_newline(tmp_path: Path) -> None:
    """What an editor adds at the end of a file is not part of the secret."""
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    assert load([], {"HOLDFAST_SECRET_FILE": str(path)}).secret == SECRET.encode()
    assert load(["--secret", "x" * 16], {"HOLDFAST_SECRET_FILE": str(path)}).secret == b"x" * 16


def test_the_secret_is_never_shown(tmp_path: Path) -> None:
    """Neither the configuration as text nor a refusal of the secret tells it."""
    assert SECRET not in repr(load(["--secret", SECRET], {}))
    for arguments in (["--secret", "hush"], ["--config", _write(tmp_path, 'secret = "hush"')]):
        with pytest.raises(ConfigError) as refused:
            load(arguments, {})
        assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:1", Address("localhost", 1)),
        ("[2001:db8::1]:65535", Address("2001:db8::1", 65535)),
        (" 127.0.0.1:0 ", Address("127.0.0.1", 0)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    """Host names, IPv4 and bracketed IPv6 are read, and written as they are read."""
    assert Address.parse(text) == address
    assert str(address) == text.strip()


@pytest.mark.parametrize(
    "text", ["", "a", ":1", "a:", "a:b", "a:65536", "a:-1", "::1:80", "a b:1", "[]:1", "a/b:1"]
)
def test_what_is_no_address(text: str) -> None:
    """What is not HOST:PORT is refused."""
    with pytest.raises(ValueError, match=r"HOST:PORT|brackets"):
        Address.parse(text)


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--http", "nonsense"], {}, "http: 'nonsense' (flag --http): must be HOST:PORT"),
        (
            [],
            {"HOLDFAST_PEER": "::1:7"},
            "peer: '::1:7' (variable HOLDFAST_PEER): an IPv6 address needs brackets",
        ),
        (["--http", "a..b:1"], {}, "http: 'a..b:1' (flag --http): must be HOST:PORT with the name"),
        (["--peers", f"n1={'a' * 64}:1"], {}, "must be HOST:PORT with the name or address of a host"),
        (["--peer", "a\0b:1"], {}, "must be HOST:PORT with the name or address of a host"),
        (["--node-id", "a b"], {}, "node_id: 'a b' (flag --node-id): a node id is 1 to 63"),
        (["--node-id", ""], {}, "node_id: '' (flag --node-id): a node id"),
        (["--data-dir", ""], {}, "data_dir: '' (flag --data-dir): must name a directory"),
        (["--peers", "n1"], {}, "peers: 'n1' (flag --peers): must be ID=HOST:PORT"),
        (["--peers", "n1=a:1,n1=b:1"], {}, "peers: 'n1=a:1,n1=b:1' (flag --peers): names 'n1' twice"),
        (["--peers", "n1=a:1,n2=a:1,n3=b:1"], {}, "two nodes cannot have the same address"),
        (["--peers", "n2=a:1"], {}, "peers: 'n2=a:1' (flag --peers): must name this node too, node_id 'n1'"),
        (["--peers", "n1=a:0,n2=b:1", "--secret", SECRET], {}, "a port of 0 is for a single node only"),
        (["--peers", ",".join(f"n{n}=a:{n}" for n in range(1, 9))], {}, "must name 1 to 7 nodes"),
        (["--peers", THREE], {}, "secret: '' (default): the nodes of a cluster need one"),
        (["--secret", "short"], {}, "secret: '<5 bytes>' (flag --secret): must have 16 bytes or more"),
        (
            ["--secret-file", "/nowhere/secret"],
            {},
            "secret_file: '/nowhere/secret' (flag --secret-file): cannot",
        ),
        (
            ["--secret", SECRET, "--secret-file", "f"],
            {},
            "secret: given twice (flag --secret and flag --secret-file)",
        ),
        (
            ["--heartbeat-ms", "fast"],
            {},
            "heartbeat_ms: 'fast' (flag --heartbeat-ms): must be a whole number",
        ),
        (
            [],
            {"HOLDFAST_HEARTBEAT_MS": "9"},
            "heartbeat_ms: 9 (variable HOLDFAST_HEARTBEAT_MS): must be 10 to",
        ),
        (
            ["--election-ms-min", "300"],
            {},
            "election_ms_min: 300 (flag --election-ms-min): must be above 3 *",
        ),
        (["--election-ms-max", "500"], {}, "election_ms_max: 500 (flag --election-ms-max): must be above"),
        (["--state-bytes-max", "5"], {}, "state_bytes_max: 5 (flag --state-bytes-max): must be 0 "),
        (["--compact-entries", "0"], {}, "compact_entries: 0 (flag --compact-entries): must be 100 to"),
        (["--request-timeout-ms", "9" * 20], {}, "request_timeout_ms: "),
        (["--trace-share", "2"], {}, "trace_share: '2' (flag --trace-share): must be a number of 0 to 1"),
        (["--trace-share", "0.5"], {}, "trace_share: 0.5 (flag --trace-share): needs otlp_endpoint"),
        (["--trace-share", "1e-3"], {}, "trace_share: '1e-3'"),
        (
            ["--otlp-endpoint", "collector:4318"],
            {},
            "otlp_endpoint: 'collector:4318' (flag --otlp-endpoint): must",
        ),
        (
            ["--otlp-endpoint", "http://u:p@c"],
            {},
            "otlp_endpoint: '<hidden>' (flag --otlp-endpoint): must be",
        ),
        (["--otlp-endpoint", "http://c:99999"], {}, "otlp_endpoint: 'http://c:99999'"),
        ([], {"HOLDFAST_OTLP_ENDPOINT": "grpc://c:1"}, "otlp_endpoint: 'grpc://c:1' (variable "),
        (["--log-level", "loud"], {}, "log_level: 'loud' (flag --log-level): must be one of debug, info"),
        (
            [],
            {"HOLDFAST_LOG_FORMAT": "xml"},
            "log_format: 'xml' (variable HOLDFAST_LOG_FORMAT): must be one of",
        ),
        (
            ["--advertise-http", "example.org"],
            {},
            "advertise_http: 'example.org' (flag --advertise-http): must",
        ),
        (["--advertise-http", "http://a/b"], {}, "advertise_http: 'http://a/b'"),
        (
            ["--advertise-http", "unix:a"],
            {},
            "advertise_http: 'unix:a' (flag --advertise-http): must be unix:/",
        ),
        (
            [],
            {"HOLDFAST_HTTP": "unix:run/h.sock"},
            "http: 'unix:run/h.sock' (variable HOLDFAST_HTTP): must be",
        ),
        (["--http", "unix:/run/"], {}, "http: 'unix:/run/' (flag --http): must be unix:/PATH"),
        (["--http", "unix:/a b"], {}, "http: 'unix:/a b' (flag --http): must be unix:/PATH"),
        (
            ["--http", f"unix:/{'a' * 107}"],
            {},
            "(flag --http): the path of a Unix socket has 107 bytes at most",
        ),
        (["--http", "a:1", "--http", "b:1"], {}, "http: 'a:1,b:1' (flag --http): must be one HOST:PORT, one"),
        (["--http", "unix:/a,unix:/b"], {}, "http: 'unix:/a,unix:/b' (flag --http): must be one HOST:PORT"),
        (["--http", ""], {}, "http: '' (flag --http): must be HOST:PORT"),
        (["--advertise-http", "http://a:x"], {}, "advertise_http: 'http://a:x'"),
        (
            ["--allow-host", "a.example,http://b"],
            {},
            "allow_host: 'a.example,http://b' (flag --allow-host): 'http",
        ),
        (["--allow-host", "a.example:80"], {}, "'a.example:80' must be a name, .DOMAIN or *"),
        (["--allow-priority", "jobs/"], {}, "'jobs/' must be a name without a slash at its end, or *"),
        (
            [],
            {"HOLDFAST_ALLOW_ORIGIN": "a.example"},
            "allow_origin: 'a.example' (variable HOLDFAST_ALLOW_ORIGIN): 'a.example' must be SCHEME://HOST",
        ),
        (["--allow-origin", "http://a.example/"], {}, "must be SCHEME://HOST[:PORT], null or *"),
        (["--colour"], {}, "unrecognized arguments: --colour; see holdfast-node --help"),
        (["--node", "n1"], {}, "unrecognized arguments: --node n1"),
        (["--config", "/nowhere.toml"], {}, "config: '/nowhere.toml': cannot be read"),
    ],
)
def test_wrong_values_are_named(arguments: list[str], environ: dict[str, str], message: str) -> None:
    """A refusal names setting, value, origin and what is allowed."""
    with pytest.raises(ConfigError) as refused:
        load(arguments, environ)
    assert message in str(refused.value)
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1", "key colour in {path}: no such setting; there are node_id, "),
        ("node-id = 'n2'", "key node-id in {path}: no such setting; did you mean node_id?"),
        ("node_id = 1", "node_id: 1 (key node_id in {path}): must be a string"),
        ('heartbeat_ms = "100"', "heartbeat_ms: '100' (key heartbeat_ms in {path}): must be a whole number"),
        ("heartbeat_ms = true", "heartbeat_ms: True (key heartbeat_ms in {path}): must be a whole number"),
        ("heartbeat_ms = 1.5", "heartbeat_ms: 1.5 (key heartbeat_ms in {path}): must be a whole number"),
        (
            "requests_per_second = 1000001",
            "requests_per_second: 1000001 (key requests_per_second in {path}): must be 0",
        ),
        ("heartbeat_ms = 1", "heartbeat_ms: 1 (key heartbeat_ms in {path}): must be 10 to"),
        ("node_id", "config: '{path}': is not a TOML file"),
    ],
)
def test_wrong_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    """A refusal of something in the file names key and file."""
    path = _write(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load(["--config", path], {})
    assert message.format(path=path) in str(refused.value)


def test_a_misspelled_secret_is_not_shown(tmp_path: Path) -> None:
    """A refusal goes into logs."""
    with pytest.raises(ConfigError) as refused:
        load(["--config", _write(tmp_path, f"secrt = '{SECRET}'")], {})
    assert "did you mean secret?" in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("NODEID", "NODE_ID"),
        ("ADVERTIZE_HTTP", "ADVERTISE_HTTP"),
        ("TLS_CERTS", "TLS_CERT"),
        ("LOGLEVEL", "LOG_LEVEL"),
        ("CONFG", "CONFIG"),
        ("PEER_ADDRESS", ""),
        ("COLOUR", ""),
    ],
)
def test_a_variable_that_is_nearly_that_of_a_setting_is_warned_of(variable: str, meant: str) -> None:
    """It has no effect, so the node would start with something else than was meant. Its value is not told."""
    warnings = load([], {f"HOLDFAST_{variable}": "its value"}).warnings
    told = (
        f"HOLDFAST_{variable}: no such variable, so nothing was done with it; did you mean HOLDFAST_{meant}?"
    )
    assert warnings == ((told,) if meant else ())


def test_variables_of_clients_and_of_services_are_no_slips() -> None:
    """A machine has both; Kubernetes adds variables for each service, and compose.yaml has its own."""
    clients = "TOKEN ACCESS_TOKEN ACCESS_TOKEN_FILE NODES URL CA CERT KEY NO_STREAM HOLD_ID LOCK LOST_REASON"
    services = "SERVICE_HOST SERVICE_PORT PORT PORT_7700_TCP PORT_7700_TCP_ADDR SECRETS JOIN_N1 PORT_N1"
    environ = {f"HOLDFAST_{name}": "x" for name in f"{clients} {services}".split()}
    assert load([], environ | {"MY_HOLDFAST_NODEID": "x"}).warnings == ()


def test_clients_may_call_a_node_by_the_names_that_it_was_given() -> None:
    """Those of its own addresses and its peers', and those that are allowed besides."""
    peers = "n1=n1.example:7800,n2=n2.example:7800,n3=10.0.0.3:7800"
    flags = ["--peers", peers, "--secret", "0123456789abcdef", "--http", "10.0.0.1:7700"]
    flags += ["--advertise-http", "https://locks.example:443"]
    flags += ["--allow-host", " .svc.cluster.local, other.example,"]
    config = load(flags, {"HOLDFAST_ALLOW_ORIGIN": "https://admin.example,null"})
    own = {"10.0.0.1", "n1.example", "n2.example", "10.0.0.3", "locks.example"}
    assert set(config.hosts) == {".svc.cluster.local", "other.example", *own}
    assert config.allow_origins == ("https://admin.example", "null")
    assert load([], {}).allow_hosts == load([], {}).allow_origins == ()


@pytest.mark.parametrize("setting", ["allow_priority", "allow_no_deadline"])
def test_what_few_may_have_is_allowed_under_prefixes(tmp_path: Path, setting: str) -> None:
    """By a flag, which may be repeated, a variable or the file; by default nowhere."""
    flag = "--" + setting.replace("_", "-")
    config = load([flag, "jobs, db/nightly,", flag, "x"], {})
    assert getattr(config, setting) == ("jobs", "db/nightly", "x")
    assert getattr(load([], {f"HOLDFAST_{setting.upper()}": "*"}), setting) == ("*",)
    path = _write(tmp_path, f'{setting} = "jobs"')
    assert getattr(load(["--config", path], {}), setting) == ("jobs",)
    assert getattr(load([], {f"HOLDFAST_{setting.upper()}": ""}), setting) == ()
    assert getattr(load([], {}), setting) == ()
    for wrong in ("/", "a/", "a//b"):
        with pytest.raises(ConfigError, match=rf"{setting}: .* must be a name"):
            load([flag, wrong], {})


def test_clients_of_redis_are_served_nowhere_unless_somewhere_is_said() -> None:
    """By flag, variable or file, as any address."""
    assert load([], {}).redis is None
    assert load(["--redis", "127.0.0.1:6379"], {}).redis == Address("127.0.0.1", 6379)
    assert load([], {"HOLDFAST_REDIS": "[::1]:6379"}).redis == Address("::1", 6379)
    with pytest.raises(ConfigError, match="redis: '6379'"):
        load(["--redis", "6379"], {})


@pytest.mark.parametrize("setting", ["insecure_http", "insecure_peers", "insecure_redis"])
def test_what_is_open_is_asked_for(tmp_path: Path, setting: str) -> None:
    """By a flag, a variable or the file, and each for itself."""
    flag, variable = "--" + setting.replace("_", "-"), f"HOLDFAST_{setting.upper()}"
    path = _write(tmp_path, f"{setting} = true")
    for config in (load([flag], {}), load([], {variable: "true"}), load(["--config", path], {})):
        assert {
            name: getattr(config, name) for name in ("insecure_http", "insecure_peers", "insecure_redis")
        } == {
            "insecure_redis": setting == "insecure_redis",
            "insecure_http": setting == "insecure_http",
            "insecure_peers": setting == "insecure_peers",
        }
    assert not getattr(load([], {}), setting)
    assert not getattr(load([], {variable: "false"}), setting)
    with pytest.raises(ConfigError, match=rf"{setting}: '' \(variable {variable}\): must be true or false"):
        load([], {variable: ""})


def test_a_config_is_checked_however_it_is_made() -> None:
    """Code that makes a configuration itself gets no further than the command line does."""
    good = load([], {})
    with pytest.raises(ConfigError, match="heartbeat_ms: 0: must be 10 to 10000"):
        NodeConfig(
            node_id="n1",
            data_dir=good.data_dir,
            http=good.http,
            peer=good.peer,
            peers={},
            secret=b"",
            advertise_http=good.advertise_http,
            heartbeat_ms=0,
        )


def test_tokens_come_from_a_file() -> None:
    """Where it is may be said as with any setting."""
    assert load([], {"HOLDFAST_TOKENS": "/etc/tokens"}).tokens == Path("/etc/tokens")
    assert load([], {}).tokens is None


def test_tls_comes_with_its_files() -> None:
    """Clients are sent to https://, and one that sends them elsewhere is told of."""
    files = ["--tls-cert", "c.pem", "--tls-key", "k.pem"]
    config = load([*files, "--http", "10.0.0.1:7700"], {"HOLDFAST_TLS_CLIENT_CA": "ca.pem"})
    assert (config.tls_cert, config.tls_key, config.tls_client_ca) == (
        Path("c.pem"),
        Path("k.pem"),
        Path("ca.pem"),
    )
    assert config.advertise_http == "https://10.0.0.1:7700"
    assert config.warnings == ()
    (slip,) = load([*files, "--advertise-http", "http://n1:7700"], {}).warnings
    assert "https://" in slip


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (
            ["--http", "unix:/h.sock", "--tls-cert", "c.pem", "--tls-key", "k.pem"],
            "tls_cert: 'c.pem' (flag --tls-cert): needs a HOST:PORT in http: that speaks TLS",
        ),
        (
            ["--http", "a:1,unix:/h", "--tls-cert", "c", "--tls-key", "k", "--tls-client-ca", "ca"],
            "http: 'unix:/h' (flag --http): needs tokens, since tls_client_ca is given",
        ),
        (["--tls-cert", "c.pem"], "tls_key: '' (default): a certificate and its key are given together"),
        (["--tls-key", "k.pem"], "tls_cert: '' (default): a certificate and its key are given together"),
        (["--tls-client-ca", "ca.pem"], "tls_client_ca: 'ca.pem' (flag --tls-client-ca): needs tls_cert"),
        (
            ["--tls-cert", "c.pem", "--tls-key", "k.pem", "--tls-revoked", "r"],
            "tls_revoked: 'r' (flag --tls-revoked): needs tls_client_ca",
        ),
        (["--tls-cert", "", "--tls-key", "k.pem"], "tls_cert: '' (flag --tls-cert): must name a file"),
        (["--tls", "accept"], "tls: 'accept' (flag --tls): needs tls_cert and tls_key"),
        (
            ["--tls", "accept", "--tls-cert", "c.pem", "--tls-key", "k.pem", "--tls-client-ca", "ca.pem"],
            "tls: 'accept' (flag --tls): needs tokens, since tls_client_ca is given",
        ),
        (["--tls", "off"], "tls: 'off' (flag --tls): must be one of accept, require"),
    ],
)
def test_half_of_tls_is_refused(argv: list[str], words: str) -> None:
    """An emptied variable must not open the port without TLS."""
    with pytest.raises(ConfigError) as caught:
        load(argv, {})
    assert words in str(caught.value)


def test_clients_may_go_over_to_tls_by_and_by() -> None:
    """Both ways of speaking are served then; a URL with http:// may still be advertised."""
    files = ["--tls-cert", "c.pem", "--tls-key", "k.pem"]
    assert load(files, {}).requires_tls
    config = load([*files, "--advertise-http", "http://n1:7700"], {"HOLDFAST_TLS": "accept"})
    assert (config.requires_tls, config.warnings) == (False, ())
    assert not load([], {}).requires_tls


PEER_FILES = ["--peer-cert", "c.pem", "--peer-key", "k.pem", "--peer-ca", "ca.pem"]


def test_tls_between_nodes_comes_with_its_files() -> None:
    """With them it is required, unless a step before that is named; without them there is none."""
    assert load([], {}).peer_tls == "off"
    config = load(PEER_FILES, {})
    assert (config.peer_cert, config.peer_key, config.peer_ca) == (
        Path("c.pem"),
        Path("k.pem"),
        Path("ca.pem"),
    )
    assert config.peer_tls == "require"
    for step in ("off", "accept", "dial", "require"):
        config = load(PEER_FILES, {"HOLDFAST_PEER_TLS": step})
        assert config.peer_tls == step
        assert any("peer_tls: off" in warning for warning in config.warnings) == (step == "off")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (PEER_FILES[:2], "peer_key: '' (default): peer_cert, peer_key, peer_ca are given together"),
        (PEER_FILES[2:], "peer_cert: '' (default): peer_cert, peer_key, peer_ca are given together"),
        (PEER_FILES[:4], "peer_ca: '' (default): peer_cert, peer_key, peer_ca are given together"),
        (["--peer-tls", "dial"], "peer_tls: 'dial' (flag --peer-tls): needs peer_cert, peer_key, peer_ca"),
        (
            ["--peer-revoked", "r"],
            "peer_revoked: 'r' (flag --peer-revoked): needs peer_cert, peer_key, peer_ca",
        ),
        ([*PEER_FILES, "--peer-tls", "on"], "peer_tls: 'on' (flag --peer-tls): must be one of off, accept"),
        ([*PEER_FILES, "--peer-ca", ""], "peer_ca: '' (flag --peer-ca): must name a file"),
    ],
)
def test_half_of_tls_between_nodes_is_refused(argv: list[str], words: str) -> None:
    """An emptied variable must not make links plain."""
    with pytest.raises(ConfigError) as caught:
        load(argv, {})
    assert words in str(caught.value)
