"""Connections: kept, checked, replaced; names, addresses, sockets, TLS and proxies."""

from __future__ import annotations

import resource
import socket
import ssl
import sys
import time
from pathlib import Path

import gevent
import pytest

from truetail.errors import UsageError
from truetail.http import connect, origin
from truetail.http.client import HttpClient
from truetail.records import OK

sys.path.insert(0, str(Path(__file__).parent))
from hostile import Server, answering, read_request, serving, with_length

FINE = with_length(b"fine")


@pytest.fixture
def many_descriptors():
    """Over 1,200 open descriptors below the ones that the test opens."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4000:
        pytest.skip("this system allows under 4,000 descriptors")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 4000), hard))
    held = [socket.socket() for _ in range(1200)]
    yield
    for sock in held:
        sock.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def get(client, **options):
    return client.send(client.prepare("GET", "/"), **options)


def test_connection_is_kept():
    """A hundred requests, one connection, and exact instants in their order."""
    with Server(serving(FINE)) as server:
        client = HttpClient(server.url)
        for _ in range(100):
            x = get(client).exchange
            assert x.outcome == OK
            assert x.sent_ns < x.first_byte_ns <= x.done_ns
        assert (server.connections, client.counts.opened) == (1, 1)


def test_connection_is_kept_with_many_descriptors(many_descriptors):
    """Also where the descriptor is over 1,024, which select cannot ask about."""
    with Server(serving(FINE)) as server:
        client = HttpClient(server.url)
        for _ in range(50):
            assert get(client).body == b"fine"
        assert client._pool._idle[0].sock.fileno() > 1024
        assert server.connections == 1


def test_stock_fast_http_user_keeps_its_connection_with_many_descriptors(many_descriptors):
    """The mend, called twice: stock FastHttpUser opens one connection; without it, one a request."""
    from geventhttpclient.connectionpool import ConnectionPool
    from locust import FastHttpUser
    from locust.env import Environment

    from truetail.fast_keepalive import mend

    opened = {}
    unmended = ConnectionPool._is_socket_alive
    try:
        for mended in (False, True):
            if mended:
                mend()
                mend()
            with Server(serving(FINE)) as server:
                user = type("U", (FastHttpUser,), {"host": server.url})(Environment(host=server.url))
                for _ in range(30):
                    assert user.client.get("/").text == "fine"
                opened[mended] = server.connections
    finally:
        ConnectionPool._is_socket_alive = unmended
    assert opened[True] == 1
    assert opened[False] in (1, 30), "30 until geventhttpclient mends it itself"


def test_connection_per_request():
    """keep_alive per-request opens one each time, and says so to the server."""
    seen = []

    def fault(sock):
        seen.append(read_request(sock))
        sock.sendall(FINE)

    with Server(fault) as server:
        client = HttpClient(server.url, keep_alive="per-request")
        for _ in range(3):
            assert get(client).exchange.connect_us > 0
        assert server.connections == 3
        assert b"\r\nConnection: close\r\n" in seen[0]


def test_closed_while_idle_is_seen_before_sending():
    """A connection that the server closed in between is not used: no failure, no second sending."""
    with Server(answering(FINE)) as server:
        client = HttpClient(server.url)
        for _ in range(5):
            assert get(client).exchange.outcome == OK
            gevent.sleep(0.02)
        assert (server.connections, client.counts.resent) == (5, 0)


def test_bytes_nobody_asked_for_spoil_a_connection():
    """A 408 that a server sends into an idle connection is not taken for the next answer."""
    with Server(answering(FINE, with_length(b"late", status=b"408 Timeout"), pause_s=0.05)) as server:
        client = HttpClient(server.url)
        assert get(client).body == b"fine"
        gevent.sleep(0.15)
        assert get(client).body == b"fine"


def test_idle_limit():
    """A connection idle for longer than the limit is closed, not used."""
    with Server(serving(FINE)) as server:
        client = HttpClient(server.url, idle_limit_s=0.05)
        get(client)
        gevent.sleep(0.1)
        get(client)
        assert server.connections == 2


def closing_race(read_first):
    """Answers once; then closes at the next request's arrival, with or without having read it."""
    reads = []

    def fault(sock):
        read_request(sock)
        sock.sendall(FINE)
        if read_first:
            reads.append(read_request(sock))

    return fault, reads


def blind(monkeypatch):
    """The liveness check sees nothing: as when the server's FIN is still on its way."""
    monkeypatch.setattr("truetail.http.pool.Connection.alive", lambda self: True)


