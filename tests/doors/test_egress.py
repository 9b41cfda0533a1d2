"""Egress: what a session reaches through the proxy behind a door, and that it reaches nothing else."""

from __future__ import annotations

import ipaddress
import socket
import ssl
import struct

import pytest
import trustme

from coding_gym import CodingEnv
from coding_gym.doors import Egress
from coding_gym.doors import egress as egress_module
from coding_gym.doors.egress import EgressError, Endpoint, _is_public
from coding_gym.doors.tls import ClientHelloError, server_name
from coding_gym.errors import ConfigurationError
from tests.doors.conftest import FETCH
from tests.doors.servers import EchoServer, tcp_server
from tests.support.environments import OPTIONS, stdout

every_provider = pytest.mark.every_provider

PACKAGES, GIT, CDN = "packages.example.org", "git.example.org", "cdn.example.org"
EVIL = "evil.example.net"


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def secure(authority):
    """A server with TLS and names of its own, one of which no rule allows: both are at the same address, as at a CDN."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(PACKAGES, CDN, EVIL).configure_cert(context)
    with EchoServer(context=context, name="secure") as server:
        yield server


@pytest.fixture(scope="module")
def forbidden():
    """A server that nothing may reach."""
    with EchoServer(name="forbidden") as server:
        yield server


@pytest.fixture
def env(make, echo, secure, forbidden, authority):
    """Environment that may reach the servers of two names, through a proxy."""
    egress = Egress(
        allow=[PACKAGES, f"*.{PACKAGES}", f"{GIT}:8080", f"{CDN}:443", "rebinding.example.org"],
        addresses={
            PACKAGES: echo.address,
            f"mirror.{PACKAGES}": echo.address,
            GIT: echo.address,
            CDN: secure.address,
            EVIL: forbidden.address,
        },
    )
    return make(network=egress, variables={"CA": authority.cert_pem.bytes().decode()})


def requests_of(env):
    return [(exchange.method, exchange.path, exchange.refusal is None) for exchange in env.doors[3128].log]


@every_provider
def test_allowed_names_are_reached(env, echo):
    assert stdout(env, f"print(fetch('http://{PACKAGES}/simple?q=1'))") == f"echo|GET /simple?q=1 HTTP/1.1|{PACKAGES}|0|\n"
    assert stdout(env, f"print(fetch('http://mirror.{PACKAGES}/a', b'xyz'))") == (
        f"echo|POST /a HTTP/1.1|mirror.{PACKAGES}|3|\n"
    )
    assert stdout(env, f"print(fetch('http://{GIT}:8080/a'))") == f"echo|GET /a HTTP/1.1|{GIT}:8080|0|\n"
    assert stdout(env, f"print(fetch('http://{PACKAGES.upper()}./a'))").startswith("echo|")


@every_provider
def test_tls_is_passed_on(env):
    code = f"""
