"""The file of ``--web.config.file``: TLS and passwords of the endpoint.

Its keys are those that the exporters of the Prometheus project share (exporter-toolkit,
``web-configuration.md``), so that one file serves node_exporter and this exporter, and ``promtool
check web-config`` checks it. A key that cannot be honoured is refused rather than overlooked:
whoever wrote it relies on it. Paths in it start from its own folder.
"""

from __future__ import annotations

import logging
import os
import re
import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ..errors import UsageError

logger = logging.getLogger(__name__)

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}

_CLIENTS = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

_SECTIONS = ("tls_server_config", "basic_auth_users")

_TLS_KEYS = (
    "cert_file",
    "key_file",
    "client_auth_type",
    "client_ca_file",
    "min_version",
    "max_version",
)

_HASH = re.compile(r"\$2[aby]\$(0[4-9]|[12]\d|3[01])\$[./A-Za-z0-9]{53}")


class WebConfig(NamedTuple):
    """How clients are met. Without both: plain HTTP, for everybody."""

    #: Made anew for each reading of the files; None: no TLS.
    tls: ssl.SSLContext | None = None
    #: bcrypt hashes by name of user.
    users: Mapping[str, bytes] = MappingProxyType({})
    #: All files that it was made from.
    files: tuple[str, ...] = ()


