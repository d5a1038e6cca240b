"""Opens a file of requests, of whatever format it is."""

from __future__ import annotations

from pathlib import Path

from headway.simulator.workload.arrivals import Arrivals, AtOnce, Renewal
from headway.simulator.workload.files import open_requests
from headway.simulator.workload.synthetic import Synthetic
from headway.simulator.workload.traces.mooncake import open_mooncake
from headway.simulator.workload.traces.sharegpt import read_share_gpt
from headway.simulator.workload.traces.tables import AZURE, BURST_GPT, read_table
from headway.simulator.workload.traces.text import lines
from headway.simulator.workload.traces.trace import TraceFile, Window

FORMATS = ("auto", "headway", "azure", "burstgpt", "mooncake", "sharegpt")


def open_trace(
    path: Path | str,
    format: str = "auto",
    window: Window | None = None,
    *,
    arrivals: Arrivals | None = None,
    seed: int = 0,
) -> TraceFile | Synthetic:
    """A file of requests as a workload; `auto` tells the format by the first line.

    `arrivals` and `seed` are for formats without times (ShareGPT), whose conversations all begin
    at once unless there are arrivals or a rate. Raises ValueError with file and line.
    """
    path, window = Path(path), window or Window()
    if format == "auto":
        format = _format_of(path)
    if format == "sharegpt":
        return _conversations(path, window, arrivals, seed)
    if arrivals is not None:
        raise ValueError(
            f"arrivals: {path} has arrivals of its own; rate and time_scale change them"
        )
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


def _conversations(path: Path, window: Window, arrivals: Arrivals | None, seed: int) -> Synthetic:
    if (window.start_s, window.stop_s, window.time_scale) != (0.0, None, 1.0):
        raise ValueError(f"{path} has no times that start_s, stop_s or time_scale could be about")
    if window.rate is not None and arrivals is not None:
        raise ValueError("rate: arrivals are given too; say one of them")
    if arrivals is None:
        arrivals = AtOnce() if window.rate is None else Renewal(window.rate)
    return Synthetic(
        arrivals=arrivals,
        conversations=read_share_gpt(path),
        num_requests=window.first,
        seed=seed,
    )


def _format_of(path: Path) -> str:
    first = next(lines(path), None)
    if first is None:
        raise ValueError(f"{path}: is empty")
    head = first[1].removeprefix(b"\xef\xbb\xbf").lstrip()
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
