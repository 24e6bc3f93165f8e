"""Who may see the pages: basic authentication in front of the endpoint.

Passwords are kept as bcrypt hashes, and checking one takes tens of milliseconds on purpose. A
thread of its own does that, once for each password: a scrape every few seconds costs no bcrypt.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
from collections.abc import Mapping
from http import HTTPStatus

from ..worker import Worker
from .message import Answer, App, Request, plain

#: Paths that say nothing but "ok": probes come without a password.
OPEN_PATHS = frozenset({"/healthz", "/readyz"})

#: Passwords that may wait for their check at a time. Guessing keeps one thread busy, no more.
WAITING = 32

#: Right passwords that are remembered.
KNOWN = 128

#: What a client is told to send.
_CHALLENGE = 'Basic realm="mx-metrics", charset="UTF-8"'

#: bcrypt reads no more of a password.
_BCRYPT_BYTES = 72


class BasicAuth:
    """An application in front of another one.

    :ivar users: bcrypt hashes by name; without any, everybody may see everything.
    """

    def __init__(self, app: App) -> None:
        self.users: Mapping[str, bytes] = {}
        self._app = app
        self._worker: Worker | None = None
        self._known: set[bytes] = set()
        self._asked: dict[bytes, asyncio.Future[bool]] = {}
        # Keyed, so that what is remembered is of no use outside of this process.
        self._salt = os.urandom(16)

    async def __call__(self, request: Request) -> Answer:
        if self.users and request.page not in OPEN_PATHS:
            status = await self._verify(request.headers.get("authorization", ""))
            if status == HTTPStatus.UNAUTHORIZED:
                return plain(status, status.phrase, ("www-authenticate", _CHALLENGE))
            if status != HTTPStatus.OK:
                return plain(status, status.phrase, ("retry-after", "1"))
        return await self._app(request)

    def close(self) -> None:
        """Let the thread end."""
        if self._worker is not None:
            self._worker.close()

    async def _verify(self, header: str) -> HTTPStatus:
        # One that comes twice is a list of two, which no client's credentials are.
        credentials = _credentials(header)
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
        """Whether it is the password. Requests that ask the same meanwhile share the answer."""
        asked = self._asked.get(key)
        if asked is None:
            if self._worker is None:
                self._worker = Worker(asyncio.get_running_loop(), "mx-passwords")
            asked = self._asked[key] = self._worker.call(lambda: _is_right(password, hashed))
            asked.add_done_callback(lambda _: self._asked.pop(key, None))
        return await asyncio.shield(asked)


def _is_right(password: bytes, hashed: bytes) -> bool:
    import bcrypt

    try:
        return bcrypt.checkpw(password[:_BCRYPT_BYTES], hashed)
    except ValueError:
        return False


def _credentials(header: str) -> tuple[str, bytes] | None:
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except ValueError:
        return None
