"""Passwords on the endpoint."""

from __future__ import annotations

import asyncio
import base64
import threading
from collections.abc import Callable
from pathlib import Path

import bcrypt
import pytest

from mx_exporter.http import basic_auth
from mx_exporter.http.message import Answer, Request
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
    for path in ("/healthz", "/readyz", "/healthz/", "/readyz/"):
        assert secured.get(path=path).status == 200


@pytest.mark.parametrize(
    "header",
    [
        *("", "Basic", "Basic !", "Basic YQ==", "Bearer YTph", "Basic /zph", "Basic YTph, x"),
        *("Basic YTph, Basic YTph", "Basic \xe9"),
    ],
)
def test_malformed_credentials_are_refused(header: str) -> None:
    assert asked([{"authorization": header}]) == [401]


def asked(requests: list[dict[str, str]], users: str = "a", *, together: bool = False) -> list[int]:
    """What requests with these headers are answered."""

    async def app(_: Request) -> Answer:
        return Answer(b"ok")

    async def ask(auth: basic_auth.BasicAuth, headers: dict[str, str]) -> int:
        return int((await auth(Request("GET", "/metrics", headers))).status)

    async def run() -> list[int]:
        auth = basic_auth.BasicAuth(app)
        auth.users = {user: HASHED[user].encode() for user in users}
        try:
            if together:
                return list(await asyncio.gather(*(ask(auth, r) for r in requests)))
            return [await ask(auth, headers) for headers in requests]
        finally:
            auth.close()

    return asyncio.run(run())


def given(user: str, password: str) -> dict[str, str]:
    token = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"host": "a", "authorization": f"Basic {token}"}


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
