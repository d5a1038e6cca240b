"""Where the doctor's observations come from: a running server, saved pages, a log, a recording."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.cli.doctor import Asked
    from headway.insight.doctor.page import Page
    from headway.insight.doctor.readings import Observation, UnderWay

_INTERVAL_S = 10.0
_SAMPLES = 11  # of an interval, its two ends among them
_ANSWER_S = 10.0  # for one page
_LINES_LOOKED_AT = 200
_UNDER_WAY = ("waiting", "running", "preempted")


def observations(asked: Asked) -> Iterator[Observation]:
    """One, or as many as `--watch` asks for. Raises ValueError with a sentence."""
    if asked.sources[0].startswith(("http://", "https://")):
        if len(asked.sources) > 1:
            raise FlagError("one address at a time: start a doctor for each server")
        for _ in range(asked.count):
            yield _told(_watched(asked), asked)
        return
    yield _told(_of_files(asked), asked)


def _told(observation: Observation, asked: Asked) -> Observation:
    """With what the user knows of the server's settings in place of what it does not tell."""
    known = {
        name: value
        for name in ("max_num_seqs", "max_num_batched_tokens")
        if (value := getattr(asked, name)) is not None
    }
    readings = tuple(dataclasses.replace(r, **known) for r in observation.readings)
    return dataclasses.replace(observation, readings=readings)


# ---- A running server ----


def _watched(asked: Asked) -> Observation:
    from headway.insight.doctor.pages import observe_pages

    url = metrics_url(asked.sources[0])
    pages: list[tuple[Page, float]] = []
    silences: list[str] = []
    for _ in _due_times(asked.interval_s or _INTERVAL_S):
        try:
            page = _live_page(url, asked.api_key)
            pages.append((page, time.monotonic()))
        except ValueError as error:
            if not pages:
                raise
            silences.append(str(error))
    span_s = pages[-1][1] - pages[0][1]
    source = f"{url}, {len(pages)} samples in {span_s:.1f} s"
    observation = observe_pages(pages, source)
    if observation.server == "headway":
        under_way = _under_way(url, asked.api_key)
        observation = dataclasses.replace(observation, under_way=under_way)
    return _with_silences(observation, silences)


def _live_page(url: str, api_key: str | None) -> Page:
    from headway.insight.doctor.page import read_page

    text = fetch(url, api_key)
    try:
        return read_page(text)
    except ValueError as error:
        raise ValueError(f"{url}: {error}") from None


def _under_way(url: str, api_key: str | None) -> tuple[UnderWay, ...]:
    """The oldest requests that have not ended; none where the server keeps that to itself."""
    import json

    from headway.insight.doctor.readings import UnderWay

    try:
        page = fetch(f"{url.removesuffix('/metrics')}/v1/requests?slowest=100", api_key)
        listed = json.loads(page)["data"]
        known = [
            UnderWay(
                request_id=str(one["request_id"])[:200],
                status=str(one["status"]),
                age_s=int(one["e2e_ns"]) / 1e9,
            )
            for one in listed
        ]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return ()
    return tuple(one for one in known if one.status in _UNDER_WAY)


def _due_times(interval_s: float) -> Iterator[float]:
    """Waits for each of them; after a pause, as of a computer that slept, they stay apart."""
    begin = last = time.monotonic()
    step_s = interval_s / (_SAMPLES - 1)
    for number in range(_SAMPLES):
        due = max(begin + number * step_s, last + step_s / 2 if number else begin)
        time.sleep(max(0.0, due - time.monotonic()))
        last = time.monotonic()
        yield due


def _with_silences(observation: Observation, silences: Sequence[str]) -> Observation:
    from headway.insight.doctor.findings import Finding, Severity

    if not silences:
        return observation
    finding = Finding(
        kind="no-answer",
        severity=Severity.CRITICAL,
        title="The server stopped answering while it was watched.",
        evidence=(f"{len(silences)} of {_SAMPLES} samples failed: {silences[-1]}",),
    )
    return dataclasses.replace(observation, findings=(*observation.findings, finding))


def metrics_url(address: str) -> str:
    """The page behind an address; raises ValueError for what is none."""
    import httpx

    try:
        url = httpx.URL(address)
    except (httpx.InvalidURL, ValueError) as error:
        raise ValueError(f"{address!r} is no address: {error}") from None
    if not url.host:
        raise ValueError(f"{address!r} names no host: give http://host:port")
    path = url.path.rstrip("/").removesuffix("/v1")
    if not path.endswith("/metrics"):
        path += "/metrics"
    return str(url.copy_with(path=path))


