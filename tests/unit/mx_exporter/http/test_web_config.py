"""The file for TLS and passwords: what it may contain, and how changes of it are taken up."""

from __future__ import annotations

import http.client
import re
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from mx_exporter.errors import UsageError
from mx_exporter.http import web_config
from tests import support
from tests.support.secured import Place, Secured, replace

# --------------------------------------------------------------------------------------
# Changes


def test_a_renewed_certificate_is_served(spawn: support.Spawner, log: Path, place: Place) -> None:
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


@pytest.mark.long
def test_a_reload_of_an_invalid_file_changes_nothing(
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


def test_certificates_may_be_mounted_after_the_file_that_names_them(place: Place) -> None:
    watched = web_config.WebConfigFile(str(place.write()))
    assert not watched.reload_if_changed()
    for name in ("crt", "key"):
        (place.path / f"server.{name}").rename(place.path / f"put-aside.{name}")
    replace(place.file, place.file.read_bytes().replace(b"server.", b"other."))
    # The first look sees it change, the second takes it for whole, the third goes on trying.
    assert [watched.reload_if_changed() for _ in range(3)] == [False] * 3
    old = watched.config
    for name in ("crt", "key"):
        (place.path / f"put-aside.{name}").rename(place.path / f"other.{name}")
    assert watched.reload_if_changed()
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
def test_invalid_files_are_refused_with_a_reason(text: str, told: str, place: Place) -> None:
    place.file.write_text(text)
    with pytest.raises(UsageError) as raised:
        web_config.load(str(place.file))
    message = str(raised.value)
    assert message.startswith(f"{place.file}: ")
    assert "<unicode string>" not in message
    assert told.replace("{folder}", str(place.path)) in message


def test_a_key_with_a_passphrase_is_refused(place: Place) -> None:
    """Of either form: OpenSSL would ask for it on the terminal."""
    key = serialization.load_pem_private_key((place.path / "server.key").read_bytes(), None)
    for form in (
        serialization.PrivateFormat.PKCS8,
        serialization.PrivateFormat.TraditionalOpenSSL,
    ):
        encrypted = key.private_bytes(
            serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"secret")
        )
        (place.path / "server.key").write_bytes(encrypted)
        place.write()
        with pytest.raises(UsageError, match=r"key_file: \S+/server\.key has a passphrase, "):
            web_config.load(str(place.file))


@pytest.mark.parametrize("text", ["", "# nothing\n", "{}", "basic_auth_users: {}"])
def test_a_file_that_asks_for_nothing_is_logged_once(
    text: str, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.file.write_text(text)
    assert web_config.load(str(place.file)) == web_config.WebConfig()
    watched = web_config.WebConfigFile(str(place.file))
    assert [watched.reload_if_changed() for _ in range(3)] == [False] * 3
    (said,) = caplog.messages
    assert said == (
        f"{place.file} asks for neither TLS nor passwords: everybody may read the endpoint"
    )


def test_a_file_that_asks_for_passwords_logs_nothing(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    web_config.WebConfigFile(str(place.write(users="a")))
    assert caplog.messages == []


def test_an_invalid_file_at_the_start_is_a_usage_error(
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
