"""Pages of metrics, one after another, as readings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headway.insight.doctor.combine import between, of_all_engines, state_of
from headway.insight.doctor.page import Page, Sample
from headway.insight.doctor.readings import Distribution, Observation, Reading
from headway.insight.doctor.servers import SERVERS, Server, Tally
from headway.insight.doctor.unseen import without_unseen

Key = tuple[str, ...]  # of an engine: the values of these labels, "" for none
_KEY_LABELS = ("instance", "pod", "model_name", "name", "engine", "dp_rank", "engine_type")
# A model in parts shows the same states once for each part.
_PART_LABELS = ("tp_rank", "pp_rank")
_MAX_ENGINES = 256
_INFO_SETTINGS = {
    "kv_cache_size_tokens": "num_kv_tokens",
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_model_len": "max_model_len",
}
# What each says is the KV cache's size, whatever share of the memory is to be used.
_MEMORY_FLAGS = {
    "num_gpu_blocks_override": "--num-gpu-blocks-override",
    "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
}


def server_of(page: Page) -> Server:
    """Raises ValueError for a page that names none of the servers' own metrics."""
    for server in SERVERS:
        if page.has(server.prefix):
            return server
    raise ValueError("no metric on this page is of Headway, vLLM, SGLang, TGI or llama.cpp")


def observe_pages(pages: Sequence[tuple[Page, float]], source: str) -> Observation:
    """Pages of one server with the seconds at which they were taken, oldest first.

    The first reading holds what its server has counted since its start, the others what happened
    in between. Raises ValueError for pages of different servers.
    """
    servers = [server_of(page) for page, _ in pages]
    if any(server is not servers[0] for server in servers):
        named = " and ".join(dict.fromkeys(server.name for server in servers))
        raise ValueError(f"these are pages of different servers ({named}): give those of one")
    engines = [_engines(page, servers[0], at_s) for page, at_s in pages]
    lives = [of_all_engines(list(each.values())) for each in engines]
    readings = lives[:1]
    for before, now in pairwise(engines):
        readings.append(of_all_engines([_since(before.get(key), now[key]) for key in now]))
    readings = without_unseen(readings, lives[-1], servers[0])
    return Observation(
        source=source,
        server=servers[0].name,
        readings=tuple(readings),
        notes=tuple(_notes(pages, readings)),
    )


def _since(before: Reading | None, now: Reading) -> Reading:
    """Of an engine that was not there before, the state alone."""
    if before is None:
        return dataclasses.replace(state_of(now), restarted=True)
    return between(before, now)


def _notes(pages: Sequence[tuple[Page, float]], readings: Sequence[Reading]) -> Iterable[str]:
    if garbled := sum(page.num_garbled for page, _ in pages):
        yield f"{garbled} lines could not be read"
    if any(reading.restarted for reading in readings):
        yield "an engine started again meanwhile: its counts of that time are left out"
    if readings[-1].num_engines and readings[-1].num_engines > 1:
        yield (
            f"{readings[-1].num_engines} engines together: requests and tokens are summed, the KV "
            f"cache is averaged by size"
        )


# ---- One page ----


def _engines(page: Page, server: Server, at_s: float) -> dict[Key, Reading]:
    """What each engine has counted since its start."""
    keys = _keys(page, server) or [()]
    if len(keys) > _MAX_ENGINES:
        raise ValueError(
            f"{len(keys):,} engines on one page, more than {_MAX_ENGINES}: ask one server at a time"
        )
    return {key: _engine(page, server, key, at_s) for key in keys}


def _keys(page: Page, server: Server) -> list[Key]:
    """Of the engines that show a state."""
    names = [name for names in server.states.values() for name in names]
    samples = [sample for name in names for sample in _whole(page.named(name))]
    return list(dict.fromkeys(_key(sample) for sample in samples))


def _key(sample: Sample) -> Key:
    return tuple(sample.labels.get(label, "") for label in _KEY_LABELS)


def _whole(samples: Iterable[Sample]) -> list[Sample]:
    return [s for s in samples if all(s.labels.get(part, "0") == "0" for part in _PART_LABELS)]