def load(path: str) -> WebConfig:
    """Read the file, and the certificates that it names.

    :raises UsageError: it cannot be read, or holds something that cannot be honoured; the message
        names file and key.
    """
    try:
        return _load(path)
    except (ValueError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise UsageError(f"{path}: {reason or error}") from None


class WebConfigFile:
    """A web configuration whose files may change.

    :ivar config: the latest that was good.
    :raises UsageError: the file is wrong from the start.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.config = load(path)
        self._read = self._last = self._stamps()
        self.config = load(path)  # they may have changed before they were stamped
        self._trouble = ""
        if self.config.tls is None and not self.config.users:
            logger.warning(
                "%s asks for neither TLS nor passwords: everybody may read the endpoint", path
            )

    def reload_if_changed(self) -> bool:
        """Read the files again if they changed; return whether there is a new configuration.

        Files are read once two calls in a row found them the same: a certificate and its key are
        not written at one stroke. A configuration that is wrong, or that would take away TLS or
        the passwords altogether (a file that is being written again looks like that), is
        logged and not taken.
        """
        last, self._last = self._last, self._stamps()
        # One that was wrong may name other files, which are not watched yet.
        if self._last != last or (self._last == self._read and not self._trouble):
            return False
        self._read = self._last
        try:
            self.config = self._better(load(self._path))
        except UsageError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                logger.error("the web configuration stays as it was: %s", error)
            return False
        self._trouble = ""
        logger.info("the web configuration was read again: %s", self._path)
        return True

    def _better(self, new: WebConfig) -> WebConfig:
        for what, old_one, new_one in (
            ("tls_server_config", self.config.tls, new.tls),
            ("basic_auth_users", self.config.users, new.users),
        ):
            if old_one and not new_one:
                raise UsageError(f"{self._path}: {what} is gone; it takes a restart to do without")
        return new

    def _stamps(self) -> list[tuple[int, ...]]:
        """What changes whenever one of the files does."""
        stamps: list[tuple[int, ...]] = []
        for file in (self._path, *self.config.files):
            try:
                status = os.stat(file)
                stamps.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
            except OSError as error:
                stamps.append((error.errno or 0,))
        return stamps


# --------------------------------------------------------------------------------------
# From the file to the value


def _load(path: str) -> WebConfig:
    with open(path, encoding="utf-8") as file:
        document = _parse(file.read())
    sections = _mapping(document, "the file")
    for name in sections:
        _known(name, _SECTIONS, name)
    tls, files = None, []
    section = _mapping(sections.get("tls_server_config"), "tls_server_config")
    if "tls_server_config" in sections:
        for name in section:
            _known(name, _TLS_KEYS, f"tls_server_config.{name}")

        def named(key: str) -> str | None:
            value = _text(section, key)
            if not value:
                return None
            files.append(os.path.join(os.path.dirname(path), value))
            return files[-1]

        tls = _context(section, named)
    users = _mapping(sections.get("basic_auth_users"), "basic_auth_users")
    return WebConfig(tls, MappingProxyType(dict(map(_user, users.items()))), tuple(files))


def _parse(text: str) -> Any:
    import yaml

    class Loader(yaml.SafeLoader):
        """A safe loader that refuses a key that stands twice: the last would silently win."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            keys = [self.construct_object(key, deep=True) for key, _ in node.value]
            for key in keys:
                if keys.count(key) > 1:
                    raise ValueError(f"{key} stands there twice")
            return super().construct_mapping(node, deep)

    try:
        return yaml.load(text, Loader)
    except yaml.MarkedYAMLError as error:
        # Without PyYAML's own name for a text, which is no file of the user's.
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        what = ", ".join(filter(None, (error.context, error.problem)))
        raise ValueError(f"{where}{what}") from None
    except yaml.YAMLError as error:
        raise ValueError(str(error).partition("\n")[0]) from None


def _mapping(value: Any, where: str) -> dict[Any, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected keys and values")
    return value


def _known(name: Any, names: tuple[str, ...], where: str) -> None:
    if name not in names:
        raise ValueError(f"{where}: this key is not known here; known are {', '.join(names)}")


def _text(section: Mapping[str, Any], key: str) -> str:
    value = section.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"tls_server_config.{key}: expected a text")
    return value


def _one_of(section: Mapping[str, Any], key: str, values: Mapping[str, Any], default: str) -> Any:
    text = _text(section, key) or default
    if text not in values:
        raise ValueError(f"tls_server_config.{key}: {text}: expected {' or '.join(values)}")
    return values[text]


def _context(section: Mapping[str, Any], named: Callable[[str], str | None]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _one_of(section, "min_version", _VERSIONS, "TLS12")
    context.maximum_version = _one_of(section, "max_version", _VERSIONS, "TLS13")
    if context.minimum_version > context.maximum_version:
        raise ValueError("tls_server_config.min_version: it is above max_version")
    context.set_alpn_protocols(["http/1.1"])
    certificate, key = named("cert_file"), named("key_file")
    if certificate is None or key is None:
        raise ValueError("tls_server_config: cert_file and key_file are both needed")
    for name, file in (("cert_file", certificate), ("key_file", key)):
        _must_open(name, file)

    def refuse() -> str:  # asked for one, OpenSSL would go to the terminal
        raise ValueError(
            f"tls_server_config.key_file: {key} has a passphrase, which nobody can be asked for; "
            "write the key without one, as `openssl pkey` does"
        )

    try:
        context.load_cert_chain(certificate, key, password=refuse)
    except ssl.SSLError as error:
        raise ValueError(
            f"tls_server_config.key_file: {key} and {certificate} are no key and its "
            f"certificate: {error.reason or error}"
        ) from None
    clients = _one_of(section, "client_auth_type", _CLIENTS, "NoClientCert")
    authority = named("client_ca_file")
    if (clients != ssl.CERT_NONE) != (authority is not None):
        raise ValueError(
            "tls_server_config.client_auth_type: clients' certificates are verified where there "
            "are both, a client_ca_file and a client_auth_type that says so"
        )
    if authority is not None:
        _must_open("client_ca_file", authority)
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError as error:
            raise ValueError(
                f"tls_server_config.client_ca_file: {authority}: {error.reason or error}"
            ) from None
    context.verify_mode = clients
    return context


def _must_open(key: str, file: str) -> None:
    try:
        with open(file, "rb"):
            pass
    except OSError as error:
        raise ValueError(f"tls_server_config.{key}: {file}: {error.strerror}") from None


def _user(item: tuple[Any, Any]) -> tuple[str, bytes]:
    name, hashed = item
    if not isinstance(name, str):
        raise ValueError(f"basic_auth_users: {name}: expected a name; put it in quotes")
    if ":" in name:
        raise ValueError(f"basic_auth_users: {name}: a name may hold no colon")
    if not isinstance(hashed, str) or not _HASH.fullmatch(hashed):
        raise ValueError(
            f"basic_auth_users: {name}: expected a bcrypt hash, as `htpasswd -nBC 10 {name}` makes"
        )
    return name, hashed.encode()
