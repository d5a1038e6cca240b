"""Every flag that people paste from elsewhere: it works, or one line says what becomes of it."""

from __future__ import annotations

import pytest

from headway.cli import chat
from headway.cli.parsing import parse_flags
from headway.flags import FlagError

# TAKEN: means the same. NOTED: accepted, one line. REFUSED: one sentence.
TAKEN = """
--explain-buffer 10000
--model m|--served-model-name a b|--tokenizer dir|--revision main|--download-dir d
--load-format auto|--load-format safetensors|--load-format dummy|--dtype float32|--dtype bfloat16
--quantization int8|-q int8
--max-model-len 8k|--max-model-len -1|--seed 1|--max-num-seqs 4|--max-num-batched-tokens 512
--enable-chunked-prefill|--no-enable-chunked-prefill|--long-prefill-token-threshold 64
--max-num-partial-prefills 8|--target-itl-ms 12.5|--max-long-partial-prefills 1
--scheduling-policy fcfs
--scheduling-policy sjf|--scheduling-policy edf
--scheduling-policy sjf --ageing-tokens-per-s 5
--scheduling-policy priority|--scheduler-reserve-full-isl|--no-scheduler-reserve-full-isl
--watermark 0.1|--max-num-queued-reqs 10|--max-num-queued-tokens 8k|--queue-full-status 429
--scheduling-policy fair --tenant-weights a=2,b=1|--scheduling-policy fair|--max-tenant-seqs 4
--tenant-header x-team|--max-tenant-queued-reqs 4|--max-tenant-queued-tokens 8k
--scheduling-policy fair --preemption-victim most-served|--stream-interval 4
--scheduler-cls a.B|--block-size 32|--kv-cache-memory-bytes 1g
--num-gpu-blocks-override 64|--enable-prefix-caching|--no-enable-prefix-caching
--prefix-caching-hash-algo sha256|--kv-cache-dtype auto|--kv-cache-dtype int8
--preemption-mode recompute
--preemption-victim newest|--preemption-victim least-lost|--preemption-victim lowest-priority
--max-logprobs 5|--skip-blocked-ms 500
--logprobs-mode raw_logprobs|-tp 1|-pp 1|-dp 1|--tensor-parallel-size 1
--pipeline-parallel-size=1|--data-parallel-size=1|--tokenizer-mode auto
--disable-log-stats|--enable-log-requests|--no-enable-log-requests|--max-log-len 100
--otlp-traces-endpoint http://localhost:4318|--enable-trace-replay
--custom-histogram-buckets {"request_latency":[0.1,1]}
--host 127.0.0.1|--port 80|--uds /run/x.sock|--api-key a b|--chat-template {{x}}
--chat-template-content-format openai|--default-chat-template-kwargs {"a":1}
--default-chat-template-kwargs.enable_thinking false|--trust-request-chat-template
--response-role assistant|--return-tokens-as-token-ids|--enable-force-include-usage
--enable-per-request-metrics|--enable-request-id-headers
--enable-tokenizer-info-endpoint|--disable-uvicorn-access-log
--disable-access-log-for-endpoints /health,/metrics|--uvicorn-log-level warning
--allowed-origins ["*"]|--allowed-origins http://a http://b|--allowed-methods ["GET"]
--allowed-headers ["*"]|--allow-credentials|--ssl-cert-reqs 0|--root-path /api
--middleware a.B|--disable-fastapi-docs|--shutdown-timeout 5|--fingerprint-mode none
--generation-config vllm|--override-generation-config {"temperature":0.5}
--h11-max-incomplete-event-size 65536|--api-server-count 1
--kv-policy predict --kv-risk 0.02
--kv-policy reserve|--default-deadline-s 10|--max-queue-time-s 5|--max-request-seconds 60
--record trace.jsonl|--no-trust-remote-code|--no-enable-lora|--no-enable-auto-tool-choice
"""
NOTED = """
--max-num-scheduled-tokens 10|--prefill-schedule-interval 1|--async-scheduling
--no-async-scheduling|--gpu-memory-utilization 0.9|--swap-space 4|--enforce-eager
--no-enforce-eager|--compilation-config {}|-O3|-O 3|-O.mode=1|--performance-mode throughput
--max-loras 1|--max-lora-rank 16|--max-cpu-loras 1|--lora-dtype auto|--fully-sharded-loras
--structured-outputs-config {}|--structured-outputs-config.backend auto
--guided-decoding-backend auto|--collect-detailed-traces all|--disable-log-requests
--show-hidden-metrics-for-version 0.9|--kv-cache-metrics|--enable-mfu-metrics
--enable-prompt-tokens-details|--h11-max-header-count 10|--cohere-format cmd4
--cohere-is-reasoning-model|--enable-server-load-tracking
"""
REFUSED = """
--trust-remote-code|--tokenizer-mode slow|--load-format gguf2
--target-itl-ms -1
--max-long-partial-prefills 2|--prefix-caching-hash-algo xxhash|--kv-cache-dtype fp8
--kv-offloading-size 4|--kv-offloading-backend native|--preemption-mode swap
--preemption-victim last|--enable-lora|--lora-modules a=b|--logprobs-mode raw_logits
--speculative-config {}|-sc {}|-tp 2|-pp 2|-dp 2|--tensor-parallel-size 2|-q awq
--quantization fp8|--no-batch-invariant|--enable-auto-tool-choice|--tool-call-parser hermes
--reasoning-parser qwen3|--tool-server demo|--api-server-count 2|--headless
--data-parallel-supervisor-port 9256
--tenant-header x:y|--tenant-weights a=0|--runaway-alarm-length-share 0.5
"""


def lines(table: str) -> list[str]:
    return [line for line in table.replace("\n", "|").split("|") if line]


@pytest.mark.parametrize("line", lines(TAKEN))
def test_taken(line: str) -> None:
    parsed = parse_flags(line.split(" "))
    parsed.configs()
    assert not parsed.warnings


@pytest.mark.parametrize("line", lines(NOTED))
def test_noted_with_one_line(line: str) -> None:
    words = line.split(" ")
    (warning,) = parse_flags(words).warnings
    name = "-O" if words[0].startswith("-O") else words[0].partition(".")[0]
    assert warning.startswith(f"{name} has no effect here and is ignored")


@pytest.mark.parametrize("line", lines(REFUSED))
def test_refused_with_one_sentence(line: str) -> None:
    words = line.split(" ")
    with pytest.raises(FlagError) as error:
        parse_flags(words)
    assert str(error.value).startswith(words[0])
    assert "\n" not in str(error.value)


def test_entries_of_objects_come_together() -> None:
    words = ["--default-chat-template-kwargs", '{"a": {"x": 1}}']
    words += ["--default-chat-template-kwargs.a.y=true", "--default-chat-template-kwargs.b", "word"]
    _, server = parse_flags(words).configs()
    assert server.default_chat_template_kwargs == {"a": {"x": 1, "y": True}, "b": "word"}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--port", "80"], "--port is for headway serve: leave it out"),
        (["--max-num-queued-reqs=1"], "--max-num-queued-reqs is for headway serve"),
        (["--api-key", "k"], "--api-key is for headway serve"),
        (["--url", "http://x", "--max-num-seqs", "1"], "--max-num-seqs has no effect with --url"),
        (["--url", "http://x", "--tokenizer", "d"], "--tokenizer is for headway serve"),
    ],
)
def test_chat_refuses_what_it_would_ignore(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat.main(words) == 2
    assert sentence in capsys.readouterr().err
