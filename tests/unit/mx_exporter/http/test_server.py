"""Clients that stall, are slow, vanish or come in crowds, and how the server stops among them."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from mx_exporter.http import connection, server
from mx_exporter.http.message import Answer, App, Request
from tests import support
from tests.support import serving

SUCCESS = 'mx_p2p_source_attempts_total{policy="policy-0",result="success",scheme=""}'
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


def scrape_soon(exporter: serving.Exporter) -> serving.Answer:
    """A scrape that takes less than a second. The best of many: others share the cores."""
    took = []
    for _ in range(20):
        start = time.monotonic()
        answer = exporter.get()
        took.append(time.monotonic() - start)
        assert answer.status == 200
        if took[-1] < 1.0:
            return answer
    raise AssertionError(f"scrapes took {took}")


def big_page(directory: Path) -> None:
    """A page of more than a megabyte."""
    serving.attempts(directory, 2000, policies=2000)


@pytest.fixture
def stalled(spawn: support.Spawner, tmp_path: Path) -> Any:
    """An exporter, 100 clients that say nothing and 100 that say half."""
    serving.attempts(tmp_path, 3)
    exporter = serving.start(spawn, tmp_path)
    sockets = [exporter.connect() for _ in range(100)]
    sockets += [exporter.connect(SCRAPE[:-2]) for _ in range(100)]
    try:
        yield exporter, sockets
    finally:
        serving.close_all(sockets)


def test_stalled_clients_and_a_crowd(stalled: Any) -> None:
    exporter, _ = stalled
    with ThreadPoolExecutor(50) as crowd:
        answers = [crowd.submit(exporter.get) for _ in range(50)]
        assert scrape_soon(exporter).sample(SUCCESS) == 3
        assert {answer.result().status for answer in answers} == {200}


def test_sigterm_ends_it_soon_among_stalled_clients(stalled: Any) -> None:
    exporter, sockets = stalled
    idle = exporter.connect(SCRAPE)
    assert idle.recv(20).startswith(b"HTTP/1.1 200")
    start = time.monotonic()
    exporter.process.send_signal(signal.SIGTERM)
    assert exporter.process.result() == 0
    assert time.monotonic() - start < support.SOON
    assert [serving.read_all(sock) for sock in sockets] == [b""] * 200
    idle.close()
    assert "Traceback" not in exporter.log


def test_sigint_ends_it_with_success(spawn: support.Spawner, tmp_path: Path) -> None:
    exporter = serving.start(spawn, tmp_path)
    exporter.process.send_signal(signal.SIGINT)
    assert exporter.process.result() == 0
    assert "Traceback" not in exporter.log


def test_slow_readers(spawn: support.Spawner, tmp_path: Path) -> None:
    big_page(tmp_path)
    exporter = serving.start(spawn, tmp_path)
    size = len(exporter.get().body)
    assert size > 1_000_000
    before = scrape_soon(exporter).sample("process_resident_memory_bytes")
    sockets = [small_reader(exporter) for _ in range(50)]
    try:
        for sock in sockets:
            sock.sendall(SCRAPE)
        for sock in sockets:
            assert sock.recv(1) == b"H"
        after = scrape_soon(exporter).sample("process_resident_memory_bytes")
        # Each holds a piece, not a page (which would be 50 pages, twice over while copied).
        assert after - before < 25 * size
        # A reader that is slow, but reads, gets the whole page.
        with contextlib.closing(sockets.pop()) as sock:
            sock.settimeout(30)
            head, _, body = read_answer(sock, size).partition(b"\r\n\r\n")
            assert head.startswith(b"TTP/1.1 200")
            assert len(body) > 1_000_000
        start = time.monotonic()
        exporter.process.send_signal(signal.SIGTERM)
        assert exporter.process.result() == 0
        assert time.monotonic() - start < support.SOON
    finally:
        serving.close_all(sockets)


def small_reader(exporter: serving.Exporter) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.settimeout(30)
    sock.connect((exporter.host, exporter.port))
    return sock


def read_answer(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(65536)
        assert piece
        data += piece
    return data


def test_clients_that_vanish_while_they_are_answered(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    big_page(tmp_path)
    exporter = serving.start(spawn, tmp_path)
    fds = len(os.listdir(f"/proc/{exporter.process.pid}/fd"))
    for linger in (False, True):
        for _ in range(10):
            sock = small_reader(exporter)
            sock.sendall(SCRAPE)
            assert sock.recv(1) == b"H"
            if linger:  # a reset instead of a close
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()
    scrape_soon(exporter)
    # What a killed scrape leaves is released, too.
    support.wait_until(lambda: len(os.listdir(f"/proc/{exporter.process.pid}/fd")) <= fds)
    assert "Traceback" not in exporter.log


def few_descriptors() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))


def test_stalled_clients_cannot_use_up_descriptors(spawn: support.Spawner, tmp_path: Path) -> None:
    """Three times as many of them as there are descriptors: the oldest are hung up on."""
    serving.attempts(tmp_path, 3)
    exporter = serving.start(spawn, tmp_path, preexec_fn=few_descriptors)
    sockets = []
    try:
        for _ in range(200):
            sockets.append(exporter.connect(b"GET /metr"))
        assert scrape_soon(exporter).sample(SUCCESS) == 3
        assert len(os.listdir(f"/proc/{exporter.process.pid}/fd")) < 64
        assert sockets[0].recv(1) == b""
        # The youngest is still listened to.
        sockets[-1].sendall(b"ics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert sockets[-1].recv(12) == b"HTTP/1.1 200"
    finally:
        serving.close_all(sockets)
    assert "ERROR" not in exporter.log


def test_clients_that_read_no_answer_cannot_use_up_descriptors(
    spawn: support.Spawner, tmp_path: Path
) -> None:
    big_page(tmp_path)
    exporter = serving.start(spawn, tmp_path, preexec_fn=few_descriptors)
    size = len(exporter.get().body)
    sockets = []
    try:
        for _ in range(100):
            sockets.append(small_reader(exporter))
            sockets[-1].sendall(SCRAPE)
        assert len(scrape_soon(exporter).body) > size / 2
        assert len(os.listdir(f"/proc/{exporter.process.pid}/fd")) < 64
    finally:
        serving.close_all(sockets)
    assert "ERROR" not in exporter.log


# --------------------------------------------------------------------------------------
# Time limits, shortened: the server in this process, on real sockets


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(connection, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(connection, "IDLE_SECONDS", 0.6)


def against(app: App, client: Callable[[tuple[str, int]], Any]) -> Any:
    """What ``client`` returns in a thread while ``app`` is served."""

    async def serve() -> Any:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        serving_ = server.Server(app, [sock])
        await serving_.start()
        try:
            return await asyncio.to_thread(client, sock.getsockname())
        finally:
            await serving_.stop()

    return asyncio.run(serve())


def answering(body: bytes) -> App:
    async def app(_: Request) -> Answer:
        return Answer(body)

    return app


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("data", [b"", b"GET", SCRAPE[:-2]])
def test_an_unfinished_request_is_closed(data: bytes) -> None:
    def client(address: tuple[str, int]) -> float:
        with socket.create_connection(address, timeout=30) as sock:
            start = time.monotonic()
            sock.sendall(data)
            assert serving.read_all(sock) == b""
            return time.monotonic() - start

    assert 0.1 < against(answering(b"ok"), client) < 30


@pytest.mark.usefixtures("quick")
def test_single_bytes_do_not_extend_the_time_for_a_request() -> None:
    def client(address: tuple[str, int]) -> int:
        with socket.create_connection(address, timeout=0.02) as sock:
            for sent in range(1500):
                try:
                    sock.sendall(b"G")
                    if sock.recv(1) == b"":
                        return sent
                except TimeoutError:
                    continue
                except OSError:
                    return sent
        return -1

    assert 0 < against(answering(b"ok"), client) < 1500


@pytest.mark.usefixtures("quick")
def test_an_idle_connection_is_kept_and_then_closed() -> None:
    def client(address: tuple[str, int]) -> None:
        with socket.create_connection(address, timeout=30) as sock:
            sock.sendall(SCRAPE)
            assert sock.recv(1) == b"H"
            # Longer than a request may take, shorter than a connection may idle.
            sock.settimeout(0.3)
            with contextlib.suppress(TimeoutError):
                while True:
                    assert sock.recv(65536)
            sock.settimeout(30)
            sock.sendall(SCRAPE + SCRAPE[:5])
            assert serving.read_all(sock).startswith(b"HTTP/1.1 200")

    against(answering(b"ok"), client)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("request_", [SCRAPE, SCRAPE[:-2] + b"Connection: close\r\n\r\n"])
def test_a_connection_whose_answer_is_not_read_is_closed(request_: bytes) -> None:
    body = b"x" * 20_000_000

    def client(address: tuple[str, int]) -> int:
        with socket.create_connection(address, timeout=30) as sock:
            sock.sendall(request_)
            # Not one byte is read until the other side is gone.
            support.wait_until(lambda: not established(address, sock.getsockname()[1]))
            return len(serving.read_all(sock))

    assert against(answering(body), client) < len(body)


def test_a_page_is_handed_out_in_pieces() -> None:
    """So that a slow reader holds a piece of it in the connection's buffer, not all of it."""
    page = os.urandom(10_000_000)

    async def serve() -> tuple[int, bytes]:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        address = sock.getsockname()
        serving_ = server.Server(answering(page), [sock])
        await serving_.start()
        reader, writer = await asyncio.open_connection(*address, limit=4096)
        writer.write(SCRAPE[:-2] + b"Connection: close\r\n\r\n")
        while not (held := list(serving_._connections)) or held[0]._writable.is_set():
            await asyncio.sleep(0)
        for _ in range(100):  # rounds of the loop in which nothing more may be written
            await asyncio.sleep(0)
        buffered = held[0]._transport.get_write_buffer_size()
        got = await reader.read()
        writer.close()
        await serving_.stop()
        return buffered, got

    buffered, got = asyncio.run(serve())
    assert 0 < buffered <= 2 * connection.PIECE
    assert got.endswith(b"\r\n\r\n" + page)


