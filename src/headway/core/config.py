"""What the scheduler is told once, checked on construction."""

from __future__ import annotations

from dataclasses import dataclass

KV_RISK = 0.18
MAX_WEIGHT = 1_000_000
KV_POLICIES = ("on-demand", "reserve", "predict")
UNITS = ("step", "request")
PREFILLS = ("mixed", "first")
ORDERINGS = ("fcfs", "priority", "sjf", "fair", "edf")
VICTIMS = ("auto", "newest", "least-lost", "lowest-priority", "most-served")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerConfig:
    """The scheduler's knobs; names and meanings are vLLM's where vLLM has them.

    `max_num_seqs` is read at admission only. `watermark` is the share of blocks that an admission
    leaves free while others run. `reserve_full_isl`: an on-demand admission needs blocks for all
    known tokens, not only for its first chunk. `long_prefill_token_threshold` of 0 is off.
    `max_num_partial_prefills`: prompts under way at a time, that share what a step has for them;
    0 is 1, or 8 with a target. `target_itl_ms`: prompts beside decodes are cut so that a step is
    expected to take no longer; 0 is off.
    `victim` "auto" goes with the ordering: the lowest priority where there are priorities, the most
    served where shares are fair. `tenant_weights`, as "a=2,b=1", are those of ordering "fair";
    `max_tenant_seqs` is the most running sequences of one tenant, 0 for no limit.
    `ageing_tokens_per_s`: under "sjf" a second of waiting makes up for so many tokens of work; None
    is 50, 0 is no ageing.
    `skip_blocked_ms`: how long others may pass one that does not fit, from the first that did.
    `kv_risk`: of the predict policy, how many preemptions a start may cost, on the mean.
    `prefix_salt` separates the prefix caches of servers. Raises ValueError with a sentence.
    """

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    max_model_len: int = 8192
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    max_num_partial_prefills: int = 0
    target_itl_ms: float = 0.0
    kv_policy: str = "on-demand"
    kv_risk: float = KV_RISK
    unit: str = "step"
    prefill: str = "mixed"
    ordering: str = "fcfs"
    ageing_tokens_per_s: int | None = None
    victim: str = "auto"
    tenant_weights: str = ""
    max_tenant_seqs: int = 0
    reserve_full_isl: bool = True
    watermark: float = 0.0
    skip_blocked_ms: int = 0
    prefix_salt: str | bytes = ""

    def __post_init__(self) -> None:
        _check_counts(self)
        _check_choices(self)
        _check_whole_prompts(self)
        _check_ageing(self)
        _check_target(self)
        _check_tenants(self)

    def num_blocks_for(self, num_tokens: int) -> int:
        """Blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)


def weights_of(text: str) -> dict[str, int]:
    """`a=2,b=1` as weights by tenant, in that order; who is not named weighs 1. "" is none.

    Raises ValueError with the end of a sentence.
    """
    weights: dict[str, int] = {}
    for part in text.split(",") if text.strip() else ():
        name, found, digits = (piece.strip() for piece in part.rpartition("="))
        if not (found and name and digits.isascii() and digits.isdigit()):
            raise ValueError(f"must be TENANT=WEIGHT, comma between them, as a=2,b=1, got {text!r}")
        if not 1 <= int(digits[:10]) <= MAX_WEIGHT or len(digits) > 10:
            raise ValueError(f"must have weights from 1 to {MAX_WEIGHT}, got {part.strip()!r}")
        if name in weights:
            raise ValueError(f"must name each tenant once, got {name!r} again")
        weights[name] = int(digits)
    return weights


def _check_counts(config: SchedulerConfig) -> None:
    for name, least in (
        ("max_num_seqs", 1),
        ("max_num_batched_tokens", 1),
        ("block_size", 1),
        ("max_model_len", 2),
        ("long_prefill_token_threshold", 0),
        ("max_num_partial_prefills", 0),
        ("max_tenant_seqs", 0),
        ("skip_blocked_ms", 0),
    ):
        _check_integer(name, getattr(config, name), least)
    if not 0 <= config.watermark < 1:
        raise ValueError(f"watermark must be a share in [0, 1), got {config.watermark!r}")
    if not 0 < config.kv_risk <= 0.5:
        raise ValueError(f"kv_risk must be above 0 and at most 0.5, got {config.kv_risk!r}")
    if config.kv_policy != "predict" and config.kv_risk != KV_RISK:
        raise ValueError(f"kv_risk is for kv_policy=predict, which is {config.kv_policy!r}")


def _check_choices(config: SchedulerConfig) -> None:
    for name, choices in (
        ("kv_policy", KV_POLICIES),
        ("unit", UNITS),
        ("prefill", PREFILLS),
        ("ordering", ORDERINGS),
        ("victim", VICTIMS),
    ):
        value = getattr(config, name)
        if value not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def _check_target(config: SchedulerConfig) -> None:
    target = config.target_itl_ms
    if target and not 0.001 <= target <= 1e9:
        raise ValueError(f"target_itl_ms must be 0 (off) or from 0.001 to 1e9, got {target!r}")
    shares = target or config.max_num_partial_prefills > 1
    if shares and not config.enable_chunked_prefill:
        raise ValueError(
            "target_itl_ms and max_num_partial_prefills cut prompts into chunks, but chunked "
            "prefill is off: leave them out or enable chunked prefill"
        )
    if target and (config.prefill != "mixed" or config.unit != "step"):
        raise ValueError(
            "target_itl_ms is for decodes that share their steps with prompts: it needs prompts "
            "mixed with decodes and continuous batching"
        )


def _check_whole_prompts(config: SchedulerConfig) -> None:
    if config.enable_chunked_prefill:
        return
    if config.max_num_batched_tokens < config.max_model_len:
        raise ValueError(
            f"without chunked prefill a prompt must fit in one step, but max_num_batched_tokens="
            f"{config.max_num_batched_tokens} is below max_model_len={config.max_model_len}: "
            f"raise the first, lower the second, or enable chunked prefill"
        )
    if config.long_prefill_token_threshold:
        raise ValueError(
            "long_prefill_token_threshold cuts prompts into chunks, but chunked prefill is off: "
            "set it to 0 or enable chunked prefill"
        )


def _check_ageing(config: SchedulerConfig) -> None:
    ageing = config.ageing_tokens_per_s
    if ageing is not None:
        _check_integer("ageing_tokens_per_s", ageing, 0)
        _check_ordering(config, "sjf", "ageing_tokens_per_s is")


def _check_tenants(config: SchedulerConfig) -> None:
    try:
        weights = weights_of(config.tenant_weights)
    except ValueError as error:
        raise ValueError(f"tenant_weights {error}") from None
    if weights:
        _check_ordering(config, "fair", "tenant_weights are")
    if config.victim == "most-served":
        _check_ordering(config, "fair", "victim most-served is")


def _check_integer(name: str, value: object, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, got {value!r}")


def _check_ordering(config: SchedulerConfig, ordering: str, what: str) -> None:
    if config.ordering != ordering:
        it_is = f"of ordering {ordering}, and it is {config.ordering}"
        raise ValueError(f"{what} {it_is}: leave out the one or change the other")
