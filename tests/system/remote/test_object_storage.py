"""Logs that are read where they lie: in a bucket of a real S3 server, and on a web server."""

from __future__ import annotations

import base64
import functools
import gzip
import http.server
import io
import json
import ssl
import threading
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme

from tests import support
from tests.support.folding import fold, page_of
from tests.support.load_logs import ranks

PROGRAM = support.ROOT / "tests/support/programs/commands.py"

#: What no message may say.
SECRET = "hunter2"


class Result(NamedTuple):
    code: int
    out: str
    err: str


def results(
    spawn: support.Spawner, place: Path, *commands: list[str], **env: str
) -> Iterator[Result]:
    """Run commands one after the other, in one process."""
    asked = place / "commands.json"
    asked.write_text(json.dumps(commands))
    process = spawn.python(PROGRAM, asked, env=env)
    assert process.result() == 0, process.error_output
    assert process.error_output == ""
    for each in json.loads(process.output):
        result = Result(*each)
        assert SECRET not in result.out + result.err
        yield result


def put(address: str, data: bytes = b"", method: str = "PUT") -> None:
    """Send something to a server."""
    kind = {"Content-Type": "application/octet-stream"}
    request = urllib.request.Request(address, data, kind, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        answer.read()


def zipped(paths: list[Path]) -> bytes:
    """An archive of files, and of what is larger than all that is read at a time."""
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for path in paths:
            archive.write(path, path.name)
        archive.writestr("noise", bytes(9 << 20))
    return whole.getvalue()


@pytest.mark.long
def test_a_bucket(tmp_path: Path, spawn: support.Spawner) -> None:
    paths = ranks(tmp_path / "log", processes=2)
    right = page_of(fold(line for path in paths for line in path.read_bytes().splitlines()).state)
    port = support.free_port()
    address = f"http://127.0.0.1:{port}"
    server = spawn.python("-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", f"{port}")

    def ready() -> bool:
        assert server.poll() is None, server.error_output
        try:
            put(f"{address}/bucket")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True

    support.wait_until(ready)
    for path in paths:
        put(f"{address}/bucket/a%20log/{path.name}", path.read_bytes())
        put(f"{address}/bucket/packed/{path.name}.gz", gzip.compress(path.read_bytes()))
    put(f"{address}/bucket/log.bin", zipped(paths))
    put(f"{address}/bucket/day=1/app-1.log", b"".join(path.read_bytes() for path in paths[:2]))
    put(f"{address}/bucket/day=2/app-1.log", b"".join(path.read_bytes() for path in paths[2:]))

    aws = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    options = ["--openmetrics", "--source-id-label"]
    whole = [
        ["s3://bucket/a log"],
        ["s3://bucket/packed/"],
        ["s3://bucket/packed/*-0.jsonl.gz", "s3://bucket/a log/*-1.jsonl"],
        ["s3://bucket/log.bin"],
        ["s3://bucket/**/day=*/*.log"],
    ]
    asked = [["replay", *options, *logs] for logs in whole]
    missing = [["replay", "s3://bucket/no"], ["replay", "s3://bucket/n*"], ["replay", "s3://no/x"]]
    found = list(results(spawn, tmp_path, *asked, *missing, **aws))
    for logs, result in zip(whole, found, strict=False):
        assert (logs, result.code) == (logs, 0)
        assert result.out.encode() == right
    assert [result.code for result in found[len(whole) :]] == [2, 2, 2]
    assert found[-3].err == "mx-metrics: s3://bucket/no: no such file or directory\n"
    assert found[-2].err == "mx-metrics: s3://bucket/n*: nothing matches this pattern\n"

    put(f"{address}/moto-api/reset-auth", b"0", "POST")  # from now on it looks at keys
    (denied,) = results(spawn, tmp_path, ["check", "s3://bucket/packed"], **aws)
    said = "mx-metrics: s3://bucket/packed: cannot be read: access is denied (403)\n"
    assert denied == (1, "", said)


class Handler(http.server.SimpleHTTPRequestHandler):
    """A plain web server, of which some answers are bad."""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        if not self._refused():
            super().do_HEAD()

    def do_GET(self) -> None:
        if self._refused():
            return
        if self.path.startswith("/broken/"):
            data = Path(self.translate_path(self.path)).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(data) + 1))
            self.end_headers()
            self.wfile.write(data)
        else:
            super().do_GET()

    def _refused(self) -> bool:
        user = base64.b64encode(f"user:{SECRET}".encode()).decode()
        if self.path.startswith("/private/") and self.headers["Authorization"] != f"Basic {user}":
            self.send_error(401)
        elif self.path.startswith("/forbidden"):
            self.send_error(403)
        else:
            return False
        return True


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Clients may go when they have what they want."""


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """Host and port of a web server with TLS, which serves the folder ``www``."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    handler = functools.partial(Handler, directory=str(tmp_path / "www"))
    with Server(("127.0.0.1", 0), handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_web_server(web: str, tmp_path: Path, spawn: support.Spawner) -> None:
    paths = ranks(tmp_path / "log", processes=2)
    right = page_of(fold(line for path in paths for line in path.read_bytes().splitlines()).state)
    for folder in ("log", "private", "broken"):
        place = tmp_path / "www" / folder
        place.mkdir(parents=True)
        for path in paths:
            (place / path.name).write_bytes(path.read_bytes())
    (tmp_path / "www" / "log.zip").write_bytes(zipped(paths))
    replay = ["replay", "--openmetrics", "--source-id-label"]
    listed = f"https://{web}/log/"
    globbed = f"https://user:{SECRET}@{web}/private/events-*"
    signed = [f"https://{web}/log/{path.name}?X-Amz-Signature={SECRET}" for path in paths]
    nobody = f"https://127.0.0.1:{support.free_port()}/x"
    faulty = {
        f"https://{web}/private/{paths[0].name}": (1, "cannot be read: access is denied (401)"),
        f"https://{web}/forbidden?token={SECRET}": (1, "cannot be read: access is denied (403)"),
        f"https://{web}/nothing?token={SECRET}": (2, "no such file or directory"),
        f"https://user:{SECRET}@{nobody[8:]}": (1, "cannot be read: Connection refused"),
        f"https://{web}/broken/{paths[0].name}": (1, "cannot be read: the connection was lost"),
        f"https://{web}/log.zip": (
            1,
            "cannot be read: no parts of it are given, which a zip needs; unpack it first",
        ),
    }
    asked = [[*replay, *logs] for logs in ([listed], [globbed], signed)]
    asked += [["replay", address] for address in faulty]
    ca = str(tmp_path / "ca.pem")
    found = list(results(spawn, tmp_path, *asked, SSL_CERT_FILE=ca))
    for result in found[:3]:
        assert result.code == 0
        assert result.out.encode() == right
    for result, (code, said) in zip(found[3:], faulty.values(), strict=True):
        assert result.code == code
        assert result.err.endswith(f": {said}\n")