def test_the_kernel_takes_little_for_a_reader_that_does_not_read() -> None:
    """Else 200 of them have hundreds of megabytes copied for them before a scrape is answered."""

    async def serve() -> int:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        address = sock.getsockname()
        serving_ = server.Server(answering(b"x" * 20_000_000), [sock])
        await serving_.start()
        client = socket.create_connection(address, timeout=30)
        client.sendall(SCRAPE)
        while not (held := list(serving_._connections)) or held[0]._writable.is_set():
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        held[0].hang_up()
        with client:
            got = await asyncio.to_thread(serving.read_all, client)
        await serving_.stop()
        return len(got)

    assert 0 < asyncio.run(serve()) < 2_000_000


def test_slow_readers_that_pipeline(spawn: support.Spawner, tmp_path: Path) -> None:
    big_page(tmp_path)
    exporter = serving.start(spawn, tmp_path)
    sockets = [small_reader(exporter) for _ in range(200)]
    try:
        for sock in sockets:
            sock.sendall(SCRAPE * 50)
        scrape_soon(exporter)
    finally:
        serving.close_all(sockets)


def sent(app: App, data: bytes) -> bytes:
    """All that comes back on a connection on which ``data`` was sent."""

    def client(address: tuple[str, int]) -> bytes:
        with socket.create_connection(address, timeout=30) as sock:
            sock.sendall(data)
            return serving.read_all(sock)

    return bytes(against(app, client))


