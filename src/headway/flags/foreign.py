"""Flags of others: taken with one line, or refused with one sentence."""

from __future__ import annotations

from headway.flags.kinds import Foreign

_NOT_HERE = "has no effect here and is ignored"
_NO_ADAPTERS = "is refused: adapters are not supported yet"
_NOT_YET = "is refused: not supported yet"


def _ignored(*names: str, why: str = "", takes_value: bool = True) -> Foreign:
    return Foreign(names, f"{_NOT_HERE}{why}", takes_value, is_refused=False)


def _refused(*names: str, why: str = _NOT_YET, takes_value: bool = True) -> Foreign:
    return Foreign(names, why, takes_value)


def _may_be(*names: str, only: str, why: str = "") -> Foreign:
    return Foreign(names, f"may only be {only}{why}", is_fine=lambda value: value == only)


_IGNORED = (
    _ignored("--enforce-eager", why=": there are no graphs", takes_value=False),
    _ignored("--compilation-config", "-cc", "-O", why=": there are no graphs"),
    _ignored("--async-scheduling", "--no-async-scheduling", takes_value=False),
    _ignored("--max-num-scheduled-tokens", why=": see --max-num-batched-tokens"),
    _ignored("--prefill-schedule-interval"),
    _ignored("--performance-mode"),
    _ignored(
        "--disable-log-requests",
        why=": requests are logged only with --enable-log-requests",
        takes_value=False,
    ),
    _ignored(
        "--gpu-memory-utilization",
        why=": on a CPU, --kv-cache-memory-bytes sets the size of the KV cache",
    ),
    _ignored("--swap-space", why=": a preempted sequence is computed again, nothing is swapped"),
    _ignored(
        "--enable-prompt-tokens-details",
        why=": usage always has them",
        takes_value=False,
    ),
    _ignored(
        "--enable-server-load-tracking",
        why=": /load always counts",
        takes_value=False,
    ),
    _ignored("--guided-decoding-backend", "--structured-outputs-config"),
    _ignored("--collect-detailed-traces", why=": spans are always as fine as steps"),
    _ignored("--show-hidden-metrics-for-version"),
    _ignored("--kv-cache-metrics", "--enable-mfu-metrics", takes_value=False),
    _ignored("--h11-max-header-count", why=": --h11-max-incomplete-event-size bounds headers"),
    _ignored("--max-loras", "--max-lora-rank", "--max-cpu-loras", "--lora-dtype"),
    _ignored("--fully-sharded-loras", takes_value=False),
    _ignored("--cohere-format", why=": there is no such endpoint"),
    _ignored(
        "--cohere-is-reasoning-model",
        "--no-cohere-is-reasoning-model",
        why=": there is no such endpoint",
        takes_value=False,
    ),
    _ignored("--disable-frontend-multiprocessing", takes_value=False),
)
_ONE_VALUE = (
    Foreign(
        ("--preemption-mode",),
        "is gone: a preempted sequence is computed again (recompute), and nothing is swapped",
        is_fine=lambda value: value == "recompute",
    ),
    _may_be(
        "--tensor-parallel-size",
        "-tp",
        "--pipeline-parallel-size",
        "-pp",
        "--data-parallel-size",
        "-dp",
        only="1",
        why=": one engine is one machine",
    ),
    _may_be("--tokenizer-mode", only="auto"),
    _may_be(
        "--max-long-partial-prefills",
        only="1",
        why=": prompts join those under way by length, see --max-num-partial-prefills",
    ),
    _may_be("--prefix-caching-hash-algo", only="sha256"),
    _may_be("--logprobs-mode", only="raw_logprobs"),
    _may_be("--api-server-count", "-asc", only="1", why=": one API process serves all"),
)
_REFUSED = (
    _refused(
        "--trust-remote-code",
        why="is refused: no code from a model directory is run; leave it out",
        takes_value=False,
    ),
    _refused("--enable-lora", why=_NO_ADAPTERS, takes_value=False),
    _refused("--lora-modules", why=_NO_ADAPTERS),
    _refused("--speculative-config", "-sc", why="is refused: speculation is not supported yet"),
    _refused(
        "--enable-auto-tool-choice",
        why="is refused: tool calls are not supported yet",
        takes_value=False,
    ),
    _refused("--tool-call-parser", "--reasoning-parser", "--tool-server", "--tool-parser-plugin"),
    _refused("--kv-offloading-size", "--kv-offloading-backend", "--kv-transfer-config"),
    _refused(
        "--headless",
        "--data-parallel-hybrid-lb",
        "--data-parallel-external-lb",
        "--data-parallel-multi-port-external-lb",
        why="is refused: one engine is one machine",
        takes_value=False,
    ),
    _refused(
        "--data-parallel-supervisor-port",
        "--dp-supervisor-probe-interval-s",
        "--dp-supervisor-probe-timeout-s",
        "--dp-supervisor-probe-failure-threshold",
        "--data-parallel-rank",
        "--data-parallel-size-local",
        "--data-parallel-address",
        "--data-parallel-rpc-port",
        why="is refused: one engine is one machine",
    ),
    _refused(
        "--log-config-file",
        why="is refused: --log-format and --uvicorn-log-level set what is logged and how",
    ),
    _refused(
        "--enable-log-outputs",
        why="is refused: what the model answers is never logged",
        takes_value=False,
    ),
    _refused(
        "--enable-ssl-refresh",
        why="is refused: restart the server when its certificate changes",
        takes_value=False,
    ),
    _refused(
        "--no-batch-invariant",
        why="is refused: an answer never depends on its neighbours, and there is no faster way yet",
        takes_value=False,
    ),
    _refused(
        "--runaway-alarm-length-share",
    ),
)
FOREIGN: tuple[Foreign, ...] = (*_IGNORED, *_ONE_VALUE, *_REFUSED)
