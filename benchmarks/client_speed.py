"""How many events a second can `headway bench serve` take in, and what does each cost it?

    python -m benchmarks.client_speed [--streams 64] [--seconds 10] [--paces 500 2000 8000 0]

A server of premade events (a process of its own) sends each of so many streams one at a time, all
streams together so many a second; 0: as fast as the client takes them. Prints what arrived, the
client's processor time for each, and what the client says of itself.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import time
from multiprocessing.connection import Connection

from headway.bench.connections import dial
from headway.bench.figures import figures_of
from headway.bench.load import Load
from headway.bench.requests import Form
from headway.bench.tally import Rules
from headway.bench.target import COMPLETIONS, target_of
from headway.simulator.workload.arrivals import AtOnce
from headway.simulator.workload.lengths import fixed
from headway.simulator.workload.synthetic import Synthetic

_EVENT = (
    b'data: {"id":"cmpl-8e89b16d1cf74a66978e8a34765b0ac1","object":"text_completion",'
    b'"created":1795988552,"model":"SmolLM2-135M-Instruct","choices":[{"index":0,"text":" word",'
    b'"logprobs":null,"finish_reason":null,"stop_reason":null}],"usage":null}\n\n'
)
_CHUNK = b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT)
_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
_END = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"


async def _serve(told: Connection, events: int, gap_s: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_HEAD)
        began = asyncio.get_running_loop().time()
        for number in range(events):
            if gap_s:
                left = began + number * gap_s - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, left))
            writer.write(_CHUNK)
            await writer.drain()
        writer.write(_END)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1024)
    told.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _server(told: Connection, events: int, gap_s: float) -> None:
    asyncio.run(_serve(told, events, gap_s))


def measure(streams: int, events: int, gap_s: float) -> None:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=_server, args=(theirs, events, gap_s), daemon=True)
    server.start()
    target = target_of(f"http://127.0.0.1:{ours.recv()}")
    workload = Synthetic(
        arrivals=AtOnce(), prompt_tokens=fixed(8), output_tokens=fixed(8), num_requests=streams
    )
    form = Form(target=target, endpoint=COMPLETIONS, model="m", salt=0)
    load = Load(workload.traffic(), form, dial(target), Rules())
    cpu_s, wall_s = time.process_time(), time.monotonic()
    tally = asyncio.run(load.run())
    cpu_s, wall_s = time.process_time() - cpu_s, time.monotonic() - wall_s
    server.terminate()
    server.join()
    figures = figures_of(tally, load.watch)
    assert figures.num_served == streams, figures.endings
    count = figures.num_events
    asked = f"{streams / gap_s:9,.0f}" if gap_s else "  no limit"
    print(
        f"asked {asked}/s  came {count / wall_s:9,.0f}/s  client {cpu_s / wall_s:5.0%} of a core, "
        f"{cpu_s / count * 1e6:6.1f} us each, lag p50 {figures.client.lag_s.p50 * 1e3:.2f} "
        f"p99 {figures.client.lag_s.p99 * 1e3:.2f} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--paces", type=float, nargs="+", default=(500, 2000, 8000, 0))
    args = parser.parse_args()
    for pace in args.paces:
        per_stream = pace / args.streams if pace else 4000 / args.seconds
        gap_s = args.streams / pace if pace else 0.0
        measure(args.streams, max(1, round(per_stream * args.seconds)), gap_s)


if __name__ == "__main__":
    main()