def test_what_an_application_is_told_of_a_request() -> None:
    asked: list[Request] = []

    async def app(request: Request) -> Answer:
        asked.append(request)
        return Answer(b"ok")

    head = b"HEAD /a%20b%3Fc?d=e HTTP/1.1\r\nHost: a\r\nAccept: x\r\naccept: y\r\nA: \xe9\r\n"
    answer = sent(app, head + b"Connection: close\r\n\r\n")
    assert answer.endswith(b"content-length: 2\r\nConnection: close\r\n\r\n"), answer
    (request,) = asked
    assert (request.method, request.path) == ("HEAD", "/a b?c")
    assert dict(request.headers) == {
        "host": "a",
        "accept": "x, y",
        "a": "\xe9",
        "connection": "close",
    }


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://a:9402/metrics?x=y", "/metrics"),
        ("HTTPS://u@[::1]:9402/a%20b", "/a b"),
        ("http://a", "/"),
        ("http://a?x=/y", "/"),
        ("//a/metrics", "//a/metrics"),
        ("/http://a/metrics", "/http://a/metrics"),
        ("*", "*"),
    ],
)
def test_an_absolute_form_names_the_path_after_its_authority(target: str, path: str) -> None:
    async def app(request: Request) -> Answer:
        return Answer(request.path.encode())

    request = f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    assert sent(app, request.encode()).endswith(f"\r\n\r\n{path}".encode())


