"""TLS and passwords on the endpoint: the file, real clients, a real Prometheus."""

from __future__ import annotations

import asyncio
import base64
import http.client
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt
import pytest
import trustme

from mx_exporter.errors import UsageError
from mx_exporter.http import basic_auth, web_config
from tests import support
from tests.support import serving

SUCCESS = 'mx_p2p_source_attempts_total{policy="policy-0",result="success",scheme=""}'
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"

#: The cheapest there is; what they cost is of no account here.
HASHED = {name: bcrypt.hashpw(name.encode(), bcrypt.gensalt(4)).decode() for name in ("a", "b")}


class Place:
    """A folder with certificates, and the file that names them."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        self.file = path / "web.yml"
        self.authority = trustme.CA()
        self.clients = trustme.CA()
        self.authority.cert_pem.write_to_path(path / "ca.crt")
        self.clients.cert_pem.write_to_path(path / "clients.crt")
        client = self.clients.issue_cert("prometheus")
        client.cert_chain_pems[0].write_to_path(path / "client.crt")
        client.private_key_pem.write_to_path(path / "client.key")
        self.renew()

    def renew(self) -> int:
        """Write a new certificate and its key; returns the serial number."""
        new = self.authority.issue_cert("127.0.0.1")
        for name, pem in (("crt", new.cert_chain_pems[0]), ("key", new.private_key_pem)):
            replace(self.path / f"server.{name}", pem.bytes())
        return serial(ssl.PEM_cert_to_DER_cert(new.cert_chain_pems[0].bytes().decode()))

    def write(self, *, tls: bool = True, clients: bool = False, users: str = "") -> Path:
        lines = []
        if tls:
            lines += ["tls_server_config:", "  cert_file: server.crt", "  key_file: server.key"]
        if clients:
            lines += ["  client_ca_file: clients.crt"]
            lines += ["  client_auth_type: RequireAndVerifyClientCert"]
        if users:
            lines += ["basic_auth_users:", *(f"  {user}: {HASHED[user]}" for user in users)]
        replace(self.file, "\n".join([*lines, ""]).encode())
        return self.file

    def client(self, *, certificate: bool = False) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.path / "ca.crt"))
        if certificate:
            context.load_cert_chain(self.path / "client.crt", self.path / "client.key")
        return context


def replace(path: Path, data: bytes) -> None:
    """At one stroke, as Kubernetes replaces a mounted secret."""
    path.with_suffix(".new").write_bytes(data)
    path.with_suffix(".new").rename(path)


def serial(der: bytes) -> int:
    from cryptography.x509 import load_der_x509_certificate

    return load_der_x509_certificate(der).serial_number


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "web")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "log").mkdir()
    serving.attempts(tmp_path / "log", 3)
    return tmp_path / "log"


class Secured:
    """A running exporter with a web configuration."""

    def __init__(
        self, spawn: support.Spawner, log: Path, file: Path, *, tls: bool = True, **more: Any
    ) -> None:
        self.exporter = serving.start(
            spawn, log, "--web.config.file", str(file), ready=False, **more
        )
        scheme = "https" if tls else "http"
        support.wait_until(lambda: f"serving {scheme}://127.0.0.1" in self.said())

    def said(self) -> str:
        assert self.exporter.process.poll() is None, self.exporter.log
        return self.exporter.log

    def get(
        self,
        tls: ssl.SSLContext | None = None,
        user: str = "",
        password: str = "",
        path: str = "/metrics",
    ) -> serving.Answer:
        headers = {}
        if user:
            token = base64.b64encode(f"{user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {token}"
        port = self.exporter.port
        connection: http.client.HTTPConnection
        if tls is None:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        else:
            connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=tls)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            got = {name.lower(): value for name, value in response.getheaders()}
            return serving.Answer(response.status, got, response.read())
        finally:
            connection.close()

    def scrape(self, tls: ssl.SSLContext | None = None, *credentials: str) -> float:
        """What a scrape shows; it waits for the first fold."""
        answer = support.wait_until(
            lambda: (found := self.get(tls, *credentials)).status != 503 and found
        )
        assert answer.status == 200, answer
        return answer.sample(SUCCESS)

    def serial(self, tls: ssl.SSLContext) -> int:
        with (
            socket.create_connection(("127.0.0.1", self.exporter.port), timeout=30) as raw,
            tls.wrap_socket(raw, server_hostname="127.0.0.1") as sock,
        ):
            der = sock.getpeercert(binary_form=True)
            assert der is not None
            return serial(der)


# --------------------------------------------------------------------------------------
# TLS


def test_tls(spawn: support.Spawner, log: Path, place: Place) -> None:
    secured = Secured(spawn, log, place.write())
    assert secured.scrape(place.client()) == 3
    # Whoever speaks plainly gets no answer, and does no harm.
    with pytest.raises((OSError, http.client.HTTPException)):
        secured.get()
    with pytest.raises(ssl.SSLError):
        secured.get(ssl.create_default_context())
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.load_verify_locations(place.path / "ca.crt")
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    assert secured.scrape(old) == 3
    assert "Traceback" not in secured.said()
    assert "ERROR" not in secured.said()


def test_a_version_may_be_asked_for(spawn: support.Spawner, log: Path, place: Place) -> None:
    text = place.write().read_text().replace("key_file", "min_version: TLS13\n  key_file")
    place.file.write_text(text)
    secured = Secured(spawn, log, place.file)
    old = place.client()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):  # noqa: PT011 - an alert, or the end of the connection
        secured.get(old)
    assert secured.scrape(place.client()) == 3


def test_client_certificates(spawn: support.Spawner, log: Path, place: Place) -> None:
    secured = Secured(spawn, log, place.write(clients=True))
    assert secured.scrape(place.client(certificate=True)) == 3
    with pytest.raises((OSError, http.client.HTTPException)):
        secured.get(place.client())
    # One that another authority signed is as good as none.
    stranger = place.authority.issue_cert("stranger")
    context = place.client()
    stranger.configure_cert(context)
    with pytest.raises((OSError, http.client.HTTPException)):
        secured.get(context)


def idle(secured: Secured, count: int) -> list[socket.socket]:
    return [secured.exporter.connect(b"\x16\x03\x01" if n % 2 else b"") for n in range(count)]


def test_idle_tls_clients_block_no_scrape(spawn: support.Spawner, log: Path, place: Place) -> None:
    secured = Secured(spawn, log, place.write())
    assert secured.scrape(place.client()) == 3
    sockets = idle(secured, 50)
    took = []
    for _ in range(3):
        start = time.monotonic()
        assert secured.scrape(place.client()) == 3
        took.append(time.monotonic() - start)
    assert min(took) < 1
    start = time.monotonic()
    secured.exporter.process.send_signal(signal.SIGTERM)
    assert secured.exporter.process.result() == 0
    assert time.monotonic() - start < 1.2
    serving.close_all(sockets)
    assert "Traceback" not in secured.exporter.log


def test_idle_tls_clients_cannot_use_up_descriptors(
    spawn: support.Spawner, log: Path, place: Place
) -> None:
    def few() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    secured = Secured(spawn, log, place.write(), preexec_fn=few)
    sockets = []
    try:
        for _ in range(4):
            sockets += idle(secured, 50)
            assert secured.scrape(place.client()) == 3
        assert len(os.listdir(f"/proc/{secured.exporter.process.pid}/fd")) < 64
        assert serving.read_all(sockets[0]) == b""
    finally:
        serving.close_all(sockets)
    assert "ERROR" not in secured.exporter.log


def test_a_handshake_has_its_time(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    from mx_exporter.http import server

    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.2)
    context = web_config.load(str(place.write())).tls

    async def serve() -> bytes:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        running = server.Server(None, [sock], context)
        await running.start()
        try:
            return await asyncio.to_thread(client, sock.getsockname())
        finally:
            await running.stop()

    def client(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address, timeout=30) as sock:
            return serving.read_all(sock)

    assert asyncio.run(serve()) == b""


# --------------------------------------------------------------------------------------
# Passwords


def test_passwords(spawn: support.Spawner, log: Path, place: Place) -> None:
    secured = Secured(spawn, log, place.write(tls=False, users="a"), tls=False)
    assert secured.scrape(None, "a", "a") == 3
    refused = secured.get()
    assert refused.status == 401
    assert refused.headers["www-authenticate"].startswith('Basic realm="mx-metrics"')
    for user, password in (("a", "b"), ("b", "a"), ("b", "b"), ("a", ""), ("a", "a" * 100)):
        assert secured.get(None, user, password).status == 401
    for path in ("/", "/nothing"):
        assert secured.get(path=path).status == 401
    # They say nothing but "ok", and probes have no password.
    for path in ("/healthz", "/readyz"):
        assert secured.get(path=path).status == 200


@pytest.mark.parametrize(
    "header",
    [b"", b"Basic", b"Basic !", b"Basic YQ==", b"Bearer YTph", b"Basic /zph", b"Basic YTph, x"],
)
def test_what_is_no_password(header: bytes) -> None:
    assert asked([[(b"authorization", header)]]) == [401]


def asked(
    requests: list[list[tuple[bytes, bytes]]], users: str = "a", *, together: bool = False
) -> list[int]:
    """What a guard answers to requests with these headers."""

    async def app(scope: Any, receive: Any, send: Any) -> None:  # noqa: ARG001
        await send({"type": "http.response.start", "status": 200})

    async def ask(guarding: basic_auth.Guard, headers: list[tuple[bytes, bytes]]) -> int:
        statuses = []

        async def send(message: dict[str, Any]) -> None:
            statuses.append(message.get("status"))

        scope = {"path": "/metrics", "method": "GET", "headers": headers}
        await guarding(scope, None, send)
        return int(statuses[0] or 0)

    async def run() -> list[int]:
        guarding = basic_auth.Guard(app)
        guarding.users = {user: HASHED[user].encode() for user in users}
        try:
            if together:
                return list(await asyncio.gather(*(ask(guarding, r) for r in requests)))
            return [await ask(guarding, headers) for headers in requests]
        finally:
            guarding.close()

    return asyncio.run(run())


def given(user: str, password: str) -> list[tuple[bytes, bytes]]:
    token = base64.b64encode(f"{user}:{password}".encode())
    return [(b"host", b"a"), (b"authorization", b"Basic " + token)]


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The hashes that passwords are checked against, one for each check."""
    made: list[bytes] = []
    real: Callable[[bytes, bytes], bool] = bcrypt.checkpw

    def counting(password: bytes, hashed: bytes) -> bool:
        assert threading.current_thread() is not threading.main_thread()
        made.append(hashed)
        return real(password, hashed)

    monkeypatch.setattr(bcrypt, "checkpw", counting)
    return made


