"""Opens a file of requests, of whatever format it is."""

from __future__ import annotations

from pathlib import Path

from headway.simulator.workload.arrivals import Arrivals, AtOnce, Renewal
from headway.simulator.workload.files import open_requests
from headway.simulator.workload.sessions import Conversations
from headway.simulator.workload.synthetic import Synthetic
from headway.simulator.workload.traces.mooncake import open_mooncake
from headway.simulator.workload.traces.sharegpt import read_share_gpt
from headway.simulator.workload.traces.tables import AZURE, BURST_GPT, read_table
from headway.simulator.workload.traces.text import chunks
from headway.simulator.workload.traces.trace import TraceFile, Window
from headway.simulator.workload.waits import NO_WAIT, WaitLaw

FORMATS = ("auto", "headway", "azure", "burstgpt", "mooncake", "sharegpt")


def open_trace(
    path: Path | str,
    format: str = "auto",
    window: Window | None = None,
    *,
    arrivals: Arrivals | None = None,
    think: WaitLaw | None = None,
    seed: int | None = None,
) -> TraceFile | Synthetic:
    """A file of requests as a workload; `auto` tells the format by the first line.

    `arrivals`, `think` and `seed` are for ShareGPT, which has no times: its conversations all begin
    at once unless there are arrivals or a rate. (`read_share_gpt` takes a tokenizer, too.) Raises
    ValueError with file and line.
    """
    path, window = Path(path), window or Window()
    if format == "auto":
        format = format_of(path)
    if format == "sharegpt":
        conversations = read_share_gpt(path, think=think or NO_WAIT)
        return _with_times(conversations, path, window, arrivals, seed or 0)
    if arrivals is not None or think is not None:
        name = "think_s" if arrivals is None else "arrivals"
        raise ValueError(f"{name}: {path} has its own times; rate and time_scale change them")
    if seed is not None:
        raise ValueError(f"seed: {path} has its own times and lengths, and nothing is drawn")
    match format:
        case "headway":
            return open_requests(path, window)
        case "mooncake":
            return open_mooncake(path, window)
        case "azure":
            return read_table(path, AZURE, window)
        case "burstgpt":
            return read_table(path, BURST_GPT, window)
    raise ValueError(f"format: {format!r} is not one of {', '.join(FORMATS)}")


def _with_times(
    conversations: Conversations, path: Path, window: Window, arrivals: Arrivals | None, seed: int
) -> Synthetic:
    if (window.start_s, window.stop_s, window.time_scale) != (0.0, None, 1.0):
        raise ValueError(f"{path} has no times that start_s, stop_s or time_scale could be about")
    if window.rate is not None and arrivals is not None:
        raise ValueError("rate: arrivals are given too; say one of them")
    if arrivals is None:
        arrivals = AtOnce() if window.rate is None else Renewal(window.rate)
    return Synthetic(
        arrivals=arrivals, conversations=conversations, num_requests=window.first, seed=seed
    )


def format_of(path: Path) -> str:
    """By its first line. Raises ValueError, with the path, for none that is known."""
    # What is compressed may begin with nothing and break off later.
    first = next((chunk for chunk in chunks(path) if chunk), b"")
    head = first.removeprefix(b"\xef\xbb\xbf").lstrip()
    head = head.partition(b"\n")[0]
    if not head:
        raise ValueError(f"{path}: is empty")
    if head.startswith(b"["):
        return "sharegpt"
    if head.startswith(b"{"):
        return "mooncake" if b'"input_length"' in head else "headway"
    for layout in (AZURE, BURST_GPT):
        if layout.prompt.encode() in head and layout.output.encode() in head:
            return layout.name
    raise ValueError(
        f"{path}:1: neither JSON lines, nor an array, nor the header of a trace that is known: "
        f"{', '.join(FORMATS[1:])}"
    )