def test_an_application_that_raises_costs_one_answer(caplog: pytest.LogCaptureFixture) -> None:
    async def app(request: Request) -> Answer:
        if request.path == "/bad":
            raise ValueError("no page today")
        return Answer(b"ok")

    bad = SCRAPE.replace(b"/metrics", b"/bad")
    answer = sent(app, bad + SCRAPE[:-2] + b"Connection: close\r\n\r\n")
    assert [line[9:12] for line in answer.splitlines() if line.startswith(b"HTTP/")] == [
        b"500",
        b"200",
    ]
    assert "no page today" in caplog.text
    assert b"no page today" not in answer


@pytest.mark.parametrize(
    "more",
    [
        b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\n",
        b"Content-Length: 5\r\n\r\nhello" + SCRAPE,
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + SCRAPE,
        b"Content-Length: 0\r\n\r\n",
        b"Connection: close\r\n\r\n" + SCRAPE,
    ],
    ids=["one that waits for leave", "plain", "chunked", "empty", "after the last request"],
)
def test_a_body_is_read_past_and_its_answer_is_the_last(more: bytes) -> None:
    answer = sent(answering(b"ok"), SCRAPE[:-2] + more)
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"onnection: close\r\n\r\nok")
    assert answer.count(b"HTTP/1.1") == 1


def test_nonsense_in_the_body_of_a_request_in_hand_is_hung_up_on() -> None:
    async def app(_: Request) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    assert sent(app, SCRAPE[:-2] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n") == b""


def test_an_upgrade_is_declined_and_the_connection_goes_on() -> None:
    upgrade = SCRAPE[:-2] + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    answer = sent(answering(b"ok"), upgrade + SCRAPE[:-2] + b"Connection: close\r\n\r\n")
    assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2


@pytest.mark.usefixtures("quick")
def test_half_a_request_that_came_early_has_a_requests_time() -> None:
    """Not the longer one of a connection that idles."""

    def client(address: tuple[str, int]) -> float:
        with socket.create_connection(address, timeout=30) as sock:
            start = time.monotonic()
            sock.sendall(SCRAPE + SCRAPE[:-2])
            assert serving.read_all(sock).endswith(b"ok")
            return time.monotonic() - start

    assert min(against(answering(b"ok"), client) for _ in range(3)) < 0.5


def test_an_answer_that_nobody_waits_for_any_more_is_given_up() -> None:
    ended: list[str] = []

    async def app(_: Request) -> Answer:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        raise AssertionError

    def client(address: tuple[str, int]) -> None:
        with socket.create_connection(address, timeout=30) as sock:
            sock.sendall(SCRAPE)
        support.wait_until(lambda: ended == ["cancelled"])

    against(app, client)


def established(server_address: tuple[str, int], client_port: int | None = None) -> int:
    """How many of the server's ends of connections (with that client) are open."""
    ours = f":{server_address[1]:04X} "
    theirs = " 01 " if client_port is None else f":{client_port:04X} 01 "
    lines = Path("/proc/self/net/tcp").read_text().splitlines()
    return sum(ours in line[:20] and theirs in line[:40] for line in lines)


def test_closing_connections_with_unsent_bytes_count_towards_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "connection_limit", lambda: 4)

    def client(address: tuple[str, int]) -> None:
        sockets = []
        for _ in range(20):
            sockets.append(socket.create_connection(address, timeout=30))
            sockets[-1].sendall(SCRAPE[:-2] + b"Connection: close\r\n\r\n")
            assert sockets[-1].recv(1) == b"H"
        support.wait_until(lambda: established(address) <= 4)
        serving.close_all(sockets)

    against(answering(b"x" * 10_000_000), client)