@pytest.mark.skipif(sys.platform != "linux", reason="TCP_INFO is Linux's")
def test_post_that_the_server_never_saw_goes_out_again(monkeypatch):
    """The keep-alive race lost: nothing of the POST was acknowledged, so it is sent once more, and counted."""
    blind(monkeypatch)
    fault, _ = closing_race(read_first=False)
    with Server(fault) as server:
        client = HttpClient(server.url)
        post = client.prepare("POST", "/", {}, b"{}")
        assert client.send(post).exchange.outcome == OK
        gevent.sleep(0.1)
        exchange = client.send(post).exchange
        assert exchange.outcome == OK, exchange
        assert (client.counts.resent, server.connections) == (1, 2)


def test_post_that_the_server_read_is_not_sent_twice(monkeypatch):
    """A server that reads a POST and hangs up has it once; the client reports a reset."""
    blind(monkeypatch)
    fault, reads = closing_race(read_first=True)
    with Server(fault) as server:
        client = HttpClient(server.url)
        post = client.prepare("POST", "/", {}, b"{}")
        client.send(post)
        exchange = client.send(post).exchange
        assert exchange.error_class == "reset"
        assert client.counts.resent == 0
        assert server.connections == 1
    assert len(reads) == 1


def test_get_is_sent_again_but_once(monkeypatch):
    """An idempotent request goes out a second time on a new connection; a second loss is a failure."""
    blind(monkeypatch)
    fault, _ = closing_race(read_first=True)
    with Server(fault) as server:
        client = HttpClient(server.url)
        get(client)
        assert get(client).exchange.outcome == OK
        assert client.counts.resent == 1
    with Server(answering()) as server:
        client = HttpClient(server.url)
        assert get(client).exchange.error_class == "reset"
        assert server.connections == 1, "a new connection that fails is not tried again"


def test_refused():
    """Nobody listens: class connect, at once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        exchange = get(HttpClient(f"http://127.0.0.1:{probe.getsockname()[1]}")).exchange
    assert (exchange.error_class, exchange.error_detail) == ("connect", "connection refused")


def test_unknown_name():
    """A name that cannot exist (RFC 6761): class dns."""
    assert get(HttpClient("http://nowhere.invalid", deadline_s=8)).exchange.error_class in ("dns", "timeout-connect")


def test_connect_timeout():
    """A full backlog neither accepts nor refuses: timeout-connect at the connect limit."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        fillers = [socket.socket() for _ in range(4)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        gevent.sleep(0.05)
        begun = time.monotonic()
        exchange = get(HttpClient(f"http://127.0.0.1:{full.getsockname()[1]}", connect_timeout_s=0.3)).exchange
        took = time.monotonic() - begun
        for filler in fillers:
            filler.close()
    assert exchange.error_class == "timeout-connect"
    assert took < 2


def test_several_addresses(monkeypatch):
    """A name with a dead and a living address: every request reaches the living one, and new connections are spread."""
    with Server(serving(FINE)) as one, Server(serving(FINE), address=("127.0.0.2", 0)) as two, socket.socket() as dead:
        dead.bind(("127.0.0.3", 0))
        places = [("127.0.0.1", one.port), dead.getsockname(), ("127.0.0.2", two.port)]
        found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", place) for place in places]
        monkeypatch.setattr(connect.socket, "getaddrinfo", lambda *_: found)
        client = HttpClient("http://several.test:1", keep_alive="per-request")
        for _ in range(12):
            assert get(client).exchange.outcome == OK
        assert one.connections >= 4
        assert two.connections >= 4


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6():
    """[::1] in a URL, and in the Host header."""
    seen = []

    def fault(sock):
        seen.append(read_request(sock))
        sock.sendall(FINE)

    try:
        server = Server(fault, family=socket.AF_INET6, address=("::1", 0))
    except OSError:
        pytest.skip("no IPv6 loopback")
    with server:
        assert get(HttpClient(f"http://[::1]:{server.port}")).body == b"fine"
    assert f"Host: [::1]:{server.port}\r\n".encode() in seen[0]


def test_unix_socket(tmp_path):
    """unix:/path, kept like any other connection; and a path where nobody listens."""
    path = str(tmp_path / "s")
    with Server(serving(FINE), family=socket.AF_UNIX, address=path) as server:
        client = HttpClient(f"unix:{path}")
        assert [get(client).body for _ in range(3)] == [b"fine"] * 3
        assert server.connections == 1
    assert get(HttpClient(f"unix:{path}x")).exchange.error_class == "connect"


