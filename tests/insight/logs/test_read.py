"""Logs of servers of any age as readings; the lines are in the forms that these servers write."""

from __future__ import annotations

import gzip
import logging
from datetime import UTC, datetime

import msgspec
import pytest

from headway.insight.logs.clock import LogClock
from headway.insight.logs.read import looks_like_log, observe_log
from headway.server.log_format import JsonFormatter
from headway.server.log_stats import StatsLog, start_lines
from headway.wire import EngineStats
from tests.server.fake_engine import FACTS

STAT = (
    "Avg prompt throughput: {prompt} tokens/s, Avg generation throughput: {output} tokens/s, "
    "Running: {running} reqs, Waiting: {waiting} reqs, {more}GPU KV cache usage: {usage}%, "
    "Prefix cache hit rate: 12.3%"
)


def stat(prompt=0.0, output=812.4, running=83, waiting=41, usage=99.8, more="") -> str:
    return STAT.format(**locals())


def v1(second: int, engine: int = 0, **figures) -> str:
    head = f"(APIServer pid=11) INFO 03-17 15:38:{second:02d} [loggers.py:259] Engine {engine:03d}"
    return f"{head}: {stat(**figures)}"


def observed(tmp_path, *lines: str, last_s: float = 900.0):
    path = tmp_path / "server.log"
    path.write_text("\n".join(lines) + "\n")
    return observe_log(path, last_s)


def test_vllm(tmp_path):
    seen = observed(
        tmp_path,
        "INFO 03-17 15:37:50 [utils.py:233] non-default args: {'max_num_seqs': 256, 'port': 1}",
        "INFO 03-17 15:37:51 [x.py:1] Chunked prefill is enabled with max_num_batched_tokens=8192.",
        "INFO 03-17 15:37:59 [kv_cache_utils.py:1] GPU KV cache size: 434,657 tokens",
        "INFO 03-17 15:37:59 [kv_cache_utils.py:2] Maximum concurrency for 8,192 tokens per "
        "request: 53.06x",
        v1(10, prompt=100.0),
        "something else, Running: 7 reqs",
        v1(20, running=80, waiting=44, usage=97.0, more="Preemptions: 38, "),
        v1(30, running=81, more="Deferred: 3 reqs, "),
    )
    assert seen.server == "vllm"
    assert [r.num_running for r in seen.readings] == [83, 80, 81]
    assert [r.num_waiting for r in seen.readings] == [41, 44, 41]
    assert [r.num_preemptions for r in seen.readings] == [0, 38, 0]
    assert [r.num_deferred for r in seen.readings] == [None, None, 3]
    assert [r.interval_s for r in seen.readings] == [10, 10, 10]
    first, second, _ = seen.readings
    assert second.at_s - first.at_s == 10
    assert (first.num_prompt_tokens, first.num_output_tokens) == (1000, 8124)
    assert first.kv_usage == pytest.approx(0.998)
    assert (first.max_num_seqs, first.max_num_batched_tokens) == (256, 8192)
    assert (first.max_model_len, first.num_kv_tokens) == (8192, 434_657)
    assert first.num_cached_tokens is None
    assert not seen.notes


def test_a_vllm_that_tells_no_preemptions_is_not_said_to_have_none(tmp_path):
    assert observed(tmp_path, v1(10)).readings[0].num_preemptions is None


def test_the_first_vllm(tmp_path):
    line = (
        "INFO 01-23 06:33:{second} metrics.py:396] Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 16.7 tokens/s, Running: 16 reqs, Swapped: 2 reqs, "
        "Pending: 5 reqs, GPU KV cache usage: 92.1%, CPU KV cache usage: 0.1%."
    )
    seen = observed(
        tmp_path,
        "INFO 01-23 06:30:00 executor_base.py:110] # cuda blocks: 27166, # CPU blocks: 2048",
        line.format(second=37),
        "INFO 01-23 06:33:37 metrics.py:502] Prefix cache hit rate: GPU: 0.00%, CPU: 90.00%",
        line.format(second=43),
    )
    first, second = seen.readings
    assert (seen.server, first.num_running, first.num_waiting) == ("vllm", 16, 7)
    assert first.kv_usage == pytest.approx(0.921)
    assert second.interval_s == 6
    assert second.num_output_tokens == pytest.approx(16.7 * 6)
    assert first.num_kv_tokens == 27166 * 16


def test_a_vllm_on_a_cpu_is_no_headway(tmp_path):
    """As vLLM 0.32 wrote it; Headway's line has no source file before it."""
    line = (
        "Engine 000: Avg prompt throughput: 40.0 tokens/s, Avg generation throughput: 6.5 tokens/s,"
        " Running: 4 reqs, Waiting: 28 reqs, CPU KV cache usage: 1.1%, Prefix cache hit rate: 50.0%"
    )
    vllms = f"(APIServer pid=7768) INFO 11-30 13:35:27 [loggers.py:335] {line}"
    seen = observed(tmp_path, vllms)
    assert seen.server == "vllm"
    assert (seen.readings[0].num_cached_tokens, seen.readings[0].num_preemptions) == (None, None)
    assert observed(tmp_path, f"INFO 2026-11-30 13:14:17,261 {line}").server == "headway"


