"""`--save-result`: a file with the names that vLLM's own benchmark gives to figures."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from headway.bench.figures import Figures
from headway.bench.outcome import Outcome
from headway.bench.sweep import RatePoint
from headway.cli.bench.flags import BenchFlags
from headway.cli.bench.readouts import Shown
from headway.cli.tables import number
from headway.flags import FlagError


def save_result(point: RatePoint, flags: BenchFlags, shown: Shown, model: str) -> Path:
    """Returns where it is. Raises FlagError."""
    values = {
        "date": time.strftime("%Y%m%d-%H%M%S"),
        "label": flags.get("--label"),
        "backend": flags.text("--backend", "openai"),
        "model_id": model,
        "num_prompts": point.figures.num_requests,
        "request_rate": "inf" if math.isinf(point.rate) else point.rate,
        "burstiness": flags.number("--burstiness", 1.0),
        "max_concurrency": flags.get("--max-concurrency"),
        **flags.pairs("--metadata"),
        **_figures(point.figures, shown),
    }
    if flags.has("--save-detailed"):
        values |= _detailed(point.measured.outcomes)
    path = _path(flags, values, model)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values, default=str) + "\n")
    except OSError as error:
        raise FlagError(f"--save-result: {path} cannot be written: {error.strerror}") from None
    return path


def _path(flags: BenchFlags, values: dict[str, Any], model: str) -> Path:
    label = values["label"] or values["backend"]
    limit = f"-concurrency{values['max_concurrency']}" if values["max_concurrency"] else ""
    base = model.rsplit("/", 1)[-1]
    name = f"{label}-{values['request_rate']}qps{limit}-{base}-{values['date']}.json"
    name = "".join(c if c.isalnum() or c in "-_.," else "_" for c in name)[-200:]
    return Path(flags.text("--result-dir", ".")) / flags.text("--result-filename", name)


def _figures(figures: Figures, shown: Shown) -> dict[str, Any]:
    tokens = figures.num_prompt_tokens + figures.num_output_tokens
    values: dict[str, Any] = {
        "duration": figures.duration_s,
        "completed": figures.num_served,
        "failed": figures.num_requests - figures.num_served,
        "total_input_tokens": figures.num_prompt_tokens,
        "total_output_tokens": figures.num_output_tokens,
        "request_throughput": figures.requests_per_second,
        "request_goodput": None if figures.num_good is None else figures.good_per_second,
        "output_throughput": figures.output_tokens_per_second,
        "total_token_throughput": tokens / figures.duration_s if figures.duration_s else 0.0,
        "max_concurrent_requests": figures.peak_open,
    }
    for name in shown.times:
        times = figures.times[name]
        values[f"mean_{name}_ms"] = _ms(times.mean)
        values[f"median_{name}_ms"] = _ms(times.at(50))
        values[f"std_{name}_ms"] = _ms(times.deviation)
        for percent in shown.percentiles:
            values[f"p{number(percent)}_{name}_ms"] = _ms(times.at(percent))
    return values


def _ms(seconds: float) -> float | None:
    return None if math.isnan(seconds) else seconds * 1e3


def _detailed(outcomes: list[Outcome]) -> dict[str, Any]:
    """A list for each, in seconds; as there, a request that was not served has zeros."""
    return {
        "input_lens": [o.num_prompt_tokens for o in outcomes],
        "output_lens": [o.num_output_tokens for o in outcomes],
        "ttfts": [o.ttft_ns() / 1e9 if o.is_served else 0.0 for o in outcomes],
        "itls": [(o.gaps_ns() / 1e9).tolist() for o in outcomes],
        "latencies": [o.e2e_ns() / 1e9 if o.is_served else 0.0 for o in outcomes],
        "start_times": [o.intended_ns / 1e9 for o in outcomes],
        "errors": ["" if o.is_served else f"{o.label} {o.message}".strip() for o in outcomes],
    }