import os, ssl
context = ssl.create_default_context(cadata=os.environ['CA'])
print(urllib.request.urlopen('https://{CDN}/a', timeout=60, context=context).read().decode())
"""
    assert stdout(env, code) == f"secure|GET /a HTTP/1.1|{CDN}|0|\n"
    assert requests_of(env) == [("CONNECT", f"{CDN}:443", True)]


@every_provider
def test_refusals_are_seen(env, echo):
    obs, _, _, _, info = env.step(f"print(fetch('http://{PACKAGES}/a')[:4], fetch('http://{EVIL}/b')[:3])")
    assert obs["stdout"] == "echo 403\n"
    assert obs["stderr"] == f"[egress: {EVIL}:80 is not in the allow-list]\n"
    assert info["egress"] == (
        {"method": "GET", "target": f"http://{PACKAGES}/a", "refused": None},
        {"method": "GET", "target": f"http://{EVIL}/b", "refused": f"{EVIL}:80 is not in the allow-list"},
    )
    obs, _, _, _, info = env.step("print(1)")
    assert (obs["stderr"], info["egress"]) == ("", ())
    _, info = env.reset(seed=2)
    assert info["egress"] == ()


def test_shells_and_processes_use_the_proxy(env):
    code = f"import urllib.request; print(urllib.request.urlopen('http://{PACKAGES}/p', timeout=60).read().decode())"
    assert env.exec(["python3", "-c", code]).stdout.startswith(b"echo|GET /p ")
    assert stdout(env, "import os; print(os.environ['http_proxy'], os.environ['HTTPS_PROXY'])") == (
        "http://127.0.0.1:3128 http://127.0.0.1:3128\n"
    )


PLAIN_ATTACKS = {
    "another name": f"GET http://{EVIL}/ HTTP/1.1\r\nHost: {EVIL}\r\n\r\n",
    "host header": f"GET http://{EVIL}/ HTTP/1.1\r\nHost: {PACKAGES}\r\n\r\n",
    "user of a URL": f"GET http://{PACKAGES}@{EVIL}/ HTTP/1.1\r\nHost: {PACKAGES}\r\n\r\n",
    "port as a password": f"GET http://{PACKAGES}:80@{EVIL}/ HTTP/1.1\r\nHost: {PACKAGES}\r\n\r\n",
    "backslash": f"GET http://{EVIL}\\@{PACKAGES}/ HTTP/1.1\r\nHost: {PACKAGES}\r\n\r\n",
    "fragment": f"GET http://{EVIL}#@{PACKAGES}/ HTTP/1.1\r\nHost: {PACKAGES}\r\n\r\n",
    "query": f"GET http://{EVIL}?@{PACKAGES}/ HTTP/1.1\r\nHost: {PACKAGES}\r\n\r\n",
    "encoded": "GET http://%65vil.example.net/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "suffix": f"GET http://{PACKAGES}.{EVIL}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "prefix": f"GET http://evil{PACKAGES}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "newline": f"GET http://{PACKAGES}%0d%0aHost:{EVIL}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "NUL": f"GET http://{EVIL}%00.{PACKAGES}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "another port": f"GET http://{PACKAGES}:8081/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "port of one rule, name of another": f"GET http://{PACKAGES}:8080/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "port 0": f"GET http://{PACKAGES}:0/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "port too large": f"GET http://{PACKAGES}:65616/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "loopback": "GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "localhost": "GET http://localhost:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "decimal": "GET http://2130706433:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "hexadecimal": "GET http://0x7f000001:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "octal": "GET http://0177.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "short": "GET http://127.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "IPv6": "GET http://[::1]:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "IPv6 of IPv4": "GET http://[::ffff:127.0.0.1]:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "IPv6 with a zone": "GET http://[fe80::1%25eth0]:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "unspecified": "GET http://0.0.0.0:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "metadata": "GET http://169.254.169.254/latest/meta-data HTTP/1.1\r\nHost: x\r\n\r\n",
    "wide digits": "GET http://\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT to loopback": "CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT to another name": f"CONNECT {EVIL}:443 HTTP/1.1\r\nHost: {CDN}:443\r\n\r\n",
    "CONNECT with a user": f"CONNECT {CDN}:443@{EVIL}:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT without a port": f"CONNECT {CDN} HTTP/1.1\r\nHost: x\r\n\r\n",
    "CONNECT to a URL": f"CONNECT http://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "https URL": f"GET https://{CDN}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "ftp URL": f"GET ftp://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\n\r\n",
    "file URL": "GET file:///etc/passwd HTTP/1.1\r\nHost: x\r\n\r\n",
    "no URL": f"GET / HTTP/1.1\r\nHost: {EVIL}\r\n\r\n",
}


@pytest.mark.parametrize("request_text", PLAIN_ATTACKS.values(), ids=PLAIN_ATTACKS)
def test_request_is_refused(env, echo, secure, forbidden, request_text):
    before = len(secure.requests)
    request = request_text.replace("{port}", str(forbidden.server_port)).encode("latin-1")
    code = FETCH + f"import sys; sys.stdout.buffer.write(raw(3128, {request!r}, end=True))"
    answer = env.exec(["python3", "-c", code]).stdout
    assert answer.split(b" ")[1] in (b"403", b"400"), answer
    assert (echo.requests, forbidden.requests, len(secure.requests)) == ([], [], before)


def test_host_of_a_request_is_that_of_its_url(env, echo):
    request = f"GET http://{PACKAGES}/ HTTP/1.1\r\nHost: {EVIL}\r\nConnection: close, host\r\n\r\n".encode()
    assert f"|{PACKAGES}|" in stdout(env, f"print(raw(3128, {request!r}).decode())")


SMUGGLED = f"GET http://{EVIL}/ HTTP/1.1\r\nHost: {EVIL}\r\n\r\n"
SMUGGLING = {
    "length and chunks": f"POST http://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n"
    f"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "two lengths": f"POST http://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 90\r\n\r\n{SMUGGLED}",
    "hidden chunks": f"POST http://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "spaced name": f"POST http://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n{SMUGGLED}",
    "bare newline": f"GET http://{PACKAGES}/ HTTP/1.1\nHost: x\n\n{SMUGGLED}",
    "upgrade": f"GET http://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n{SMUGGLED}",
    "pipelined": f"GET http://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\n\r\n{SMUGGLED}",
    "bad chunk": f"POST http://{PACKAGES}/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n{SMUGGLED}",
}


@pytest.mark.parametrize("request_text", SMUGGLING.values(), ids=SMUGGLING)
def test_smuggled_request_is_refused(env, echo, forbidden, request_text):
    env.step(f"print(raw(3128, {request_text.encode()!r}, end=True))")
    assert forbidden.requests == []
    assert all(EVIL not in line for line in echo.requests)


HELLO = """
import os, ssl
def tunnel(target, name, port=3128):
    c = socket.create_connection(('127.0.0.1', port), 60)
    c.sendall(f'CONNECT {target} HTTP/1.1\\r\\nHost: {target}\\r\\n\\r\\n'.encode())
    assert b' 200 ' in c.recv(4096)
    context = ssl.create_default_context(cadata=os.environ['CA'])
    context.check_hostname = False
    try:
        with context.wrap_socket(c, server_hostname=name) as s:
            s.sendall(b'GET /x HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n')
            return s.recv(4096)[:12]
    except OSError as error:
        return type(error).__name__
