"""The line of figures, in the words that scripts look for."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from headway.core.events import Aborted, Admitted, Advanced, Preempted, Queued
from headway.core.request import Request, SamplingParams
from headway.server.config import AppSettings
from headway.server.log_stats import StatsLog, limits_line, start_lines
from headway.wire import EngineStats
from tests.server.fake_engine import FACTS


def test_line_of_a_busy_interval_then_of_an_idle_one() -> None:
    log = StatsLog()
    asked = Request(request_id="r", prompt_token_ids=tuple(range(40)), sampling=SamplingParams())
    log.on_submitted(asked, 0)
    log.on_events([Queued(0, "r", 0), Admitted(0, "r", 10), Advanced(0, "r", (1, 2))], 1)
    log.on_events([Preempted(0, "r", 0, 4, 0, 1, 1)], 2)
    log.on_stats(EngineStats(1, 1, 2, 8, 2, 0, 42))
    level, line = log.line(10.0)
    assert level == logging.INFO
    assert line == (
        "Engine 000: Avg prompt throughput: 3.0 tokens/s, Avg generation throughput: 0.2 tokens/s, "
        "Running: 1 reqs, Waiting: 2 reqs, Preemptions: 1, CPU KV cache usage: 25.0%, "
        "Prefix cache hit rate: 25.0%"
    )
    log.on_stats(EngineStats(2, 0, 0, 8, 0, 2, 0))
    level, line = log.line(10.0)
    assert level == logging.DEBUG
    assert "Preemptions" not in line
    assert "Avg generation throughput: 0.0 tokens/s" in line


def test_a_request_withdrawn_while_it_waits_is_forgotten() -> None:
    log = StatsLog()
    log.on_submitted(Request(request_id="r", prompt_token_ids=(1,), sampling=SamplingParams()), 0)
    log.on_events([Queued(0, "r", 0), Aborted(0, "r")], 1)
    assert not log._arrivals
    assert not log._waiting_prompts


def test_brakes_are_told() -> None:
    names: dict[str, Any] = {"served_model_names": ("m",), "stop_token_ids": frozenset()}
    line = limits_line(AppSettings(**names, max_num_queued_reqs=8, api_keys=("k",)))
    assert line.startswith("Limits: 8 sequences in flight, no limit of prompt tokens to compute, ")
    assert line.endswith("; 1 API key")
    assert limits_line(AppSettings(**names)).endswith("; no API keys")


def test_start_lines_name_the_wall() -> None:
    lines = "\n".join(start_lines(FACTS, ["256 '<|end|>' (test)"]))
    assert "CPU KV cache size: 1,024 tokens" in lines
    assert "while requests hold fewer than 128 tokens each, and KV memory above that" in lines
    assert "Stop ids: 256 '<|end|>' (test)" in lines
    roomy = msgspec.structs.replace(FACTS, num_blocks=10_000)
    assert "the wall is max_num_seqs, even" in "\n".join(start_lines(roomy, []))
