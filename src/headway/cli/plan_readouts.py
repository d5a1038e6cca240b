"""A plan for people."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Sequence

import numpy as np

from headway.cli.plan_launch import LaunchLine
from headway.cli.plan_question import Asked
from headway.cli.readouts import beyond_lines
from headway.cli.tables import number, print_table, seconds, share
from headway.insight.plan.capacity import cost_per_million
from headway.insight.plan.planning import Plan
from headway.insight.plan.timing import Decoding
from headway.simulator.step_time.fitted import FittedModel

_MOST_COLUMNS = 100
_GIB = 2**30


def print_plan(asked: Asked, plan: Plan, lines: Sequence[LaunchLine]) -> None:
    _heading(asked)
    _memory(asked, plan)
    _residents(plan)
    _steps(plan)
    _capacity(plan)
    _launch(lines)


def _say(text: str, indent: str = "") -> None:
    columns = min(_MOST_COLUMNS, shutil.get_terminal_size().columns)
    print(textwrap.fill(text, columns, subsequent_indent=indent, break_on_hyphens=False))


def _heading(asked: Asked) -> None:
    machine, facts = asked.machine, asked.facts
    on = str(facts.get("hardware", f"steps of {facts['step_time']}"))
    devices = f"{machine.tensor_parallel} x {on}" if machine.tensor_parallel > 1 else on
    _say(
        f"{asked.shape.name} on {devices}: weights in {machine.weight_dtype}, keys and values in "
        f"{machine.kv_dtype}"
    )
    for note in asked.notes:
        _say(f"  {note}", "  ")


def _memory(asked: Asked, plan: Plan) -> None:
    cache, memory = plan.question.cache, plan.question.memory
    factors = " x ".join(f"{value:g} {name}" for name, value in cache.factors.items())
    print("\n# Memory\n")
    _say(
        f"KV cache of a token: {factors} = {cache.bytes_per_token:,} bytes "
        f"({cache.bytes_per_token / 1024:,.4g} KiB)"
        + (f", divided by {cache.share} devices" if cache.share > 1 else ""),
        "  ",
    )
    machine, limits = asked.machine, plan.question.limits
    rows = []
    if memory.usable is not None:
        rows.append((f"usable, {machine.utilization:.0%} of a device", _gib(memory.usable)))
    size = f"{asked.shape.num_parameters / 1e9:.3g} G parameters in {machine.weight_dtype}"
    rows.append((f"weights: {size}", _gib(memory.weights)))
    what = f"activations of {limits.max_num_batched_tokens:,} tokens, logits of"
    rows.append((f"{what} {memory.num_samples:,}", _gib(memory.activations)))
    if memory.fixed:
        rows.append(("driver, graphs, workspaces (assumed)", _gib(memory.fixed)))
    rows.append(("KV cache", _gib(cache.pool_bytes)))
    print()
    print_table(("", ""), rows)
    print()
    _say(
        f"{cache.pool_bytes:,} bytes / {cache.block_bytes:,} a block of {cache.block_size} tokens "
        f"= {cache.num_blocks:,} blocks = {cache.num_tokens:,} tokens",
        "  ",
    )


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / _GIB:,.2f} GiB"


def _residents(plan: Plan) -> None:
    asked, limits = plan.question.demand, plan.question.limits
    print("\n# How many at once\n")
    for name, law in (("prompts", asked.prompts), ("outputs", asked.outputs)):
        low, middle, high = (law.quantile(q) for q in (0.05, 0.5, 0.95))
        print(f"{name}: mean {law.mean():,.0f} tokens; p5 {low:,}, p50 {middle:,}, p95 {high:,}")
    _say(
        f"worst case: {plan.question.cache.num_tokens:,} tokens / max_model_len "
        f"{limits.max_model_len:,} = {plan.worst_case:,.2f} requests",
        "  ",
    )
    if plan.worst_case < 1:
        _say(
            f"  one request of max_model_len does not fit: its {limits.max_model_len:,} tokens "
            f"need {plan.question.cache.blocks_for(limits.max_model_len):,} blocks and there are "
            f"{plan.question.cache.num_blocks:,}",
            "  ",
        )
    for part, what in (
        (plan.share_too_long, f"longer than max_model_len {limits.max_model_len:,}"),
        (plan.share_never_fits, "larger than the whole KV cache"),
    ):
        if part > 0:
            print(f"  {_share(part)} of the requests are {what}: refused or cut")
    print("\nexpected, with somebody always waiting:\n")
    rows = []
    for policy, found in plan.residents.items():
        if found is None:
            rows.append((policy, "none", "-", "-", "-"))
            continue
        spread = f"{found.p05:,.0f} - {found.p95:,.0f}"
        rows.append(
            (policy, f"{found.mean:,.1f}", spread, _wall(found.wall), number(found.blocks_each))
        )
    print_table(("--kv-policy", "mean", "p5 - p95", "the wall", "blocks each"), rows)
    print()
    for text in (
        "on-demand never reads max_tokens; when all grow, the newest is preempted and computed "
        "again",
        f"predict admits by expected final sizes, at a risk of {limits.kv_risk:g}: hardly ever "
        f"preempts",
        f"reserve holds room for {_declared(plan)} from the start: never preempts",
    ):
        _say(f"  {text}", "  ")


def _share(value: float) -> str:
    return share(value) if value >= 0.001 else "less than 0.1%"


def _declared(plan: Plan) -> str:
    declared = plan.question.demand.declared
    if declared.constant is not None:
        return f"max_tokens ({declared.constant:,})"
    if declared.multiple is not None:
        return f"max_tokens ({declared.multiple:g} times the output)"
    return "all of max_model_len, as clients declare no max_tokens,"


def _wall(wall: str) -> str:
    return {"blocks": "KV blocks", "budget": "token budget", "slots": "max_num_seqs"}[wall]


def _steps(plan: Plan) -> None:
    print("\n# How long a step takes\n")
    print(f"decodes that attend {plan.context:,.0f} tokens on average:\n")
    rows = []
    for row in plan.batches:
        what = "" if row.fits else "does not fit"
        rows.append((f"{row.batch:,}", seconds(row.step_s), number(row.tokens_per_second), what))
    print_table(("batch b", "t(b)", "tokens/s", ""), rows)
    a, gamma = plan.line_s
    print()
    through = f"1 and {max(2, int(plan.chosen.mean)):,}"
    _say(f"t(b) = a + gamma b through {through}: a = {seconds(a)}, gamma = {seconds(gamma)}", "  ")
    for beyond in _beyond_fit(plan):
        _say(beyond, "  ")
    if plan.knee is not None:
        beyond = " (more than fit)" if plan.knee > plan.chosen.mean else ""
        _say(
            f"knee: from a batch of {plan.knee:,} on a step takes twice as long as for "
            f"one{beyond}; beyond, more sequences cost each more pace than they bring together",
            "  ",
        )
    if plan.ridge is not None:
        binds = (
            f"arithmetic outlasts the reading of weights from a batch of {plan.ridge.batch:,.0f}"
            + (
                ""
                if plan.ridge.binds
                else ", but never that of weights and KV cache together at these lengths"
            )
        )
        _say(f"ridge: {plan.ridge.flops_per_byte:,.0f} FLOP for a byte; {binds}", "  ")


def _beyond_fit(plan: Plan) -> list[str]:
    """Where the table leaves the steps that the times were fitted to."""
    model = plan.question.step_times
    if not isinstance(model, FittedModel):
        return []
    decoding = Decoding(model, plan.context)
    shapes = [decoding.shape(row.batch) for row in plan.batches if row.fits]
    return beyond_lines(model, model.beyond(np.array(shapes, dtype=np.int64)))


def _capacity(plan: Plan) -> None:
    cost, price = plan.cost, plan.question.price_per_hour
    tokens = cost.num_decodes + 1
    print("\n# What it serves\n")
    _say(
        f"a request takes {seconds(cost.prefill_s)} for its prompt + {cost.num_decodes:,.0f} "
        f"decodes x {seconds(cost.decode_s)} = {seconds(cost.total_s)} of the machine at a batch "
        f"of {cost.batch:,.1f}, {share(cost.prefill_share)} of it for the prompt",
        "  ",
    )
    _say(
        f"at most {number(plan.requests_per_second)} requests/s = {number(plan.tokens_per_second)} "
        f"output tokens/s, without preemptions and with somebody always waiting",
        "  ",
    )
    print()
    header = ["of that", "requests/s", "batch", "per token", "tokens/s"]
    rows = []
    for load in plan.loads:
        row = [
            f"{load.share:.0%}",
            number(load.requests_per_second),
            f"{load.batch:,.1f}",
            seconds(load.step_s),
            number(load.tokens_per_second),
        ]
        if price is not None:
            row.append(number(cost_per_million(price, load.tokens_per_second)))
        rows.append(row)
    print_table([*header, "price of 1M"] if price is not None else header, rows)
    if plan.question.rate is not None:
        print()
        _at_rate(plan, plan.question.rate, tokens)


def _at_rate(plan: Plan, rate: float, tokens: float) -> None:
    asked = f"{number(rate)} requests/s"
    if plan.is_overloaded or plan.at_rate is None:
        machines = rate / plan.requests_per_second
        _say(
            f"{asked} is overloaded: Little's law has no solution up to a batch of "
            f"{plan.chosen.mean:,.1f}, which serves {number(plan.requests_per_second)} requests/s; "
            f"the queue grows without end. It takes {machines:.2f} such machines",
            "  ",
        )
        return
    load = plan.at_rate
    alone = plan.decodes_at_rate
    _say(
        f"{asked}: b = rate x {tokens:,.0f} tokens x t(b) gives a batch of "
        f"{0 if alone is None else alone:,.1f} for decodes alone, {load.batch:,.1f} with prompts "
        f"beside them; {seconds(load.step_s)} per token, {load.share:.0%} of capacity",
        "  ",
    )


def _launch(lines: Sequence[LaunchLine]) -> None:
    print("\n# Launch")
    for one in lines:
        print(f"\n{one.about}:\n\n{_folded(one.text)}\n")
        width = max(len(flag.name) for flag in one.flags)
        for flag in one.flags:
            _say(f"  {flag.name:<{width}}  {flag.why}", " " * (width + 4))


def _folded(text: str) -> str:
    """On several lines, as a shell takes them: no flag is parted from its value."""
    columns = min(_MOST_COLUMNS, shutil.get_terminal_size().columns)
    parts = text.replace(" --", "\n--").split("\n")
    lines, line = [], parts[0]
    for part in parts[1:]:
        if len(line) + 1 + len(part) + 2 > columns:
            lines.append(line)
            line = f"  {part}"
        else:
            line = f"{line} {part}"
    return " \\\n".join([*lines, line])