def fetch(url: str, api_key: str | None) -> str:
    """A page, bounded in size and time. Raises ValueError with a sentence."""
    from headway.bench.get import NoAnswerError, get, no_answer
    from headway.bench.target import target_of
    from headway.insight.doctor.page import MAX_BYTES

    address, _, query = url.partition("?")
    target = target_of(address)
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        status, content = get(
            target,
            f"?{query}" if query else "",
            headers,
            most_bytes=MAX_BYTES,
            patience_s=_ANSWER_S,
        )
    except NoAnswerError as error:
        raise ValueError(no_answer(url, error)) from None
    _check_status(url, status)
    return content.decode(errors="replace")


def _check_status(url: str, status: int) -> None:
    if status in (401, 403):
        raise ValueError(f"{url} asks for a key (status {status}): give --api-key")
    if status == 404:
        raise ValueError(
            f"there is nothing at {url} (status 404): give the server's own address; SGLang shows "
            "metrics with --enable-metrics, llama.cpp with --metrics"
        )
    if status != 200:
        raise ValueError(f"{url} answers with status {status} instead of a page of metrics")


# ---- Files ----


def kind_of_sources(sources: Sequence[str]) -> str:
    """server, page, log, recording or usage. Raises ValueError with a sentence."""
    if sources[0].startswith(("http://", "https://")):
        return "server"
    for path in sources:
        _check_file(path)
    kinds = [_kind_of(path) for path in sources]
    if len(sources) > 1 and set(kinds) != {"page"}:
        raise FlagError(f"one file at a time, unless all are pages of metrics: {sources[0]} first")
    return kinds[0]


def _check_file(path: str) -> None:
    if path != "-" and not os.path.exists(path):
        raise ValueError(f"{path} is neither a file nor an address: an address begins with http://")
    if os.path.isdir(path):
        raise ValueError(f"{path} is a directory: give a file")
    if not os.path.isfile(path):
        what = "- (standard input)" if path == "-" else path
        raise ValueError(f"{what} is a pipe or a device, and read more than once: save it first")


def _of_files(asked: Asked) -> Observation:
    path = asked.sources[0]
    match kind_of_sources(asked.sources):
        case "recording":
            from headway.cli.doctor_recording import observe_recording

            return observe_recording(path, asked.recording)
        case "log":
            from headway.insight.logs.read import USUAL_LAST_S, observe_log

            return observe_log(path, asked.last_s or USUAL_LAST_S)
    return _of_pages(asked)


def _kind_of(path: str) -> str:
    from headway.replay.files import read_lines

    try:
        for line in islice(read_lines(path), _LINES_LOOKED_AT):
            if line.startswith('{"kind":"header"'):
                return "recording"
            if line.startswith(("# HELP ", "# TYPE ")):
                return "page"
            if line.strip():
                return _kind_of_text(path)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    raise ValueError(f"{path} is empty")


def _kind_of_text(path: str) -> str:
    from headway.insight.logs.read import looks_like_log
    from headway.insight.usage.read import looks_like_usage

    if looks_like_usage(path):
        return "usage"
    return "log" if looks_like_log(path) else "page"


def _of_pages(asked: Asked) -> Observation:
    from headway.insight.doctor.pages import observe_pages

    pages = [(_read(path), os.path.getmtime(path)) for path in asked.sources]
    if asked.interval_s is not None:
        pages = [(page, asked.interval_s * number) for number, (page, _) in enumerate(pages)]
    for (_, before), (_, after) in pairwise(pages):
        if after <= before:
            raise FlagError(
                "the files' times do not rise: give the pages oldest first, or --interval with the "
                "seconds between two"
            )
    named = ", ".join(asked.sources)
    return observe_pages(pages, named if len(pages) > 1 else f"{named}, one moment")


def _read(path: str) -> Page:
    from headway.insight.doctor.page import MAX_BYTES, read_page
    from headway.replay.files import read_lines

    lines, size = [], 0
    try:
        for line in read_lines(path):
            lines.append(line)
            size += len(line) + 1
            if size > MAX_BYTES:
                raise ValueError(f"larger than {MAX_BYTES >> 20} MiB, which no page of metrics is")
        return read_page("\n".join(lines))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