def test_several_engines_are_one_server(tmp_path):
    lines = [v1(10 * n, engine, running=10 + engine) for n in (1, 2) for engine in (0, 1)]
    size = "INFO 03-17 15:37:59 [kv_cache_utils.py:1] GPU KV cache size: 1,000 tokens"
    seen = observed(tmp_path, size, size, *lines)
    assert [r.num_running for r in seen.readings] == [21, 21]
    assert [r.num_engines for r in seen.readings] == [2, 2]
    assert seen.readings[0].num_output_tokens == pytest.approx(2 * 8124)
    assert seen.readings[0].kv_usage == pytest.approx(0.998)
    assert seen.readings[0].num_kv_tokens == 2000


@pytest.mark.parametrize("as_json", [False, True])
def test_our_own_lines_as_this_server_writes_them(tmp_path, as_json):
    log = StatsLog()
    log.on_stats(EngineStats(1, 3, 2, 100, 40, 0, 0))
    text = logging.Formatter("%(levelname)s %(asctime)s %(message)s")
    formatter = JsonFormatter() if as_json else text
    sizes = {"num_blocks": 100, "max_model_len": 800, "max_num_seqs": 64}
    facts = msgspec.structs.replace(FACTS, **sizes, block_size=16, max_num_batched_tokens=512)
    lines = [*start_lines(facts, []), log.line(10.0)[1], log.line(10.0)[1]]
    written = []
    for number, line in enumerate(lines):
        record = logging.LogRecord("headway", 20, "", 1, line, (), None)
        record.created = 1_700_000_000 + 10 * number
        written.append(formatter.format(record))
    seen = observed(tmp_path, *written)
    assert seen.server == "headway"
    first = seen.readings[0]
    assert (first.num_running, first.num_waiting, first.kv_usage) == (3, 2, 0.4)
    assert (first.max_num_seqs, first.max_num_batched_tokens) == (64, 512)
    assert (first.num_kv_tokens, first.max_model_len) == (1600, 800)
    assert (first.num_preemptions, first.num_cached_tokens) == (0, 0)
    assert seen.readings[1].interval_s == 10


EVICTED = (
    "INFO 2026-11-30 09:12:{second},123 Preempted {name} for cmpl-3-0: 412 tokens lost, "
    "free blocks 0 -> 26, its preemption no. 2"
)
OWN = "INFO 2026-11-30 09:12:{second},123 Engine 000: " + STAT.replace("GPU", "CPU")


def own(second: int) -> str:
    figures = {"prompt": 0.0, "output": 9.0, "running": 3, "waiting": 1, "usage": 99.0}
    return OWN.format(second=second, **figures, more="Preemptions: 3, ")


def test_preemptions_belong_to_the_stat_line_after_them(tmp_path):
    names = {11: "cmpl-a-0", 12: "cmpl-b-0", 13: "cmpl-a-0", 31: "cmpl-late-0"}
    evictions = [EVICTED.format(second=second, name=name) for second, name in names.items()]
    untold = "; not told since the last such line: 37 preemptions, 12,345 tokens lost"
    seen = observed(tmp_path, own(10), *evictions[:3], own(20), own(30), evictions[3] + untold)
    assert [r.evicted for r in seen.readings] == [None, {"cmpl-a-0": 2, "cmpl-b-0": 1}, None]


@pytest.mark.parametrize(
    "line",
    [
        "Preempted ",
        "Preempted a for b: x tokens lost, free blocks 0",
        "Preempted cmpl-max_num_seqs=7 for a b: 3 tokens lost, free blocks 0 -> 1",
        "Preempted " + "a" * 1900 + " for b: 3 tokens lost, free blocks 0 -> 1",
    ],
)
def test_what_only_looks_like_a_preemption_says_nothing(tmp_path, line):
    [reading] = observed(tmp_path, line, own(10)).readings
    assert (reading.evicted, reading.max_num_seqs) == (None, None)


def decode(second: int, *, running=32, queue=7, usage=0.5, rate=400.0, comma=",", rank="TP0"):
    return (
        f"[2026-04-05 20:02:{second:02d} {rank}] Decode batch{comma} #running-req: {running}, "
        f"#token: 11179, token usage: {usage}, cuda graph: True, gen throughput (token/s): "
        f"{rate}, #queue-req: {queue}"
    )


