"""The flags to launch with, and why each."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from headway.insight.plan.residents import Residents

_USUAL_BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class LaunchFlag:
    """`value` None: the flag stands alone."""

    name: str
    value: str | None
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchFacts:
    """What the flags are chosen from. `flags_of_model`: its types, as given."""

    model: str | None  # None: the default model
    flags_of_model: Sequence[LaunchFlag]
    residents: Residents  # under the policy that is planned with
    most_sequences: int  # whose logits are counted
    block_size: int
    max_model_len: int
    why_max_model_len: str
    max_num_batched_tokens: int
    why_max_num_batched_tokens: str
    pool_bytes: int
    is_pool_given: bool
    utilization: float | None  # of an accelerator; None on a CPU
    tensor_parallel: int


def headway_flags(facts: LaunchFacts) -> list[LaunchFlag]:
    """Of `headway serve`."""
    flags = list(facts.flags_of_model)
    flags.append(LaunchFlag("--max-model-len", str(facts.max_model_len), facts.why_max_model_len))
    flags.append(
        LaunchFlag(
            "--kv-cache-memory-bytes",
            str(facts.pool_bytes),
            "the KV cache that is counted with here",
        )
    )
    return [*flags, *_blocks(facts), *_policy(facts), _sequences(facts), _budget(facts)]


def vllm_flags(facts: LaunchFacts) -> list[LaunchFlag]:
    """Of `vllm serve`, which has blocks on demand only."""
    flags = list(facts.flags_of_model)
    if facts.tensor_parallel > 1:
        flags.append(
            LaunchFlag(
                "--tensor-parallel-size", str(facts.tensor_parallel), "devices that share the model"
            )
        )
    flags.append(LaunchFlag("--max-model-len", str(facts.max_model_len), facts.why_max_model_len))
    if facts.is_pool_given or facts.utilization is None:
        flags.append(
            LaunchFlag("--kv-cache-memory-bytes", str(facts.pool_bytes), "of each device, as asked")
        )
    else:
        flags.append(
            LaunchFlag(
                "--gpu-memory-utilization",
                f"{facts.utilization:g}",
                "what is counted with here; the rest is for what nobody counts",
            )
        )
    return [*flags, *_blocks(facts), _sequences(facts), _budget(facts)]


def line(command: str, model: str | None, flags: Sequence[LaunchFlag]) -> str:
    """To paste into a shell."""
    words = [*command.split(), *([model] if model else [])]
    for flag in flags:
        words += [flag.name] if flag.value is None else [flag.name, flag.value]
    return shlex.join(words)


def _blocks(facts: LaunchFacts) -> list[LaunchFlag]:
    if facts.block_size == _USUAL_BLOCK_SIZE:
        return []
    return [LaunchFlag("--block-size", str(facts.block_size), "as asked")]


def _policy(facts: LaunchFacts) -> list[LaunchFlag]:
    residents = facts.residents
    if residents.kv_policy == "on-demand":
        return []
    why = {
        "predict": "admits by the expected size, so that hardly anybody is preempted",
        "reserve": "never preempts; room for max_tokens is held from the start",
    }[residents.kv_policy]
    return [LaunchFlag("--kv-policy", residents.kv_policy, why)]


def _sequences(facts: LaunchFacts) -> LaunchFlag:
    """A cap costs tokens wherever it is below what fits now; above, it keeps a rush from filling
    the pool with prompts that then throw each other out."""
    residents = facts.residents
    most = math.ceil(residents.p95) if residents.wall == "blocks" else math.floor(residents.mean)
    if residents.wall == "blocks":
        why = f"{residents.mean:.1f} fit on average, no more than this in 95 of 100 steps"
    elif residents.wall == "slots":
        why = "as asked: there are blocks for more"
    else:
        why = f"prompts leave tokens in a step for {residents.mean:.0f} decodes"
    if most > facts.most_sequences:
        most, why = facts.most_sequences, f"{why}; memory is counted for so many logits"
    return LaunchFlag("--max-num-seqs", str(max(1, most)), why)


def _budget(facts: LaunchFacts) -> LaunchFlag:
    return LaunchFlag(
        "--max-num-batched-tokens",
        str(facts.max_num_batched_tokens),
        facts.why_max_num_batched_tokens,
    )
