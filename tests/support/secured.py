"""An exporter with TLS and passwords: certificates, the file that names them, and clients."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
from pathlib import Path
from typing import Any

import bcrypt
import trustme

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