def test_sglang(tmp_path):
    prefill = (
        "[2026-04-05 20:02:04 TP0] Prefill batch, #new-seq: 1, #new-token: 158, #cached-token: 42, "
        "token usage: 0.08, #running-req: 31, #queue-req: 9, cuda graph: True"
    )
    seen = observed(
        tmp_path,
        "[2026-04-05 20:00:00 TP0] max_total_num_tokens=441852, chunked_prefill_size=8192, "
        "max_prefill_tokens=16384, max_running_requests=2048, context_len=131072",
        *(decode(second) for second in (1, 2, 3)),
        prefill,
        "[2026-04-05 20:02:05 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, "
        "#new_token_ratio: 0.9 -> 1.0",
        decode(8, running=30, queue=5),
        decode(11, rate=300.0),
        decode(16, comma=".", usage=0.6),
    )
    assert seen.server == "sglang"
    first, second = seen.readings
    assert (first.num_running, first.num_waiting, first.kv_usage) == (30, 5, 0.5)
    assert (first.interval_s, first.num_output_tokens) == (10, 4000)
    assert (first.num_prompt_tokens, first.num_cached_tokens) == (200, 42)
    assert (first.num_preemptions, first.num_resident_tokens) == (2, 11179)
    assert (first.max_num_seqs, first.max_num_batched_tokens) == (2048, 8192)
    assert (first.max_model_len, first.num_kv_tokens) == (131_072, 441_852)
    assert (second.interval_s, second.num_output_tokens, second.kv_usage) == (5, 350 * 5, 0.6)


def test_sglang_with_data_parallel_ranks(tmp_path):
    lines = [decode(s, rank=f"DP{dp} TP0") for s in (1, 11, 12) for dp in (0, 1)]
    first = observed(tmp_path, *lines).readings[0]
    assert (first.num_running, first.num_engines, first.num_output_tokens) == (64, 2, 8000)


def test_the_last_while_is_what_is_told(tmp_path):
    lines = [v1(second, running=second) for second in range(0, 60, 10)]
    seen = observed(tmp_path, *lines, last_s=20.0)
    assert [r.num_running for r in seen.readings] == [40, 50]
    assert "of 6 moments in the log these are the last 2" in seen.notes[0]


def test_what_came_after_the_work_is_left_out(tmp_path):
    idle = {"running": 0, "waiting": 0, "output": 0.0, "usage": 0.0}
    seen = observed(tmp_path, v1(0), v1(10, **idle), v1(20), v1(30, **idle), v1(40, **idle))
    assert [r.num_running for r in seen.readings] == [83, 0, 83]
    assert seen.notes == ("2 moments without work at its end left out",)
    assert len(observed(tmp_path, v1(10, **idle), v1(20, **idle)).readings) == 2


def test_what_was_before_a_new_start_is_left_out(tmp_path):
    size = "INFO 03-17 15:38:25 [kv_cache_utils.py:1] GPU KV cache size: {} tokens"
    seen = observed(tmp_path, size.format("1,000"), v1(10), v1(20), size.format("2,000"), v1(40))
    assert [r.num_kv_tokens for r in seen.readings] == [2000]
    assert seen.notes[-1] == "the server was started 2 times in this log"


def test_lines_without_times_are_taken_to_be_ten_seconds_apart(tmp_path):
    seen = observed(tmp_path, stat(), stat())
    assert [r.at_s for r in seen.readings] == [0, 10]
    assert "no times" in seen.notes[0]


def test_midnight_and_new_year():
    clock = LogClock()
    times = ["12-31 23:59:50", "12-31 23:59:59", "01-01 00:00:09", "[00:00:19 TP0]", "no time"]
    seconds = [clock.read(text) for text in times]
    assert [at - seconds[0] for at in seconds[:4]] == [0, 9, 19, 29]
    assert seconds[4] is None
    assert clock.read("06-31 00:00:00") is None
    expected = datetime(2026, 11, 30, 9, 12, 28, 123_000, UTC).timestamp()
    assert LogClock().read("INFO 2026-11-30 09:12:28,123 Engine") == expected


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("hello", "no line of statistics"),
        ("slot print_timing: id  0 | task 0 |", "llama.cpp's log does not say"),
        ("Avg generation throughput: 1.2.3.4 tokens/s, Running: 9999999999999999 reqs", "no line"),
        ("GPU KV cache size: 1,000 tokens", "no line of statistics"),
        ("Decode batch", "no line of statistics"),
    ],
)
def test_a_log_that_tells_nothing_is_refused(tmp_path, line, why):
    path = tmp_path / "server.log"
    path.write_bytes(line.encode() + b"\n\xff\x00\n")
    with pytest.raises(ValueError, match=why):
        observe_log(path)


def test_a_compressed_log_is_read_and_known(tmp_path):
    path = tmp_path / "server.log.gz"
    path.write_bytes(gzip.compress("\n".join(["x"] * 100 + [v1(10), v1(20)]).encode()))
    assert looks_like_log(path)
    assert len(observe_log(path).readings) == 2
    (tmp_path / "no.log").write_text("x\n" * 100)
    assert not looks_like_log(tmp_path / "no.log")
