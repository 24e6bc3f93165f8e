"""TLS on the endpoint: certificates, versions, and clients that never finish a handshake."""

from __future__ import annotations

import asyncio
import http.client
import os
import resource
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest

from mx_exporter.http import web_config
from mx_exporter.http.message import Answer, Request
from tests import support
from tests.support import serving
from tests.support.secured import Place, Secured


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


def test_a_minimum_tls_version_can_be_set(spawn: support.Spawner, log: Path, place: Place) -> None:
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
    start = time.monotonic()
    assert secured.scrape(place.client()) == 3
    assert time.monotonic() - start < support.SOON
    start = time.monotonic()
    secured.exporter.process.send_signal(signal.SIGTERM)
    assert secured.exporter.process.result() == 0
    assert time.monotonic() - start < support.SOON
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


def test_an_unfinished_handshake_is_closed(monkeypatch: pytest.MonkeyPatch, place: Place) -> None:
    from mx_exporter.http import server

    monkeypatch.setattr(server, "HANDSHAKE_SECONDS", 0.2)
    context = web_config.load(str(place.write())).tls

    async def nobody(_: Request) -> Answer:
        raise AssertionError

    async def serve() -> bytes:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        running = server.Server(nobody, [sock], context)
        await running.start()
        try:
            return await asyncio.to_thread(client, sock.getsockname())
        finally:
            await running.stop()

    def client(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address, timeout=30) as sock:
            return serving.read_all(sock)

    assert asyncio.run(serve()) == b""
