"""From what a simulated client asks for to the bytes that are sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headway.bench.prompts import token_ids, words
from headway.bench.target import CHAT, Target
from headway.simulator.workload.base import ClientRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How every request of a load is put.

    `salt` makes its texts; `fields` are of the body, as temperature; `as_words`: prompts are
    texts, which a conversation's always are.
    """

    target: Target
    endpoint: str
    model: str
    salt: int
    as_words: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)
    id_prefix: str = "bench-"

    @property
    def is_chat(self) -> bool:
        return self.endpoint.endswith(CHAT.removeprefix("/v1"))

    @property
    def sends_words(self) -> bool:
        return self.as_words or self.is_chat

    def request(self, client: ClientRequest, number: int) -> bytes:
        """Raises ValueError for a tenant that no header can hold."""
        body = msgspec.json.encode(self._body(client))
        headers = {
            "x-request-id": f"{self.id_prefix}{number}",
            **({"x-tenant-id": client.tenant} if client.tenant else {}),
            **self.headers,
        }
        return http_request(self.target, "POST", self.endpoint, headers, body)

    def _body(self, client: ClientRequest) -> dict[str, Any]:
        body: dict[str, Any] = {"model": client.adapter or self.model}
        if self.is_chat:
            content = words(client.prompt, self.salt)
            body["messages"] = [{"role": "user", "content": content}]
            body["max_completion_tokens"] = client.output.num_tokens
        else:
            make = words if self.as_words else token_ids
            body["prompt"] = make(client.prompt, self.salt)
            body["max_tokens"] = client.output.num_tokens
        body |= {"stream": True, "stream_options": {"include_usage": True}}
        if client.priority:
            body["priority"] = client.priority
        return {**body, **self.fields}


def http_request(
    target: Target, method: str, path: str, headers: Mapping[str, str], body: bytes = b""
) -> bytes:
    """Raises ValueError for a header that cannot be sent."""
    for name, value in headers.items():
        if not name or any(not " " <= character <= "~" for character in name + value):
            raise ValueError(f"the header {name!r}: {value!r} cannot be sent: use plain ASCII")
    lines = [
        f"{method} {target.base}{path} HTTP/1.1",
        f"host: {target.authority}",
        "user-agent: headway-bench",
        "content-type: application/json",
        f"content-length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body
