"""lm-eval over /v1/completions: its loglikelihoods, by echo and logprobs, are the engine's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.load.server import running
from lm_eval import simple_evaluate
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager

from headway import LLM, SamplingParams
from headway.text.tokenizer import Tokenizer
from tests.clients.others.tokenizer_folder import default_tokenizer, write_tokenizer

_TASKS = Path(__file__).parent / "lm_eval_tasks"


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(kv_cache_memory_bytes=128 << 20)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return default_tokenizer()


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def run_task(
    task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any
) -> dict[str, Any]:
    monkeypatch.chdir(_TASKS)  # the task's data file is named relative to it
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    lm = LocalCompletionsAPI(**options)
    return simple_evaluate(
        model=lm, tasks=[task], task_manager=TaskManager(include_path=str(_TASKS)), log_samples=True
    )


def loglikelihood(llm: LLM, context: list[int], continuation: list[int]) -> tuple[float, bool]:
    """By the engine without a server: the sum, and whether each token was the likeliest."""
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=1)
    (output,) = llm.generate([context + continuation], params, use_tqdm=False)
    assert output.prompt_logprobs is not None
    chosen = [
        position[token_id]
        for position, token_id in zip(
            output.prompt_logprobs[len(context) :], continuation, strict=True
        )
        if position is not None
    ]
    return sum(entry.logprob for entry in chosen), all(entry.rank == 1 for entry in chosen)


def check_loglikelihoods(result: dict[str, Any], llm: LLM, tokenizer: Tokenizer) -> None:
    samples = result["samples"]["headway_capitals"]
    assert len(samples) == 6
    assert result["results"]["headway_capitals"]["acc,none"] >= 0.5
    for sample in samples:
        for (context, continuation), response in zip(
            sample["arguments"], sample["filtered_resps"], strict=True
        ):
            # As lm-eval cuts them: the whole is encoded, then the context taken off.
            whole = tokenizer.encode(context + continuation)
            context_ids = tokenizer.encode(context)
            assert whole[: len(context_ids)] == context_ids
            expected = loglikelihood(llm, context_ids, whole[len(context_ids) :])
            assert (float(response[0]), bool(response[1])) == expected


@pytest.mark.parametrize("is_tokenized", [True, False])
def test_loglikelihoods_are_those_of_the_engine(
    is_tokenized: bool,
    llm: LLM,
    tokenizer: Tokenizer,
    tokenizer_folder: str,
    base_url: str,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run_task(
        "headway_capitals",
        tmp_path,
        monkeypatch,
        base_url=f"{base_url}/completions",
        model=model,
        tokenizer_backend="huggingface",
        tokenizer=tokenizer_folder,
        tokenized_requests=is_tokenized,
        num_concurrent=4,
    )
    check_loglikelihoods(result, llm, tokenizer)


def test_generation(
    tokenizer_folder: str,
    base_url: str,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    result = run_task(
        "headway_answers",
        tmp_path,
        monkeypatch,
        base_url=f"{base_url}/completions",
        model=model,
        tokenizer_backend="huggingface",
        tokenizer=tokenizer_folder,
        num_concurrent=4,
    )
    answers = [s["filtered_resps"][0].strip() for s in result["samples"]["headway_answers"]]
    assert answers[0] == "Paris"
    assert len(answers) == 6


def test_the_servers_own_tokenizer(
    llm: LLM,
    tokenizer: Tokenizer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`tokenizer_backend=auto` finds /tokenizer_info and needs no tokenizer of its own."""
    flags = ["--enable-tokenizer-info-endpoint", "--kv-cache-memory-bytes", "256m"]
    with running(flags) as server:
        result = run_task(
            "headway_capitals",
            tmp_path,
            monkeypatch,
            base_url=f"{server.url}/v1/completions",
            model=server.model(),
            num_concurrent=4,
        )
    check_loglikelihoods(result, llm, tokenizer)
