"""The endpoint's sockets: which addresses, and why one cannot be had."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from typing import Any

from ..config import Listen
from ..errors import BindError, PortInUse


def bind(listen: Listen) -> list[socket.socket]:
    """Bind the endpoint's sockets. They do not listen yet.

    Without a host: one socket for all interfaces, IPv6 and IPv4 where there is IPv6.

    :raises BindError: the port is in use, may not be bound, or the host is unknown.
    """
    try:
        if listen.host is None:
            return [_bind_all(listen.port)]
        found = socket.getaddrinfo(
            listen.host, listen.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        return _bind_each(dict.fromkeys((family, address) for family, _, _, _, address in found))
    except UnicodeError:
        raise BindError(f"cannot listen on {listen}: that is no host name") from None
    except OSError as error:
        kind = PortInUse if error.errno == errno.EADDRINUSE else BindError
        raise kind(f"cannot listen on {listen}: {cause_of(error)}") from error


def _bind_all(port: int) -> socket.socket:
    if socket.has_ipv6:
        try:
            return _bind(socket.AF_INET6, ("::", port), dual=True)
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    return _bind(socket.AF_INET, ("0.0.0.0", port))


def _bind_each(addresses: Iterable[tuple[int, Any]]) -> list[socket.socket]:
    """Bind all addresses of a name, but for those that this machine does not have."""
    bound: list[socket.socket] = []
    missing = OSError(errno.EADDRNOTAVAIL, "")
    for family, address in addresses:
        try:
            bound.append(_bind(family, address))
        except OSError as error:
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                for sock in bound:
                    sock.close()
                raise
            missing = error
    if not bound:
        raise missing
    return bound


def _bind(family: int, address: Any, *, dual: bool = False) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if dual else 1)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock


def cause_of(error: OSError) -> str:
    """Why a port cannot be had, and what to do about it."""
    if error.errno == errno.EADDRINUSE:
        return "the port is in use by another program; end that one, or choose another port"
    if error.errno == errno.EACCES:
        return "this user may not bind that port; choose one from 1024 on"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address"
    return error.strerror or str(error)