class _Engine:
    """One engine's samples of a page: those whose labels say nothing else."""

    def __init__(self, page: Page, key: Key) -> None:
        self._page = page
        self._labels = {n: v for n, v in zip(_KEY_LABELS, key, strict=False) if v}

    def samples(self, name: str) -> list[Sample]:
        return [s for s in _whole(self._page.named(name)) if self._has(s)]

    def _has(self, sample: Sample) -> bool:
        labels = sample.labels
        return all(labels.get(name, value) == value for name, value in self._labels.items())

    def sum(self, names: Iterable[str]) -> float | None:
        """Of the first name that is there."""
        for name in names:
            if found := self.samples(name):
                return sum(sample.value for sample in found)
        return None

    def count(self, names: Iterable[str]) -> float | None:
        return self.sum(variant for name in names for variant in (f"{name}_total", name))

    def mean(self, names: Iterable[str]) -> float | None:
        for name in names:
            if found := self.samples(name):
                return sum(sample.value for sample in found) / len(found)
        return None

    def tally(self, tally: Tally | None, *, by: str | None = None) -> dict[str, float] | None:
        if tally is None:
            return None
        found = self.samples(f"{tally.metric}_total") or self.samples(tally.metric)
        total: dict[str, float] = {}
        for sample in found:
            value = sample.labels.get(by or tally.label, "")
            total[value] = total.get(value, 0.0) + sample.value
        return total if found else None

    def distribution(self, names: Iterable[str]) -> Distribution | None:
        for name in names:
            count, total = self.sum((f"{name}_count",)), self.sum((f"{name}_sum",))
            if count is not None and total is not None:
                bounds, counts = self._buckets(name)
                return Distribution(count, total, bounds, counts)
        return None

    def _buckets(self, name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
        by_bound: dict[float, float] = {}
        for sample in self.samples(f"{name}_bucket"):
            try:
                bound = float(sample.labels.get("le", ""))
            except ValueError:
                continue
            by_bound[bound] = by_bound.get(bound, 0.0) + sample.value
        bounds = sorted(by_bound)
        return tuple(bounds), tuple(by_bound[bound] for bound in bounds)


def _engine(page: Page, server: Server, key: Key, at_s: float) -> Reading:
    engine = _Engine(page, key)
    started_s = engine.sum(("process_start_time_seconds",))
    values: dict[str, Any] = {n: engine.sum(names) for n, names in server.states.items()}
    values |= {n: engine.mean(names) for n, names in server.shares.items()}
    values |= {n: engine.count(names) for n, names in server.counts.items()}
    values |= {n: engine.distribution(names) for n, names in server.distributions.items()}
    values |= {n: _whole_number(engine.sum(names)) for n, names in server.settings.items()}
    values |= _settings(engine) | _adapters(engine)
    phases = engine.tally(server.phases)
    if phases is not None:
        values["prefill_busy_s"] = phases.get("prefill", 0.0)
        values["decode_busy_s"] = phases.get("decode", 0.0)
        values["busy_s"] = sum(phases.values())
    if server.counts_cached_apart and values["num_cached_tokens"] is not None:
        values["num_prompt_tokens"] = (values["num_prompt_tokens"] or 0.0) + values[
            "num_cached_tokens"
        ]
    values.setdefault("num_deferred", (engine.tally(server.deferred) or {}).get("deferred"))
    reserves = values.pop("reserves", server.reserves)
    return Reading(
        at_s=at_s,
        interval_s=at_s - started_s if started_s and started_s < at_s else None,
        since_start=True,
        waiting_for=_waiting_for(engine, server, values),
        is_healthy=_is_healthy(engine),
        ended=_ended(engine, server),
        ended_by_model=_ended_by_model(engine, server),
        reserves=reserves,
        **values,
    )


def _waiting_for(
    engine: _Engine, server: Server, values: Mapping[str, Any]
) -> dict[str, float] | None:
    if server.waits_for_slots_alone and values["num_waiting"] is not None:
        return {"slots": values["num_waiting"]}
    return engine.tally(server.waiting_for)


def _is_healthy(engine: _Engine) -> bool | None:
    value = engine.sum(("vllm_engine_healthy",))
    return None if value is None else value > 0


def _settings(engine: _Engine) -> dict[str, Any]:
    """What vLLM and Headway say in the labels of an info metric."""
    values: dict[str, Any] = {}
    for sample in engine.samples("vllm_cache_config_info")[:1]:
        labels = sample.labels
        for label, name in _INFO_SETTINGS.items():
            values[name] = _whole_number(labels.get(label))
        if values["num_kv_tokens"] is None:
            size, number = (_whole_number(labels.get(n)) for n in ("block_size", "num_gpu_blocks"))
            values["num_kv_tokens"] = size * number if size and number else None
        given = [flag for label, flag in _MEMORY_FLAGS.items() if _whole_number(labels.get(label))]
        values["memory_flag"] = given[0] if given else None
        if "kv_policy" in labels:
            values["reserves"] = labels["kv_policy"] == "reserve"
    return values


def _adapters(engine: _Engine) -> dict[str, Any]:
    """The latest: the value of each sample is the time at which it was so."""
    found = engine.samples("vllm_lora_requests_info")
    if not found:
        return {}
    latest = max(found, key=lambda sample: sample.value).labels
    return {
        "max_loras": _whole_number(latest.get("max_lora")),
        "adapters_running": _listed(latest.get("running_lora_adapters", "")),
        "adapters_waiting": _listed(latest.get("waiting_lora_adapters", "")),
    }


def _ended(engine: _Engine, server: Server) -> dict[str, float] | None:
    if server.ended is not None:
        return engine.tally(server.ended)
    if server.name == "tgi":
        return _present(
            {"done": ("tgi_request_success",), "error": ("tgi_request_failure",)}, engine
        )
    if server.name == "sglang":
        aborted = engine.count(("sglang_num_aborted_requests",)) or 0.0
        total = engine.count(("sglang_num_requests",))
        return None if total is None else {"done": total - aborted, "abort": aborted}
    return None


def _present(names: Mapping[str, tuple[str, ...]], engine: _Engine) -> dict[str, float] | None:
    counts = {word: engine.count(metrics) for word, metrics in names.items()}
    known = {word: count for word, count in counts.items() if count is not None}
    return known or None


def _ended_by_model(engine: _Engine, server: Server) -> dict[str, dict[str, float]] | None:
    if server.ended is None:
        return None
    metric = server.ended.metric
    found = engine.samples(f"{metric}_total") or engine.samples(metric)
    models: dict[str, dict[str, float]] = {}
    for sample in found:
        tally = models.setdefault(sample.labels.get("model_name", ""), {})
        reason = sample.labels.get(server.ended.label, "")
        tally[reason] = tally.get(reason, 0.0) + sample.value
    return models or None


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _whole_number(value: object) -> int | None:
    """None for what is no number of at least 1: "None", as vLLM writes it, or nothing."""
    try:
        number = int(float(str(value)))
    except (ValueError, OverflowError):
        return None
    return number if number > 0 else None
