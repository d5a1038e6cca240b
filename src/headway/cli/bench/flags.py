"""The flags of `headway bench serve`: vLLM's names where the thing is the same, and ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headway.cli.own_flags import split_repeated
from headway.flags import FlagError

Usage = Mapping[str, tuple[str, str]]
SERVER_FLAGS: Usage = {
    "--base-url": ("URL", "The server, as the URL that may stand alone."),
    "--host": ("HOST", "Or its host; 127.0.0.1."),
    "--port": ("N", "And its port; 8000."),
    "--endpoint": ("PATH", "/v1/completions (unless given) or /v1/chat/completions."),
    "--backend": ("NAME", "openai, vllm: completions. openai-chat: chat completions."),
    "--model": ("NAME", "What the server calls the model; its first one unless given."),
    "--served-model-name": ("NAME", "The same."),
    "--api-key": ("KEY", "What HEADWAY_API_KEY or OPENAI_API_KEY says unless given."),
    "--header": ("KEY=VALUE ...", "Headers of every request."),
    "--insecure": ("", "Accept any certificate of an https server."),
    "--ready-check-timeout-sec": ("S", "Wait so long for the server to come up; 0."),
}
LOAD_FLAGS: Usage = {
    "--request-rate": ("R[,R...]", "Requests a second; inf (unless given): all at once."),
    "--sweep": ("", "Find the highest rate that the server sustains."),
    "--num-prompts": ("N", "How many requests; 1000, or what 30 s hold at several rates."),
    "--burstiness": ("B", "Shape of the gaps: 1 is Poisson, less is burstier, more is smoother."),
    "--max-concurrency": ("N", "At most so many at once; at rate inf, so many clients in a loop."),
    "--dataset-name": ("NAME", "random, sharegpt, burstgpt, azure, mooncake or headway."),
    "--dataset-path": ("FILE", "Of any but random."),
    "--recording": ("FILE", "Ask again what a recording of headway serve --record holds."),
    "--random-input-len": ("N", "Prompt tokens; 1024. Or --input-len."),
    "--random-output-len": ("N", "Output tokens; 128. Or --output-len."),
    "--random-range-ratio": ("R", "Lengths are uniform between (1 - R) and (1 + R) times that; 0."),
    "--random-prefix-len": ("N", "All prompts begin with the same so many tokens; 0."),
    "--num-warmups": ("N", "Requests before it begins, one by one, not counted; 1."),
    "--prompt-style": ("ids|words", "Prompts as token ids (exact) or as words of about a token."),
    "--text-seed": ("N", "Of the words of prompts, which are new in each run unless given."),
    "--drain-s": ("S", "Cut off what has not ended so long after the last arrival; never."),
    "--stall-s": ("S", "Give up a request without an event for so long; 600."),
}
SAMPLING_FLAGS: Usage = {
    "--ignore-eos": ("", "Outputs go on to the length that the load says."),
    "--temperature": ("T", "Likewise --top-p, --top-k, --min-p and the penalties."),
    "--top-p": ("P", ""),
    "--top-k": ("K", ""),
    "--min-p": ("P", ""),
    "--frequency-penalty": ("P", ""),
    "--presence-penalty": ("P", ""),
    "--repetition-penalty": ("P", ""),
    "--logprobs": ("N", "Ask for so many of each token."),
    "--extra-body": ("JSON", "Fields of every request."),
}
OUTPUT_FLAGS: Usage = {
    "--goodput": ("KEY:MS ...", "Objectives: ttft:500 tpot:50 e2el:5000."),
    "--percentile-metrics": ("NAMES", "ttft,tpot,itl,e2el."),
    "--metric-percentiles": ("P,...", "50,90,99."),
    "--json": ("FILE|-", "All figures and settings."),
    "--csv": ("FILE|-", "A row for each rate."),
    "--png": ("FILE", "Throughput against latency; needs matplotlib."),
    "--html": ("FILE", "A report in one file."),
    "--save-result": ("", "A file as vllm bench serve writes it, in --result-dir."),
    "--save-detailed": ("", "With a line for each request: there, and in --json."),
    "--result-dir": ("DIR", "The current directory unless given."),
    "--result-filename": ("FILE", "BACKEND-RATEqps-MODEL-TIME.json unless given."),
    "--label": ("NAME", "Of the run: in its files."),
    "--metadata": ("KEY=VALUE ...", "Kept in the files."),
    "--request-id-prefix": ("TEXT", "What the header x-request-id begins with."),
    "--disable-tqdm": ("", "No line of progress."),
}
_MANY = ("--goodput", "--header", "--metadata")
_SAME = {
    "--input-len": "--random-input-len",
    "--output-len": "--random-output-len",
    "--rate": "--request-rate",
    "--requests": "--num-prompts",
    "--served-model-name": "--model",
}
_NO_EFFECT = {
    "--tokenizer": "prompts are made without one",
    "--tokenizer-mode": "prompts are made without one",
    "--trust-remote-code": "nothing is loaded here",
    "--skip-tokenizer-init": "prompts are made without one",
    "--disable-shuffle": "nothing is shuffled",
}
_SWITCHES_WITHOUT_EFFECT = ("--trust-remote-code", "--skip-tokenizer-init", "--disable-shuffle")
_REFUSED = {
    "--profile": "use the server's own profiler",
    "--use-beam-search": "beam search is not measured here",
    "--lora-modules": "give --adapters NAME=WEIGHT,... instead",
    "--ramp-up-strategy": "give --arrivals phases:SECONDS@RATE,... instead",
    "--probe-request-rate": "there are no probes here",
    "--plot-timeline": "give --html FILE instead",
    "--max-tokens": "outputs are as long as the load says: leave it out",
    "--max-queue-s": "servers are not told how long a client waits: leave it out",
    "--deadline-s": "servers are not told a deadline: leave it out",
}
SIMULATION_FLAGS: Usage = {
    "--simulate-from": ("RECORDING", "Settings and step times of a recording of the server."),
    "--step-time": ("FILE", "Step times of headway calibrate, and settings as flags of serve."),
}
TABLES = (SERVER_FLAGS, LOAD_FLAGS, SAMPLING_FLAGS, OUTPUT_FLAGS, SIMULATION_FLAGS)


class BenchFlags:
    """Own flags with the values given, in order; and what is not ours, which is the simulator's."""

    def __init__(self, argv: Sequence[str], others: Sequence[str]) -> None:
        """`others`: more flags with a value. Raises FlagError."""
        table = {name: usage for flags in TABLES for name, (usage, _) in flags.items()}
        switches = [name for name, usage in table.items() if not usage]
        own = {*table, *others, *_SAME, *_NO_EFFECT} - {*switches, *_SWITCHES_WITHOUT_EFFECT}
        words = _one_by_one(argv)
        _refuse(words)
        values, rest = split_repeated(words, own, (*switches, *_SWITCHES_WITHOUT_EFFECT))
        self.warnings = [f"{n} has no effect: {_NO_EFFECT[n]}" for n in values if n in _NO_EFFECT]
        self.values: dict[str, list[str]] = {}
        for name, given in values.items():
            if name not in _NO_EFFECT:
                self.values.setdefault(_SAME.get(name, name), []).extend(given)
        self.rest = rest

    def has(self, name: str) -> bool:
        return name in self.values

    def get(self, name: str, default: str | None = None) -> str | None:
        """The last value given."""
        return self.values[name][-1] if name in self.values else default

    def text(self, name: str, default: str) -> str:
        return self.values[name][-1] if name in self.values else default

    def number(self, name: str, default: float, least: float = 0.0, most: float = 1e9) -> float:
        """Raises FlagError."""
        given = self.get(name)
        if given is None:
            return default
        value = number_or_nan(given)
        if not least <= value <= most:
            raise FlagError(f"{name} must be a number in [{least:g}, {most:g}], got {given!r}")
        return value

    def whole(self, name: str, default: int, least: int = 0, most: int = 10**9) -> int:
        """Raises FlagError."""
        value = self.number(name, default, least, most)
        if not float(value).is_integer():
            raise FlagError(f"{name} must be a whole number, got {self.get(name)!r}")
        return int(value)

    def pairs(self, name: str) -> dict[str, str]:
        """Of KEY=VALUE. Raises FlagError."""
        pairs = {}
        for given in self.values.get(name, ()):
            key, found, value = given.partition("=")
            if not found or not key.strip():
                raise FlagError(f"{name} takes KEY=VALUE, got {given!r}")
            pairs[key.strip()] = value.strip()
        return pairs

    def given(self) -> dict[str, Any]:
        """As it stood on the line, for the record: without what headers may hide."""
        hidden = {"--header", "--api-key"}
        return {n: v if len(v) > 1 else v[0] for n, v in self.values.items() if n not in hidden}


def number_or_nan(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def read_list(text: str, read: Callable[[str], float]) -> list[float]:
    return [read(part.strip()) for part in text.split(",")]


def _one_by_one(argv: Sequence[str]) -> list[str]:
    """`--goodput ttft:500 tpot:50` as two flags with a value each."""
    words: list[str] = []
    many = ""
    for word in argv:
        if word.startswith("--"):
            many = word if word in _MANY else ""
            if not many:
                words.append(word)
        else:
            words += [many, word] if many else [word]
    return words


def _refuse(words: Sequence[str]) -> None:
    for word in words:
        name = word.partition("=")[0].replace("_", "-")
        if name in _REFUSED:
            raise FlagError(f"{name} is not for headway bench serve: {_REFUSED[name]}")
