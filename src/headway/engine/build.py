"""Put an engine together: model, KV cache, scheduler, loop."""

from __future__ import annotations

import time
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from headway.core.scheduler import Scheduler
from headway.drive.loop import EngineLoop
from headway.drive.ports import Inbox, Listener, RunListener, StepListener
from headway.drive.recorder import RecordedInbox
from headway.engine.clock import RealClock
from headway.engine.config import EngineConfig
from headway.engine.executor import ModelExecutor
from headway.engine.populating import populate_in_background
from headway.engine.recording import RunningRecording, start_recording
from headway.engine.scheduler_class import load_scheduler_class
from headway.engine.scheduler_settings import scheduler_config
from headway.engine.sizing import Sizes, choose_sizes
from headway.model.loader import LoadedModel, load_model
from headway.model.source import ModelSource, resolve
from headway.ops import select
from headway.ops.interface import KVCache, Ops
from headway.wire import EngineFacts, EngineStats


@dataclass(frozen=True, slots=True)
class Engine:
    """Everything one engine is made of. Not thread-safe: one thread turns the loop."""

    loop: EngineLoop
    scheduler: Scheduler
    executor: ModelExecutor
    facts: EngineFacts
    source: ModelSource
    kv_cache: KVCache
    recording: RunningRecording | None = None

    def warm_up(self) -> None:
        """Take from the system what steps would wait for: the first page of each layer now, the
        others by and by. Only before the first step: it writes where keys and values will lie.
        """
        for array in (self.kv_cache.keys, self.kv_cache.values):
            array.reshape(len(array), -1)[:, 0] = 0
        populate_in_background(self.kv_cache)


def build_engine(
    config: EngineConfig,
    inbox: Inbox,
    listeners: SequenceOf[Listener] = (),
    run_listeners: SequenceOf[RunListener] = (),
) -> Engine:
    """Load the model and stand the engine up; raises ValueError or OSError with a sentence."""
    phases = Phases()
    source = resolve(config.model, revision=config.revision, download_dir=config.download_dir)
    phases.end("find the model")
    ops, why = select.choose(num_threads=config.num_threads)
    model = load_model(
        source,
        ops,
        compute_dtype(config),
        load_format=config.load_format,
        quantization=config.quantization,
    )
    phases.end("load and pack weights")
    return assemble(
        config,
        source,
        model,
        ops,
        inbox,
        listeners,
        run_listeners=run_listeners,
        why=why,
        phases=phases,
    )


def compute_dtype(config: EngineConfig) -> str:
    """bfloat16 unless told otherwise: half the bytes to read, and the matrix units take it."""
    return "bfloat16" if config.dtype == "auto" else config.dtype


def assemble(
    config: EngineConfig,
    source: ModelSource,
    model: LoadedModel,
    ops: Ops,
    inbox: Inbox,
    listeners: SequenceOf[Listener] = (),
    step_listeners: SequenceOf[StepListener] = (),
    *,
    run_listeners: SequenceOf[RunListener] = (),
    why: str = "",
    phases: Phases | None = None,
) -> Engine:
    """Stand an engine up around a loaded model. Weights may be shared by several engines."""
    phases = phases or Phases()
    dtype = compute_dtype(config)
    kv_dtype = dtype if config.kv_cache_dtype == "auto" else config.kv_cache_dtype
    sizes = choose_sizes(config, model.config, kv_dtype)
    cache = ops.new_kv_cache(
        model.config.num_layers,
        sizes.num_blocks,
        config.block_size,
        model.config.num_kv_heads,
        model.config.head_dim,
        kv_dtype,
    )
    make_scheduler = load_scheduler_class(config.scheduler_cls)
    settings = scheduler_config(
        config,
        max_num_seqs=sizes.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        max_model_len=sizes.max_model_len,
    )
    scheduler = make_scheduler(settings, num_blocks=sizes.num_blocks)
    executor = ModelExecutor(model.decoder, cache, ops)
    phases.end("KV cache and scheduler")
    facts = _facts(config, source, model, sizes, (dtype, kv_dtype), ops, why, phases)
    recording = start_recording(config.record, scheduler, facts) if config.record else None
    return Engine(
        loop=_loop(
            scheduler, executor, inbox, (listeners, step_listeners, run_listeners), recording
        ),
        scheduler=scheduler,
        executor=executor,
        facts=facts,
        source=source,
        kv_cache=cache,
        recording=recording,
    )


def _loop(
    scheduler: Scheduler,
    executor: ModelExecutor,
    inbox: Inbox,
    told: tuple[SequenceOf[Listener], SequenceOf[StepListener], SequenceOf[RunListener]],
    recording: RunningRecording | None,
) -> EngineLoop:
    """The recorder comes last: what it writes keeps nobody waiting for tokens."""
    listeners, step_listeners, run_listeners = told
    clock = RealClock()
    recorders = (recording.recorder,) if recording else ()
    return EngineLoop(
        scheduler,
        clock=clock,
        inbox=RecordedInbox(inbox, recording.recorder, clock) if recording else inbox,
        executor=executor,
        listeners=(*listeners, executor, *recorders),
        step_listeners=(*step_listeners, *recorders),
        run_listeners=run_listeners,
    )


def read_stats(scheduler: Scheduler) -> EngineStats:
    """The scheduler's state between two steps."""
    running, waiting, total, held, cached, resident, backlog, reasons = scheduler.stats()
    by_value = {why.value: count for why, count in reasons.items()} if reasons else {}
    return EngineStats(
        scheduler.num_steps, running, waiting, total, held, cached, resident, backlog, by_value
    )


class Phases:
    """How long each part of the start took."""

    def __init__(self) -> None:
        self.ms: dict[str, float] = {}
        self._since_ns = time.monotonic_ns()

    def end(self, name: str) -> None:
        now_ns = time.monotonic_ns()
        self.ms[name] = (now_ns - self._since_ns) / 1e6
        self._since_ns = now_ns


def _facts(
    config: EngineConfig,
    source: ModelSource,
    model: LoadedModel,
    sizes: Sizes,
    dtypes: tuple[str, str],
    ops: Ops,
    why: str,
    phases: Phases,
) -> EngineFacts:
    return EngineFacts(
        model=source.name,
        dtype=dtypes[0],
        backend=ops.name,
        backend_reason=why,
        num_threads=ops.num_threads,
        vocab_size=model.config.vocab_size,
        max_model_len=sizes.max_model_len,
        block_size=config.block_size,
        num_blocks=sizes.num_blocks,
        kv_cache_dtype=dtypes[1],
        kv_bytes_per_token=model.config.kv_bytes_per_token(dtypes[1]),
        max_num_seqs=sizes.max_num_seqs,
        max_num_batched_tokens=sizes.max_num_batched_tokens,
        enable_prefix_caching=config.enable_prefix_caching,
        kv_policy=config.kv_policy,
        stop_token_ids=list(model.config.eos_token_ids),
        max_logprobs=config.max_logprobs,
        phases_ms=phases.ms,
        scheduling_policy=config.scheduling_policy,
        max_tenant_seqs=config.max_tenant_seqs,
        quantization=config.quantization,
        enable_trace_replay=config.enable_trace_replay,
    )
