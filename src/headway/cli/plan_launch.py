"""The lines to paste after a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headway.cli.plan_memory import is_accelerator
from headway.cli.plan_question import Asked
from headway.insight.plan.launch import (
    LaunchFacts,
    LaunchFlag,
    headway_flags,
    line,
    vllm_flags,
)
from headway.insight.plan.planning import Plan
from headway.simulator.step_time.models import hub_name


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLine:
    """`about`: what it is for, and what to know of it."""

    text: str
    about: str
    flags: tuple[LaunchFlag, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "line": self.text,
            "about": self.about,
            "why": {flag.name: flag.why for flag in self.flags},
        }


def launch_lines(asked: Asked, plan: Plan) -> list[LaunchLine]:
    """What starts the server; on an accelerator, vLLM's too."""
    facts = _facts(asked, plan)
    has_vllm = facts.utilization is not None
    lines = []
    if has_vllm:
        flags = vllm_flags(facts)
        name = hub_name(asked.model or asked.shape.name)
        about = "vLLM (blocks on demand)"
        lines.append(LaunchLine(text=line("vllm serve", name, flags), about=about, flags=(*flags,)))
    ours = headway_flags(facts)
    about = "Headway"
    if has_vllm:
        about = "Headway (on CPUs so far: there the same flags mean the same)"
    model = hub_name(asked.model) if has_vllm and asked.model else asked.model
    lines.append(LaunchLine(text=line("headway serve", model, ours), about=about, flags=(*ours,)))
    return lines


def _facts(asked: Asked, plan: Plan) -> LaunchFacts:
    question, machine = plan.question, asked.machine
    cache = question.cache
    length, why_length = _max_model_len(asked, plan)
    budget, why_budget = _budget(asked, plan)
    return LaunchFacts(
        model=asked.model,
        flags_of_model=_types(asked),
        residents=plan.chosen,
        most_sequences=question.memory.num_samples,
        block_size=cache.block_size,
        max_model_len=length,
        why_max_model_len=why_length,
        max_num_batched_tokens=budget,
        why_max_num_batched_tokens=why_budget,
        pool_bytes=cache.pool_bytes,
        is_pool_given=question.memory.usable is None,
        utilization=machine.utilization if is_accelerator(machine) else None,
        tensor_parallel=machine.tensor_parallel,
    )


def _types(asked: Asked) -> list[LaunchFlag]:
    machine = asked.machine
    flags = []
    if machine.weight_dtype not in ("bf16", "float32"):
        flags.append(LaunchFlag("--quantization", machine.weight_dtype, "weights, as asked"))
    elif machine.weight_dtype == "float32":
        flags.append(LaunchFlag("--dtype", "float32", "as asked"))
    if machine.kv_dtype not in ("bf16", machine.weight_dtype):
        flags.append(LaunchFlag("--kv-cache-dtype", machine.kv_dtype, "keys and values, as asked"))
    return flags


def _max_model_len(asked: Asked, plan: Plan) -> tuple[int, str]:
    limits, cache = plan.question.limits, plan.question.cache
    if limits.max_model_len <= cache.num_tokens:
        if "max_model_len" in asked.settings:
            return limits.max_model_len, "as asked"
        return limits.max_model_len, "the longest that the model was made for"
    return cache.num_tokens, (
        f"one request of {limits.max_model_len:,} does not fit the {cache.num_tokens:,} tokens of "
        f"KV cache"
    )


def _budget(asked: Asked, plan: Plan) -> tuple[int, str]:
    limits, chosen = plan.question.limits, plan.chosen
    if "max_num_batched_tokens" in asked.settings:
        return limits.max_num_batched_tokens, "as asked"
    if chosen.wall == "budget":
        return limits.max_num_batched_tokens, "usual here; it is the wall: more lets more decode"
    return limits.max_num_batched_tokens, "usual here; more speeds prompts up and stalls decodes"
