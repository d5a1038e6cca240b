"""An event loop whose time jumps, and a server that answers on it as a script says."""

from __future__ import annotations

import asyncio
import json
import selectors
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from headway.bench.figures import Figures, Objectives, figures_of
from headway.bench.load import Load
from headway.bench.requests import Form
from headway.bench.tally import Rules, Tally
from headway.bench.target import COMPLETIONS, target_of
from headway.simulator.workload.base import ClientRequest, Segment, Workload

Result = TypeVar("Result")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
CLOSE = b"<close>"  # in a script: the server closes the connection
Script = Sequence[tuple[float, bytes]]  # seconds after the request, and what is sent then


class _JumpingSelector(selectors.SelectSelector):
    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.loop.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Nothing is waited for: time goes to the next timer."""

    def __init__(self) -> None:
        self.now_s = 0.0
        selector = _JumpingSelector()
        selector.loop = self
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s


def run(work: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)


def clock_ns() -> int:
    return round(asyncio.get_running_loop().time() * 1e9)


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(body), body)


def event(**values: Any) -> bytes:
    return chunk(b"data: " + json.dumps(values).encode() + b"\n\n")


def token(text: str = " a", reason: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "text": text, "finish_reason": reason}])


def usage(prompt: int, completion: int) -> bytes:
    return event(choices=[], usage={"prompt_tokens": prompt, "completion_tokens": completion})


DONE = chunk(b"data: [DONE]\n\n") + chunk(b"")


def stream(times_s: Sequence[float], *, prompt: int = 4) -> list[tuple[float, bytes]]:
    """A token at each of these times, and the end with the last."""
    script = [(at, token()) for at in times_s]
    end = usage(prompt, len(times_s)) + DONE
    return [(0.0, HEAD), *script[:-1], (times_s[-1], script[-1][1] + end)]


def refusal(status: int, message: str = "no", after_s: float = 0.0) -> Script:
    body = json.dumps({"error": {"message": message}}).encode()
    head = f"HTTP/1.1 {status} No\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    return [(after_s, head + body)]


class FakeServer:
    """Answers the n-th request as `script(n)` says; `requests` are the bytes that came.

    Before `opens_s` nobody can connect.
    """

    def __init__(self, script: Callable[[int], Script], *, opens_s: float = 0.0) -> None:
        self._script = script
        self._opens_s = opens_s
        self.requests: list[bytes] = []
        self.num_connections = 0

    async def dial(self, make: Callable[[], asyncio.Protocol]) -> Any:
        if asyncio.get_running_loop().time() < self._opens_s:
            raise ConnectionRefusedError("nobody is there")
        self.num_connections += 1
        protocol = make()
        transport = _Transport(self, protocol)
        protocol.connection_made(transport)
        return transport, protocol

    def answer(self, request: bytes, transport: _Transport) -> None:
        loop = asyncio.get_running_loop()
        self.requests.append(request)
        for after_s, data in self._script(len(self.requests) - 1):
            loop.call_at(loop.time() + after_s, transport.bring, data)


class _Transport(asyncio.Transport):
    def __init__(self, server: FakeServer, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._server = server
        self._protocol = protocol
        self._is_closed = False

    def write(self, data: Any) -> None:
        self._server.answer(bytes(data), self)

    def bring(self, data: bytes) -> None:
        if self._is_closed:
            return
        if data == CLOSE:
            self.abort()
        else:
            self._protocol.data_received(data)

    def abort(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            asyncio.get_running_loop().call_soon(self._protocol.connection_lost, None)


class Fixed:
    """Requests at these times."""

    def __init__(self, at_s: Sequence[float], *, outputs: int = 4, **fields: Any) -> None:
        self._clients = [
            ClientRequest(
                request_id=str(number),
                arrival_ns=round(at * 1e9),
                prompt=(Segment(number, 4),),
                output=Segment(1000 + number, outputs),
                **fields,
            )
            for number, at in enumerate(at_s)
        ]

    def traffic(self) -> Fixed:
        return self

    def arrivals(self) -> Any:
        return iter(self._clients)

    def follow_up(self, ended: ClientRequest, now_ns: int) -> tuple[()]:
        return ()


FORM = Form(target=target_of("http://server:8000"), endpoint=COMPLETIONS, model="m", salt=1)


def load_of(workload: Workload, server: FakeServer, **rules: Any) -> Load:
    return Load(workload.traffic(), FORM, server.dial, Rules(**rules), clock_ns=clock_ns)


def measured(
    workload: Workload,
    server: FakeServer,
    objectives: Objectives | None = None,
    **rules: Any,
) -> tuple[Figures, Tally]:
    """A whole load in virtual time."""

    async def whole() -> tuple[Figures, Tally]:
        load = load_of(workload, server, **rules)
        tally = await load.run()
        return figures_of(tally, load.watch, objectives), tally

    return run(whole())
