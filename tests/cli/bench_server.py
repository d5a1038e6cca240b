"""A server for `headway bench serve` on a real socket; `python -m tests.cli.bench_server MODE`.

It prints its port. Of MODE `slow` a token comes each 50 ms, else all at once.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "tiny"


class Answering(BaseHTTPRequestHandler):
    """`mode`: quick, slow, refusing, hostile; `bodies` are those that were asked."""

    protocol_version = "HTTP/1.1"
    mode = "quick"
    bodies: list[dict[str, Any]]

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self._whole(200, {"data": [{"id": MODEL}]})
        else:
            self._whole(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.bodies.append(body)
        if self.mode == "refusing" or (self.mode == "hostile" and len(self.bodies) % 2 == 0):
            text = "<script>alert(1)</script>" if self.mode == "hostile" else "no such model"
            self._whole(404, {"error": {"message": text}})
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for event in self._events(body):
            data = b"data: " + event + b"\n\n"
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.write(b"0\r\n\r\n")

    def _events(self, body: dict[str, Any]) -> Iterator[bytes]:
        count = body.get("max_tokens") or body["max_completion_tokens"]
        for _ in range(count):
            if self.mode == "slow":
                time.sleep(0.05)
            yield json.dumps({"choices": [{"text": " a", "delta": {"content": " a"}}]}).encode()
        usage = {"prompt_tokens": 5, "completion_tokens": count}
        yield json.dumps({"choices": [], "usage": usage}).encode()
        yield b"[DONE]"

    def _whole(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a client that has gone


@contextmanager
def serving(mode: str = "quick") -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its URL, and the bodies that it is asked."""
    bodies: list[dict[str, Any]] = []
    handler = type("Handling", (Answering,), {"mode": mode, "bodies": bodies})
    server = _Quiet(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", bodies
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


if __name__ == "__main__":
    with serving(sys.argv[1]) as (url, _):
        print(url, flush=True)
        sys.stdin.read()
