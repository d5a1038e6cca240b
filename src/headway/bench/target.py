"""Which server is measured: a URL taken apart."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """`base`: what stands before an endpoint's path, "" or such as "/tenant-a"."""

    host: str
    port: int
    base: str = ""
    tls: ssl.SSLContext | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.base}"

    @property
    def authority(self) -> str:
        """What the header Host says."""
        return self.url.split("://", 1)[1].split("/", 1)[0]


def target_of(url: str, *, is_checked: bool = True) -> Target:
    """Raises ValueError with a sentence for what is no URL of a server.

    A trailing /v1, as OpenAI's clients want it, is dropped. `is_checked`: whether the certificate
    of an https server must be good.
    """
    parts = _split(url)
    base = parts.path.rstrip("/").removesuffix("/v1")
    assert parts.hostname is not None
    tls = _tls(is_checked=is_checked) if parts.scheme == "https" else None
    return Target(parts.hostname, parts.port or _PORTS[parts.scheme], base, tls)


def _split(url: str) -> SplitResult:
    full = url if "://" in url else f"http://{url}"
    try:
        parts = urlsplit(full)
        is_sound = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is none, an unfinished IPv6 address
        is_sound = False
    if not is_sound or any(character <= " " or character > "~" for character in full):
        raise ValueError(f"{url!r} is not the URL of a server; one is http://127.0.0.1:8000")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"{url!r}: a server's URL has no user, query or fragment: leave them out")
    return parts


def _tls(*, is_checked: bool) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if not is_checked:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