# -- TLS ----------------------------------------------------------------------------------------------------------------


def tls_server(folder, fault, client_ca=None, listen=("127.0.0.1", 0)):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    if client_ca:
        context.load_verify_locations(folder / client_ca)
        context.verify_mode = ssl.CERT_REQUIRED

    def secured(sock):
        try:
            wrapped = context.wrap_socket(sock, server_side=True)
        except OSError:
            return
        with wrapped:
            fault(wrapped)

    return Server(secured, address=listen)


def test_tls_with_an_authority_of_ones_own(certificates):
    """The CA that the scenario names is trusted, the connection kept under TLS 1.3 with its session tickets."""
    with tls_server(certificates, serving(FINE)) as server:
        client = HttpClient(f"https://localhost:{server.port}", tls={"ca": str(certificates / "ca.pem")})
        for _ in range(5):
            assert get(client).body == b"fine"
        assert client.counts.opened == 1


@pytest.mark.parametrize(
    ("ca", "address", "detail"),
    [
        (None, "localhost", "unable to get local issuer certificate"),
        ("other.pem", "localhost", "unable to get local issuer certificate"),
        ("ca.pem", "127.0.0.2", "IP address mismatch, certificate is not valid for '127.0.0.2'"),
    ],
)
def test_tls_refusals_say_why(certificates, ca, address, detail):
    """Unknown authority, another authority, another address than the certificate's: class tls with OpenSSL's words."""
    settings = {"ca": str(certificates / ca)} if ca else {}
    with tls_server(certificates, serving(FINE), listen=("0.0.0.0", 0)) as server:
        exchange = get(HttpClient(f"https://{address}:{server.port}", tls=settings)).exchange
    assert exchange.error_class == "tls"
    assert detail in exchange.error_detail


def test_tls_verify_off(certificates):
    """verify: false takes any certificate."""
    with tls_server(certificates, serving(FINE)) as server:
        assert get(HttpClient(f"https://127.0.0.1:{server.port}", tls={"verify": False})).body == b"fine"


def test_tls_client_certificate(certificates):
    """Shown where the server asks for one; without it the failure is no success."""
    with tls_server(certificates, serving(FINE), client_ca="ca.pem") as server:
        ours = {"ca": str(certificates / "ca.pem")}
        shown = ours | {"cert": str(certificates / "client.pem"), "key": str(certificates / "client.key")}
        assert get(HttpClient(f"https://localhost:{server.port}", tls=shown)).body == b"fine"
        assert get(HttpClient(f"https://localhost:{server.port}", tls=ours)).exchange.error_class in ("tls", "reset")


def test_tls_to_a_server_that_speaks_none():
    """Plain HTTP where TLS was asked for; and a server that is silent in the handshake."""
    with Server(lambda sock: sock.sendall(FINE)) as server:
        assert get(HttpClient(f"https://127.0.0.1:{server.port}", tls={"verify": False})).exchange.error_class == "tls"
    with Server(lambda sock: time.sleep(1)) as server:
        client = HttpClient(f"https://127.0.0.1:{server.port}", tls={"verify": False}, connect_timeout_s=0.2)
        assert get(client).exchange.error_class == "timeout-connect"


def test_tls_files_that_do_not_serve(tmp_path):
    """A missing or wrong PEM file is an error before the run, with its name."""
    (tmp_path / "ca.pem").write_text("no certificate")
    with pytest.raises(UsageError, match=r"target\.tls\.ca: .*ca\.pem"):
        HttpClient("https://x", tls={"ca": str(tmp_path / "ca.pem")})
    with pytest.raises(UsageError, match=r"target\.tls\.cert"):
        HttpClient("https://x", tls={"cert": str(tmp_path / "no.pem"), "key": str(tmp_path / "no.key")})


# -- proxies ------------------------------------------------------------------------------------------------------------


def test_http_proxy_gets_the_absolute_form():
    """A plain target through a proxy: the request line holds the whole URI, Host the target."""
    seen = []

    def fault(sock):
        while request := read_request(sock):
            seen.append(request)
            sock.sendall(FINE)

    with Server(fault) as proxy:
        client = HttpClient("http://service.test:81/base", proxy=proxy.url)
        assert client.send(client.prepare("GET", "/x?y=1")).body == b"fine"
    assert seen[0].startswith(b"GET http://service.test:81/base/x?y=1 HTTP/1.1\r\n")
    assert b"\r\nHost: service.test:81\r\n" in seen[0]