"""


@pytest.mark.parametrize("name", [EVIL, None, f"{CDN}.{EVIL}", PACKAGES], ids=["another", "none", "suffix", "other-rule"])
def test_name_of_tls_must_be_that_of_the_tunnel(env, secure, name):
    env.step(HELLO)
    before = len(secure.requests)
    assert stdout(env, f"print(tunnel('{CDN}:443', {CDN!r}))") == "b'HTTP/1.1 200'\n"
    assert len(secure.requests) == before + 1
    obs, *_ = env.step(f"print(tunnel('{CDN}:443', {name!r}))")
    assert obs["stdout"].strip() in ("ConnectionResetError", "SSLEOFError", "SSLError", "SSLZeroReturnError")
    assert "[egress: cdn.example.org:443: the ClientHello names" in obs["stderr"]
    assert len(secure.requests) == before + 1


def test_tunnel_without_tls_leads_to_its_host_only(env, echo, forbidden):
    connect = f"CONNECT {PACKAGES}:80 HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    code = f"""
def inside(request):
    with socket.create_connection(('127.0.0.1', 3128), 60) as c:
        c.sendall({connect!r})
        assert b' 200 ' in c.recv(4096)
        c.sendall(request)
        received = b''
        while part := c.recv(65536):
            received += part
        return received.decode()
print(inside(b'GET /in HTTP/1.1\\r\\nHost: {EVIL}\\r\\nConnection: close\\r\\n\\r\\n').splitlines()[-1])
print(inside(b'GET http://{EVIL}/ HTTP/1.1\\r\\nHost: {EVIL}\\r\\nConnection: close\\r\\n\\r\\n').splitlines()[0])
print(inside(b'\\r\\n\\r\\nPRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n').splitlines()[0])
print(inside(b'\\x05\\x01\\x00').splitlines()[0])
"""
    obs, *_ = env.step(code)
    lines = obs["stdout"].splitlines()
    assert lines[0] == f"echo|GET /in HTTP/1.1|{PACKAGES}|0|"
    assert [line.split()[1] for line in lines[1:3]] == ["403", "400"]
    assert (len(echo.requests), forbidden.requests) == (1, [])


def test_any_protocol_needs_a_rule(make):
    def greet(connection):
        connection.sendall(b"SSH-2.0-test\r\n")
        connection.sendall(connection.recv(100))

    with tcp_server(greet) as port:
        env = make(network=Egress(allow=["tcp://git.example.org:22"], addresses={"git.example.org": f"127.0.0.1:{port}"}))
        code = r"""