@pytest.mark.parametrize("together", [False, True])
def test_a_right_password_is_checked_once(checks: list[bytes], together: bool) -> None:
    assert asked([given("a", "a")] * 50, together=together) == [200] * 50
    assert len(checks) == 1


def test_a_name_that_nobody_has_is_as_much_work(checks: list[bytes]) -> None:
    assert asked([given("a", "x"), given("nobody", "x"), given("nobody", "a")]) == [401] * 3
    assert checks == [HASHED["a"].encode()] * 3


def test_guesses_do_not_pile_up() -> None:
    guesses = [given("a", str(number)) for number in range(200)]
    statuses = asked(guesses, together=True)
    assert statuses.count(401) == basic_auth.WAITING
    assert statuses.count(503) == 200 - basic_auth.WAITING


def test_a_password_is_one_users(checks: list[bytes]) -> None:
    assert asked([given("a", "a"), given("b", "a"), given("b", "b")], "ab") == [200, 401, 200]
    assert len(checks) == 3


# --------------------------------------------------------------------------------------
# Changes


def test_a_new_certificate_is_taken_up(spawn: support.Spawner, log: Path, place: Place) -> None:
    secured = Secured(spawn, log, place.write())
    kept = http.client.HTTPSConnection(
        "127.0.0.1", secured.exporter.port, context=place.client(), timeout=60
    )
    kept.request("GET", "/healthz")
    assert kept.getresponse().read() == b"ok\n"
    new = place.renew()
    assert secured.serial(place.client()) != new
    support.wait_until(lambda: secured.serial(place.client()) == new)
    # Whoever was connected before stays so.
    kept.request("GET", "/healthz")
    assert kept.getresponse().read() == b"ok\n"
    kept.close()
    # Clients' certificates from now on.
    place.write(clients=True)
    support.wait_until(lambda: secured.said().count("was read again") == 2)
    with pytest.raises((OSError, http.client.HTTPException)):
        secured.get(place.client())
    assert secured.scrape(place.client(certificate=True)) == 3