def test_the_oldest_connection_without_a_request_makes_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "connection_limit", lambda: 4)
    release = []

    async def app(request: Request) -> Answer:
        while request.path == "/wait" and not release:
            await asyncio.sleep(0.001)
        return Answer(b"ok")

    def client(address: tuple[str, int]) -> None:
        def connect(data: bytes) -> socket.socket:
            sock = socket.create_connection(address, timeout=30)
            sock.sendall(data)
            return sock

        waiting = connect(SCRAPE.replace(b"metrics", b"wait"))
        idle = connect(SCRAPE)
        assert idle.recv(4) == b"HTTP"
        half, new, newer = connect(SCRAPE[:-2]), connect(SCRAPE[:-2]), connect(SCRAPE[:-2])
        # Five: the idle one was oldest of those that no one waits for ...
        serving.read_all(idle)
        newest = connect(SCRAPE)
        assert newest.recv(4) == b"HTTP"
        # ... then the one that stalls longest.
        assert serving.read_all(half) == b""
        release.append(True)
        for sock in (waiting, newest):
            sock.setblocking(True)
        assert waiting.recv(4) == b"HTTP"
        serving.close_all([waiting, idle, half, new, newer, newest])

    against(app, client)


@pytest.mark.parametrize(
    ("requests", "seconds"),
    [([b"", SCRAPE[:-2]], 0.35), ([SCRAPE], 0.95)],
    ids=["who stall are not waited for", "who take no answer not for long"],
)
def test_stopping_does_not_wait_for_stalled_clients(requests: list[bytes], seconds: float) -> None:
    async def serve() -> float:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        serving_ = server.Server(answering(b"x" * 20_000_000), [sock])
        await serving_.start()
        loop = asyncio.get_running_loop()
        clients = []
        for data in requests:
            client = socket.socket()
            client.setblocking(False)
            clients.append(client)
            await loop.sock_connect(client, sock.getsockname())
            await loop.sock_sendall(client, data)
            if data == SCRAPE:
                assert await loop.sock_recv(client, 1) == b"H"
        start = time.monotonic()
        await serving_.stop()
        took = time.monotonic() - start
        serving.close_all(clients)
        return took

    # Other processes may have the cores for a while.
    support.wait_until(lambda: asyncio.run(serve()) < seconds)


def test_a_running_answer_is_finished_before_the_server_stops() -> None:
    started, stopping = [], []

    async def app(_: Request) -> Answer:
        started.append(True)
        while not stopping:
            await asyncio.sleep(0.001)
        return Answer(b"finished")

    async def serve() -> bytes:
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        address = sock.getsockname()
        serving_ = server.Server(app, [sock])
        await serving_.start()

        def client() -> bytes:
            with socket.create_connection(address, timeout=30) as sock:
                sock.sendall(SCRAPE)
                return serving.read_all(sock)

        answer = asyncio.ensure_future(asyncio.to_thread(client))
        while not started:
            await asyncio.sleep(0.001)
        stop = asyncio.ensure_future(serving_.stop())
        await asyncio.sleep(0)
        stopping.append(True)
        await stop
        return await answer

    assert asyncio.run(serve()).endswith(b"finished")
