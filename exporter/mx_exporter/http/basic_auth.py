"""Who may see the pages: basic authentication in front of the endpoint.

Passwords are kept as bcrypt hashes, and to check one takes tens of milliseconds on purpose. That
is done in a thread of its own, and once: a scrape every few seconds costs no bcrypt.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from ..worker import Worker

#: Paths that say nothing but "ok": probes come without a password.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})

#: Passwords whose check may be waited for at a time. Guessing keeps one thread busy, no more.
WAITING = 32

#: Right passwords that are remembered.
KNOWN = 128

#: bcrypt looks at no more of a password.
_BCRYPT_BYTES = 72


class Guard:
    """An ASGI application in front of another one.

    :ivar users: bcrypt hashes by name; without any, everybody may see everything.
    """

    def __init__(self, app: Any) -> None:
        self.users: Mapping[str, bytes] = {}
        self._app = app
        self._worker: Worker | None = None
        self._known: set[bytes] = set()
        self._asked: dict[bytes, asyncio.Future[bool]] = {}
        # What is remembered is of no use to whoever reads our memory elsewhere.
        self._salt = os.urandom(16)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        status = HTTPStatus.OK
        if self.users and scope["path"] not in OPEN_PATHS:
            status = await self._look_at(scope["headers"])
        if status == HTTPStatus.OK:
            await self._app(scope, receive, send)
        else:
            await _refuse(status, scope["method"], send)

    def close(self) -> None:
        """Let the thread end."""
        if self._worker is not None:
            self._worker.close()

    async def _look_at(self, headers: Any) -> HTTPStatus:
        given = [value for name, value in headers if name == b"authorization"]
        credentials = _credentials(given[0]) if len(given) == 1 else None
        if credentials is None:
            return HTTPStatus.UNAUTHORIZED
        user, password = credentials
        hashed = self.users.get(user)
        key = self._key(user, hashed, password)
        if key not in self._known:
            if key not in self._asked and len(self._asked) >= WAITING:
                return HTTPStatus.SERVICE_UNAVAILABLE
            # A name that nobody has must take as long as one that somebody has.
            right = await self._check(key, password, hashed or next(iter(self.users.values())))
            if hashed is None or not right:
                return HTTPStatus.UNAUTHORIZED
            if len(self._known) >= KNOWN:
                self._known.clear()
            self._known.add(key)
        return HTTPStatus.OK

    def _key(self, user: str, hashed: bytes | None, password: bytes) -> bytes:
        parts = (user.encode(), hashed or b"", password)
        lengths = b"".join(len(part).to_bytes(8, "big") for part in parts)
        return hashlib.blake2b(lengths + b"".join(parts), key=self._salt).digest()

    async def _check(self, key: bytes, password: bytes, hashed: bytes) -> bool:
        """Whether it is the password; those who ask the same meanwhile share the answer."""
        asked = self._asked.get(key)
        if asked is None:
            if self._worker is None:
                self._worker = Worker(asyncio.get_running_loop(), "mx-guard")
            asked = self._asked[key] = self._worker.call(lambda: _is_right(password, hashed))
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(asked)


def _is_right(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:
        return False


def _credentials(header: bytes) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except ValueError:
        return None


async def _refuse(status: HTTPStatus, method: str, send: Any) -> None:
    body = f"{status.phrase}\n".encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        # A body that may follow is not read, and cannot be told from the next request.
        (b"connection", b"close"),
    ]
    if status == HTTPStatus.UNAUTHORIZED:
        headers.append((b"www-authenticate", b'Basic realm="mx-metrics", charset="UTF-8"'))
    else:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": int(status), "headers": headers})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
