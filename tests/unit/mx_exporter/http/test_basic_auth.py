"""Passwords on the endpoint."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bcrypt
import pytest

from mx_exporter.http import basic_auth
from tests import support
from tests.support.secured import HASHED, Place, Secured


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
def test_malformed_credentials_are_refused(header: bytes) -> None:
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
def test_a_right_password_is_hashed_once(checks: list[bytes], together: bool) -> None:
    assert asked([given("a", "a")] * 50, together=together) == [200] * 50
    assert len(checks) == 1


def test_an_unknown_user_costs_as_much_as_a_wrong_password(checks: list[bytes]) -> None:
    assert asked([given("a", "x"), given("nobody", "x"), given("nobody", "a")]) == [401] * 3
    assert checks == [HASHED["a"].encode()] * 3


def test_waiting_password_checks_are_bounded() -> None:
    guesses = [given("a", str(number)) for number in range(200)]
    statuses = asked(guesses, together=True)
    assert statuses.count(401) == basic_auth.WAITING
    assert statuses.count(503) == 200 - basic_auth.WAITING


def test_a_password_is_valid_for_its_user_only(checks: list[bytes]) -> None:
    assert asked([given("a", "a"), given("b", "a"), given("b", "b")], "ab") == [200, 401, 200]
    assert len(checks) == 3