def test_a_file_that_is_wrong_changes_nothing(
    spawn: support.Spawner, log: Path, place: Place
) -> None:
    secured = Secured(spawn, log, place.write(users="a"))
    tls = place.client()
    assert secured.scrape(tls, "a", "a") == 3
    for text, told in (
        ("tls_server_config: {cert_fil: x}", "tls_server_config.cert_fil: this key is not known"),
        ("", "tls_server_config is gone; it takes a restart to do without"),
        (place.write().read_text(), "basic_auth_users is gone"),
    ):
        replace(place.file, text.encode())
        said = f"ERROR the web configuration stays as it was: {place.file}: {told}"
        support.wait_until(lambda said=said: said in secured.said())
        assert secured.get(tls).status == 401
        assert secured.get(tls, "a", "a").status == 200
    # A certificate without its key, which then comes, though the file stays as it is.
    place.write(users="b")
    key = (place.path / "server.key").read_bytes()
    place.renew()
    new = (place.path / "server.key").read_bytes()
    replace(place.path / "server.key", key)
    support.wait_until(lambda: "are no key and its certificate" in secured.said())
    assert secured.get(tls, "a", "a").status == 200
    replace(place.path / "server.key", new)
    support.wait_until(lambda: secured.get(tls, "b", "b").status == 200)
    assert secured.get(tls, "a", "a").status == 401
    assert secured.said().count("stays as it was") == 4