def test_https_through_a_proxy_is_a_tunnel(certificates):
    """CONNECT, then TLS with the target itself; a proxy that refuses is class connect with its status."""
    asked = []

    with tls_server(certificates, serving(FINE)) as target:

        def tunnel(sock):
            asked.append(read_request(sock))
            sock.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            with socket.create_connection(("127.0.0.1", target.port)) as onward:
                gevent.spawn(pump, onward, sock)
                pump(sock, onward)

        with Server(tunnel) as proxy:
            tls = {"ca": str(certificates / "ca.pem")}
            client = HttpClient(
                f"https://localhost:{target.port}", tls=tls, proxy=proxy.url, headers={"Proxy-Authorization": "Basic abc"}
            )
            assert [get(client).body for _ in range(3)] == [b"fine"] * 3
    assert len(asked) == 1
    assert b"Proxy-Authorization: Basic abc" in asked[0]
    with Server(answering(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")) as proxy:
        exchange = get(HttpClient("https://service.test", proxy=proxy.url)).exchange
    assert (exchange.error_class, exchange.error_detail) == ("connect", "proxy refused the tunnel: 407")


def pump(source, sink):
    while data := source.recv(65536):
        sink.sendall(data)


def test_total_deadline_covers_all_phases():
    """Slow by a little in each phase: the sum counts, not each recv."""
    pieces = [b"HTTP/1.1 200 OK\r\n", b"Content-Length: 5\r\n\r\n", b"a", b"b", b"c", b"d", b"e"]
    with Server(answering(*pieces, pause_s=0.1)) as server:
        client = HttpClient(server.url)
        exchange = get(client, deadline_s=0.35).exchange
        assert exchange.error_class == "timeout-body"
        assert 0.3e9 < exchange.done_ns - exchange.sent_ns < 0.6e9
        assert get(client, deadline_s=3).body == b"abcde"


def test_killed_user_leaves_no_connection_behind():
    """A greenlet killed in mid-request closes its connection: its late answer cannot reach another request."""
    with Server(answering(b"", with_length(b"late"), pause_s=0.3)) as server:
        client = HttpClient(server.url)
        user = gevent.spawn(get, client)
        gevent.sleep(0.1)
        user.kill()
        assert len(client._pool) == 0


def test_many_at_once_never_wait_for_each_other():
    """200 requests in flight need 200 connections and the time of one: there is no hidden limit."""

    def fault(sock):
        while read_request(sock):
            time.sleep(0.3)
            sock.sendall(FINE)

    with Server(fault) as server:
        client = HttpClient(server.url)
        users = [gevent.spawn(get, client) for _ in range(200)]
        gevent.joinall(users)
        services = [(user.value.exchange.done_ns - user.value.exchange.sent_ns) / 1e9 for user in users]
        assert server.connections == 200
        assert all(user.value.exchange.outcome == OK for user in users)
        assert min(services) >= 0.29


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://a:99999", "http://u:p@x", "localhost:80", "unix:relative", ""])
def test_wrong_urls_are_refused(url):
    """With what was found and what is allowed."""
    with pytest.raises(UsageError, match="target URL: found"):
        origin.parse(url)


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "/a b", {}),
        ("GET", "/\r\nX: y", {}),
        ("G T", "/", {}),
        ("GET", "/", {"X": "a\r\nY: b"}),
        ("GET", "/", {"X y": "a"}),
        ("GET", "/", {"Content-Length": "5"}),
        ("GET", "/é", {}),
    ],
)
def test_requests_that_would_break_the_message_are_refused(method, path, headers):
    """Line breaks, blanks and lengths of one's own would smuggle a second request in."""
    with pytest.raises(UsageError):
        HttpClient("http://x").prepare(method, path, headers)


def test_request_bytes():
    """The whole request, byte by byte: ours win over the client's headers whatever their case."""
    client = HttpClient("http://x:80/base", headers={"Accept": "a/b", "X-One": "1"})
    request = client.prepare("post", "/p?q", {"x-one": "2"}, b"{}")
    assert request.wire == b"POST /base/p?q HTTP/1.1\r\nHost: x\r\nAccept: a/b\r\nx-one: 2\r\nContent-Length: 2\r\n\r\n{}"
    assert client.prepare("GET", "/").wire.endswith(b"X-One: 1\r\n\r\n")
    assert request.with_body(b"abc").wire.endswith(b"Content-Length: 3\r\n\r\nabc")
