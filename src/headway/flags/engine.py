"""The flags of EngineConfig."""

from __future__ import annotations

from headway.core.config import ORDERINGS
from headway.engine.config import DTYPES, KV_CACHE_DTYPES, LOAD_FORMATS, QUANTIZATIONS
from headway.flags.kinds import Flag, Section
from headway.flags.values import (
    parse_bytes,
    parse_count,
    parse_int,
    parse_milliseconds,
    parse_model_len,
    parse_risk,
    parse_share,
    parse_size,
    parse_weights,
)

_engine = Section("engine")

ENGINE_FLAGS: tuple[Flag, ...] = (
    _engine.value(
        "--model",
        str,
        "Directory, .gguf file or hub name; SmolLM2-135M-Instruct unless given.",
        "MODEL",
    ),
    _engine.value(
        "--served-model-name", str, "Names that clients may ask for.", "NAME", repeats=True
    ),
    _engine.value("--revision", str, "Revision of a hub model.", "REV"),
    _engine.value("--download-dir", str, "Where hub models are kept.", "DIR"),
    _engine.choice("--load-format", LOAD_FORMATS, "How the weights are stored.", "FORMAT"),
    _engine.choice("--dtype", DTYPES, "Compute type.", "TYPE"),
    _engine.choice(
        "--quantization",
        QUANTIZATIONS,
        "Weights in few bits: int8; int4 in groups of 32; gguf: as the GGUF file has them.",
        "FORMAT",
        short=("-q",),
    ),
    _engine.value(
        "--max-model-len",
        parse_model_len,
        "Longest prompt plus output, in tokens: 8192, 8k (8000), 8K (8192); auto: the model's.",
    ),
    _engine.value(
        "--seed",
        parse_int,
        "Draws the seeds of requests that bring none; drawn at random unless given.",
    ),
    _engine.value(
        "--max-num-seqs",
        parse_int,
        "Most sequences in a step; 256, or what the KV cache holds.",
    ),
    _engine.value(
        "--max-num-batched-tokens",
        parse_size,
        "Most tokens in a step; 512, or --max-num-seqs if larger.",
    ),
    _engine.switch(
        "--enable-chunked-prefill", "Whether a prompt may be spread over several steps."
    ),
    _engine.value(
        "--long-prefill-token-threshold",
        parse_count,
        "Most prompt tokens of one sequence in a step; 0 is no limit.",
    ),
    _engine.value(
        "--max-num-partial-prefills",
        parse_count,
        "Most prompts under way at a time, short ones beside long ones; 0: 1, or 8 with a target.",
    ),
    _engine.value(
        "--target-itl-ms",
        parse_milliseconds,
        "Cuts prompts so that a step with decodes should take no longer; 0 is off.",
        "MS",
    ),
    _engine.choice(
        "--scheduling-policy",
        ORDERINGS,
        "Order of service: by arrival, by the priority of a request (lower first), the least "
        "predicted work first, fair: by what each tenant was served, or edf: by deadline.",
        "POLICY",
    ),
    _engine.value(
        "--ageing-tokens-per-s",
        parse_count,
        "Under sjf, tokens of work that a second of waiting makes up for; 50. 0: none.",
    ),
    _engine.value(
        "--tenant-weights",
        parse_weights,
        "Shares under the policy fair, as a=2,b=1; all others weigh 1.",
        "TENANT=N,...",
    ),
    _engine.value(
        "--max-tenant-seqs",
        parse_count,
        "Most slots of one tenant; 0 is no limit.",
    ),
    _engine.switch(
        "--scheduler-reserve-full-isl",
        "Whether the whole prompt must fit before a sequence is admitted.",
    ),
    _engine.value(
        "--watermark", parse_share, "Share of blocks, 0 to 1, that admission leaves free."
    ),
    _engine.value(
        "--skip-blocked-ms",
        parse_count,
        "How long others may pass one that does not fit, from the first that does; 0: never.",
    ),
    _engine.value("--block-size", parse_int, "Tokens in a KV block."),
    _engine.value(
        "--kv-cache-memory-bytes",
        parse_bytes,
        "Size of the KV cache: 1g, 512MiB; a quarter of free memory, at most 4 GiB.",
        "BYTES",
    ),
    _engine.value(
        "--num-gpu-blocks-override", parse_int, "Number of KV blocks, whatever the memory says."
    ),
    _engine.switch("--enable-prefix-caching", "Whether computed blocks are found again."),
    _engine.choice("--kv-cache-dtype", KV_CACHE_DTYPES, "Type of keys and values.", "TYPE"),
    _engine.choice(
        "--kv-policy",
        ("on-demand", "reserve", "predict"),
        "Blocks as needed; all that max_tokens may need; or what outputs are expected to need.",
        "POLICY",
    ),
    _engine.value(
        "--kv-risk",
        parse_risk,
        "With --kv-policy predict: how many preemptions each start may cost, on the mean.",
        "SHARE",
    ),
    _engine.choice(
        "--batching-unit",
        ("step", "request"),
        "Who may join: step (continuous batching) or request (static).",
        "UNIT",
    ),
    _engine.choice(
        "--prefill-placement",
        ("mixed", "first"),
        "Prompts beside decodes in a step, or before them.",
        "PLACE",
    ),
    _engine.choice(
        "--preemption-victim",
        ("newest", "least-lost", "lowest-priority", "most-served"),
        "Who loses its blocks when there are none left; by --scheduling-policy unless given.",
        "RULE",
    ),
    _engine.value("--num-threads", parse_int, "Threads of the kernels; one for each processor."),
    _engine.value("--max-logprobs", parse_count, "Most logprobs per token."),
    _engine.value(
        "--scheduler-cls", str, "A scheduler of your own, by its import path.", "MODULE.CLASS"
    ),
    _engine.switch(
        "--enable-trace-replay",
        "Whether requests may force their output (trace_decode_token_ids); for tests.",
    ),
    _engine.value(
        "--record", str, "Write arrivals and decisions to this file; no text, no tokens.", "FILE"
    ),
)