def test_files_that_come_after_the_one_that_names_them(place: Place) -> None:
    watched = web_config.Watched(str(place.write()))
    assert not watched.look()
    for name in ("crt", "key"):
        (place.path / f"server.{name}").rename(place.path / f"put-aside.{name}")
    replace(place.file, place.file.read_bytes().replace(b"server.", b"other."))
    # The first look sees it change, the second takes it for whole, the third goes on trying.
    assert [watched.look() for _ in range(3)] == [False] * 3
    old = watched.config
    for name in ("crt", "key"):
        (place.path / f"put-aside.{name}").rename(place.path / f"other.{name}")
    assert watched.look()
    assert watched.config is not old


# --------------------------------------------------------------------------------------
# The file

TLS = "tls_server_config: {cert_file: server.crt, key_file: server.key, "


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("- a", "the file: expected keys and values"),
        ("a: [", "line 1, column 5: while parsing a flow node"),
        ("a: \0", "special characters are not allowed"),
        ("tls: {}", "tls: this key is not known here"),
        ("http_server_config: {http2: true}", "http_server_config: this key is not known here"),
        ("tls_server_config: 3", "tls_server_config: expected keys and values"),
        ("tls_server_config: {}", "tls_server_config: cert_file and key_file are both needed"),
        ("tls_server_config: {cert_file: server.crt}", "cert_file and key_file are both needed"),
        (TLS + "cipher_suites: []}", "tls_server_config.cipher_suites: this key is not known here"),
        (TLS + "client_allowed_sans: [a]}", "tls_server_config.client_allowed_sans: this key is"),
        (TLS + "key_file: server.key}", "key_file stands there twice"),
        (TLS + "min_version: TLS10}", "tls_server_config.min_version: TLS10: expected TLS12 or"),
        (TLS + "min_version: 1.3}", "tls_server_config.min_version: expected a text"),
        (TLS + "min_version: TLS13, max_version: TLS12}", "min_version: it is above max_version"),
        (TLS + "client_auth_type: RequestClientCert}", "client_auth_type: RequestClientCert: exp"),
        (TLS + "client_auth_type: RequireAndVerifyClientCert}", "are both, a client_ca_file and"),
        (TLS + "client_ca_file: clients.crt}", "are both, a client_ca_file and"),
        (
            TLS + "client_ca_file: none, client_auth_type: VerifyClientCertIfGiven}",
            "tls_server_config.client_ca_file: {folder}/none: No such file or directory",
        ),
        (
            TLS + "client_ca_file: web.yml, client_auth_type: VerifyClientCertIfGiven}",
            "tls_server_config.client_ca_file: {folder}/web.yml: ",
        ),
        (
            "tls_server_config: {cert_file: server.crt, key_file: client.key}",
            "tls_server_config.key_file: {folder}/client.key and {folder}/server.crt are no key",
        ),
        (
            "tls_server_config: {cert_file: none, key_file: server.key}",
            "tls_server_config.cert_file: {folder}/none: No such file or directory",
        ),
        ("basic_auth_users: [a]", "basic_auth_users: expected keys and values"),
        ("basic_auth_users: {1: x}", "basic_auth_users: 1: expected a name; put it in quotes"),
        ("basic_auth_users: {a: secret}", "basic_auth_users: a: expected a bcrypt hash"),
        ("basic_auth_users: {'a:b': x}", "basic_auth_users: a:b: a name may hold no colon"),
        ("basic_auth_users: {a: x, a: y}", "a stands there twice"),
    ],
)
def test_what_is_refused(text: str, told: str, place: Place) -> None:
    place.file.write_text(text)
    with pytest.raises(UsageError) as raised:
        web_config.load(str(place.file))
    message = str(raised.value)
    assert message.startswith(f"{place.file}: ")
    assert "<unicode string>" not in message
    assert told.replace("{folder}", str(place.path)) in message


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "basic_auth_users: {}"])
def test_a_file_may_ask_for_nothing(
    text: str, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.file.write_text(text)
    assert web_config.load(str(place.file)) == web_config.WebConfig()
    watched = web_config.Watched(str(place.file))
    assert [watched.look() for _ in range(3)] == [False] * 3
    (said,) = caplog.messages
    assert said == (
        f"{place.file} asks for neither TLS nor passwords: everybody may read the endpoint"
    )


def test_a_file_that_asks_for_something_is_no_news(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    web_config.Watched(str(place.write(users="a")))
    assert caplog.messages == []


def test_a_file_that_is_wrong_from_the_start(
    spawn: support.Spawner, log: Path, place: Place
) -> None:
    process = spawn.python(
        *("-m", "mx_exporter", "serve", "--dir", log, "--listen", "127.0.0.1:0"),
        *("--web.config.file", place.path / "none.yml"),
    )
    assert process.result() == 2
    assert process.error_output == (
        f"mx-metrics: {place.path}/none.yml: No such file or directory\n"
    )


def examples() -> list[str]:
    text = (support.ROOT / "docs" / "web-config.md").read_text()
    found = re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [example for example in found if "scrape_configs" not in example]


def test_promtool_accepts_our_examples_and_so_do_we(promtool: str, place: Place) -> None:
    written = [place.write(clients=True, users="ab").read_text(), *examples()]
    assert len(written) == 2
    (place.path / "clients-ca.crt").write_bytes((place.path / "clients.crt").read_bytes())
    for text in written:
        place.file.write_text(text)
        command = [promtool, "check", "web-config", place.file]
        checked = subprocess.run(command, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        config = web_config.load(str(place.file))
        assert config.tls is not None
        assert config.users


# --------------------------------------------------------------------------------------
# A real Prometheus

CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: right
  scheme: https
  static_configs: [{{targets: ["{target}"]}}]
  tls_config: {{ca_file: {path}/ca.crt, cert_file: {path}/client.crt, key_file: {path}/client.key}}
  basic_auth: {{username: a, password: a}}
- job_name: wrong_password
  scheme: https
  static_configs: [{{targets: ["{target}"]}}]
  tls_config: {{ca_file: {path}/ca.crt, cert_file: {path}/client.crt, key_file: {path}/client.key}}
  basic_auth: {{username: a, password: b}}
- job_name: no_certificate
  scheme: https
  static_configs: [{{targets: ["{target}"]}}]
  tls_config: {{ca_file: {path}/ca.crt}}
  basic_auth: {{username: a, password: a}}
"""


def test_a_real_prometheus(
    spawn: support.Spawner, prometheus: str, log: Path, place: Place, tmp_path: Path
) -> None:
    secured = Secured(spawn, log, place.write(clients=True, users="a"))
    target = f"127.0.0.1:{secured.exporter.port}"
    config = CONFIG.format(target=target, path=place.path)
    running = support.Prometheus(spawn, prometheus, tmp_path / "prometheus", config)

    def up() -> dict[str, str]:
        return {r["metric"]["job"]: r["value"][1] for r in running.query("up")}

    support.wait_until(lambda: len(up()) == 3 and up()["right"] == "1", limit=60)
    assert up() == {"right": "1", "wrong_password": "0", "no_certificate": "0"}
    (series,) = running.query('mx_p2p_source_attempts_total{result="success"}')
    assert series["value"][1] == "3"
    running.process.end()
