"""The socket to listen on, bound before anything is loaded: what is wrong is known at once."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import ssl
import stat
from collections.abc import Iterator

from headway.server.config import ServerConfig

# A client that does not read may hold this much of its answer in the kernel, no more.
_SEND_BUFFER_BYTES = 256 << 10
# A peer that vanished without a word is given up after about a minute.
_KEEPALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 60_000}


class ListenError(Exception):
    """There is no listening; the message is one sentence."""


@contextlib.contextmanager
def listening(server: ServerConfig) -> Iterator[socket.socket]:
    """Raises ListenError. A Unix socket's file is removed in the end."""
    _check_tls(server)
    _raise_file_limit()
    with _bound(server) as listener:
        try:
            yield listener
        finally:
            remove_file(server)


def remove_file(server: ServerConfig) -> None:
    if server.uds is not None:
        with contextlib.suppress(OSError):
            os.unlink(server.uds)


def address(server: ServerConfig, listener: socket.socket) -> str:
    """As a client would write it."""
    if server.uds is not None:
        return f"unix:{server.uds}"
    host, port = listener.getsockname()[:2]
    scheme = "http" if server.ssl_certfile is None else "https"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _bound(server: ServerConfig) -> socket.socket:
    where = server.uds or f"{server.host}:{server.port}"
    try:
        return _bind_file(server.uds) if server.uds is not None else _bind_port(server)
    except OSError as error:
        raise ListenError(f"cannot listen on {where}: {error.strerror or error}") from None


def _bind_port(server: ServerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY: else a small answer waits 40 ms for an ACK.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Accepted connections inherit these.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if hasattr(socket, name):
                listener.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        listener.bind((server.host, server.port))
    except OSError:
        listener.close()
        raise
    return listener


def _bind_file(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_stale(path)
        listener.bind(path)
        os.chmod(path, 0o666)
    except OSError:
        listener.close()
        raise
    return listener


def _remove_stale(path: str) -> None:
    """A socket file that nobody listens on is left over from one who was killed."""
    if not os.path.exists(path) or not stat.S_ISSOCK(os.stat(path).st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            os.unlink(path)


def _check_tls(server: ServerConfig) -> None:
    """A key that does not fit is a sentence now, not a trace after the model is loaded."""
    if server.ssl_certfile is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(server.ssl_certfile, server.ssl_keyfile, password=lambda: b"")
        if server.ssl_ca_certs is not None:
            context.load_verify_locations(server.ssl_ca_certs)
        if server.ssl_ciphers is not None:
            context.set_ciphers(server.ssl_ciphers)
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise ListenError(f"TLS cannot be set up from the --ssl flags: {reason}") from None


def _raise_file_limit() -> None:
    """Each connection is a file: take as many as the system lets us have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