c = socket.create_connection(('127.0.0.1', 3128), 60)
c.sendall(b'CONNECT git.example.org:22 HTTP/1.1\r\nHost: x\r\n\r\n')
got = b''
while b'test\r\n' not in got:
    got += c.recv(4096)
c.sendall(b'hello')
print(c.recv(100))
"""
        assert stdout(env, code) == "b'hello'\n"


def test_redirects_are_checked_again(make):
    def redirect(connection):
        connection.recv(65536)
        connection.sendall(f"HTTP/1.1 302 Found\r\nLocation: http://{EVIL}/\r\nContent-Length: 0\r\n\r\n".encode())

    with tcp_server(redirect) as port:
        env = make(network=Egress(allow=[PACKAGES], addresses={PACKAGES: f"127.0.0.1:{port}"}))
        obs, *_ = env.step(f"print(fetch('http://{PACKAGES}/'))")
        assert obs["stdout"].startswith("403 ")
        assert f"{EVIL}:80 is not in the allow-list" in obs["stderr"]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:10.0.0.1", "64:ff9b::7f00:1"])
def test_names_that_lead_to_private_addresses_are_refused(make, monkeypatch, forbidden, address):
    """DNS may say anything: what it says is resolved once, checked, and connected to."""

    async def resolve(endpoint):
        return [ipaddress.ip_address(address)]

    monkeypatch.setattr(egress_module, "_look_up", resolve)
    env = make(network=Egress(allow=["rebinding.example.org", "*"]))
    obs, *_ = env.step("print(fetch('http://rebinding.example.org/'))")
    assert obs["stdout"].startswith("403 ")
    assert "leads to an address that is not public" in obs["stderr"]
    assert forbidden.requests == []


def test_name_that_does_not_exist(make):
    env = make(network=Egress(allow=["*"]))
    assert "cannot be resolved" in env.step("print(fetch('http://does-not-exist.invalid/'))")[0]["stdout"]


def test_server_that_is_gone(make):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    env = make(network=Egress(allow=[PACKAGES], addresses={PACKAGES: f"127.0.0.1:{port}"}))
    obs, _, _, _, info = env.step(f"print(fetch('http://{PACKAGES}/'))")
    assert obs["stdout"].startswith("502 packages.example.org:80 failed")
    assert info["egress"][0]["refused"] is None


def egress(*allow, **options):
    return Egress(allow=allow, **options)


@pytest.mark.parametrize(
    ("rules", "target", "is_allowed"),
    [
        (egress("example.org"), "example.org:443", True),
        (egress("example.org"), "example.org:80", True),
        (egress("example.org"), "example.org:8080", False),
        (egress("example.org"), "www.example.org:443", False),
        (egress("*.example.org"), "a.b.example.org:443", True),
        (egress("*.example.org"), "example.org:443", False),
        (egress("*.example.org"), "badexample.org:443", False),
        (egress("EXAMPLE.org."), "example.ORG:443", True),
        (egress("bücher.example"), "xn--bcher-kva.example:443", True),
        (egress("10.1.2.3"), "10.1.2.3:80", True),
        (egress("10.1.2.3"), "10.1.2.4:80", False),
        (egress("10.0.0.0/8:9000"), "10.9.9.9:9000", True),
        (egress("[2001:db8::1]:443"), "[2001:db8::1]:443", True),
        (egress("2001:db8::/32"), "[2001:db8::1]:443", True),
        (egress("127.0.0.1"), "[::ffff:127.0.0.1]:80", True),
        (egress("*"), "example.org:443", True),
        (egress("*"), "example.org:22", False),
        (egress("*:22"), "example.org:22", True),
        (egress("*", deny=["evil.org"]), "evil.org:443", False),
        (egress("*", deny=["evil.org"]), "good.org:443", True),
        (egress("good.org", deny=["*"]), "good.org:443", True),
        (egress("*", deny=["8.8.8.0/24"]), "8.8.8.8:443", False),
        (egress("*", "8.8.8.8", deny=["8.8.8.0/24"]), "8.8.8.8:443", True),
        (egress(), "example.org:443", False),
    ],
)
def test_rules(rules, target, is_allowed):
    try:
        rules.check(Endpoint.parse(target))
    except EgressError:
        assert not is_allowed
    else:
        assert is_allowed


@pytest.mark.parametrize(
    ("address", "is_public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("64:ff9b::808:808", True),
        ("127.0.0.1", False),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("192.168.0.1", False),
        ("224.0.0.1", False),
        ("240.0.0.1", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1", False),
        ("fc00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("ff02::1", False),
    ],
)
def test_public_addresses(address, is_public):
    assert _is_public(ipaddress.ip_address(address)) == is_public


@pytest.mark.parametrize(
    "rule", ["", "exa mple.org", "http://example.org", "example.org/path", "a@b", "127.1", "tcp://a.org", 5]
)
def test_invalid_rules(rule):
    with pytest.raises(ConfigurationError, match="Expected a rule of an Egress"):
        Egress(allow=[rule])


def test_invalid_options():
    with pytest.raises(ConfigurationError, match="Expected allow= to be a sequence of rules"):
        Egress(allow="example.org")
    with pytest.raises(ConfigurationError, match="Expected addresses= to map names to addresses"):
        Egress(allow=["a.org"], addresses={"a.org": "b.org"})
    with pytest.raises(ConfigurationError, match="got port 3128 for both"):
        CodingEnv(provider="local", network=Egress(allow=["a.org"]), doors={3128: "http://127.0.0.1:1"})
    with pytest.raises(ConfigurationError, match="Expected network= to be an Egress, the name of a Docker network, or None"):
        CodingEnv(provider="local", network=["a.org"])
    with pytest.raises(ConfigurationError, match="does not have network="):
        CodingEnv(provider="local", network="bridge")


def test_own_variables_prevail(make):
    env = make(network=Egress(allow=[]), variables={"http_proxy": "http://127.0.0.1:1"})
    assert stdout(env, "import os; print(os.environ['http_proxy'])") == "http://127.0.0.1:1\n"


def client_hello(*names, extensions=b"", version=b"\x03\x01"):
    """Return a ClientHello in one record."""
    entries = b"".join(b"\0" + struct.pack("!H", len(name)) + name for name in names)
    server = struct.pack("!HHH", 0, len(entries) + 2, len(entries)) + entries if names else b""
    extensions = server + extensions
    body = b"\x03\x03" + bytes(32) + b"\0" + b"\0\x02\x13\x01" + b"\x01\0" + struct.pack("!H", len(extensions)) + extensions
    message = b"\x01" + len(body).to_bytes(3) + body
    return b"\x16" + version + struct.pack("!H", len(message)) + message


def test_server_name_comes_in_any_pieces():
    hello = client_hello(b"Example.org", extensions=struct.pack("!HH", 0x0A0A, 3) + b"abc")
    for size in range(len(hello)):
        assert server_name(hello[:size]) is None
    assert server_name(hello) == "example.org"
    assert server_name(hello + b"more") == "example.org"
    message = hello[5:]
    records = b"".join(b"\x16\x03\x01\0\x01" + bytes([byte]) for byte in message)
    assert server_name(records[:-1]) is None
    assert server_name(records) == "example.org"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x16\x02\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\0\0",
        b"\x16\x03\x01\0\x04\x02\0\0\0",
        client_hello(),
        client_hello(b"a.org", b"b.org"),
        client_hello(b"\xff.org"),
        client_hello(b"a.org", extensions=b"\0\0\0\x09\0\x07\0\0\x04b.or"),
        client_hello(b"a.org", extensions=b"\0"),
        b"\x16\x03\x01\0\x06\x01\0\0\x02\x03\x03",
    ],
)
def test_bad_client_hello(data):
    with pytest.raises(ClientHelloError):
        server_name(data)


def test_many_options_reach_the_environment():
    env = CodingEnv(provider="local", network=Egress(allow=["a.org"], port=8888), **OPTIONS)
    assert list(env.doors) == [8888]
    assert env.settings.all_variables["https_proxy"] == "http://127.0.0.1:8888"
    assert env.config.network is None
