"""`LLM` on a tiny model with a tokenizer of its own: results, order, refusals."""

from __future__ import annotations

import json
import math
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tokenizers

from headway import LLM, SamplingParams
from headway.core.request import RepetitionDetection
from headway.core.step import Step, StepResult
from headway.drive.invariants import ends_in_repetition
from headway.drive.record import StepRecord
from headway.drive.recording import Arrival, EndedSequence
from headway.replay.files import load_recordings
from tests.model.tiny import make_tiny_llama

END_IDS = {"tokenizer": 92, "generation_config": 93, "config": 94, "template": 95}
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}]{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


def write_tokenizer(folder: Path) -> None:
    vocabulary = {chr(33 + i): i for i in range(91)}
    backend = tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = tokenizers.decoders.ByteLevel()
    backend.add_special_tokens(["<|pad|>", "<|eos|>", "<|eot|>", "<|im_end|>", "<|end|>"])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"eos_token": "<|eos|>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [93]}))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny-with-text")
    make_tiny_llama(folder, eos_token_id=94)
    write_tokenizer(folder)
    return folder


@pytest.fixture(scope="module")
def llm(folder: Path) -> LLM:
    return LLM(str(folder), num_gpu_blocks_override=64, max_num_seqs=8)


def greedy(max_tokens: int = 8, **more: object) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, **more)  # type: ignore[arg-type]


def test_results_come_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = ["abc", "abcdefgh" * 4, "z", "hello"]
    params = [greedy(20), greedy(2), greedy(9), greedy(1)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [o.prompt for o in outputs] == prompts
    assert [len(o.outputs[0].token_ids) for o in outputs] == [20, 2, 9, 1]
    assert {o.outputs[0].finish_reason for o in outputs} == {"length"}


def test_every_form_of_a_prompt_means_the_same(llm: LLM) -> None:
    ids = llm.generate("hello", greedy(), use_tqdm=False)[0].prompt_token_ids
    forms = ["hello", ids, {"prompt": "hello"}, {"prompt_token_ids": ids}]
    texts = {llm.generate([form], greedy(), use_tqdm=False)[0].outputs[0].text for form in forms}
    assert len(texts) == 1
    assert llm.generate(ids, greedy(), use_tqdm=False)[0].outputs[0].text in texts


def test_the_progress_bar_does_not_change_the_result(
    llm: LLM, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = llm.generate(["hello"] * 3, greedy())
    hidden = llm.generate(["hello"] * 3, greedy(), use_tqdm=False)
    assert [o.outputs for o in shown] == [o.outputs for o in hidden]


@pytest.mark.parametrize(("place", "end_id"), END_IDS.items())
def test_an_end_id_named_anywhere_ends_a_reply(llm: LLM, place: str, end_id: int) -> None:
    """P38, P39: tokenizer, generation_config, config and chat template each name another one."""
    params = greedy(50, logit_bias={end_id: 100.0})
    messages = [{"role": "user", "content": "hi"}]
    completion = llm.chat(messages, params, use_tqdm=False)[0].outputs[0]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", None)
    assert completion.token_ids == [end_id]
    assert completion.text == ""
    ignoring = greedy(5, logit_bias={end_id: 100.0}, ignore_eos=True)
    assert llm.chat(messages, ignoring, use_tqdm=False)[0].outputs[0].finish_reason == "length"


def test_a_stop_id_of_ones_own_is_the_reason(llm: LLM) -> None:
    params = greedy(50, logit_bias={7: 100.0}, stop_token_ids=[7])
    completion = llm.generate("hello", params, use_tqdm=False)[0].outputs[0]
    assert (completion.finish_reason, completion.stop_reason) == ("stop", 7)
    assert (completion.token_ids, completion.text) == ([7], "")


def test_a_failed_pass_is_told_with_its_reason(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> object:
        raise MemoryError("no memory for this pass")

    with monkeypatch.context() as patch:
        patch.setattr(type(llm._engine.executor._decoder), "hidden_states", broken)
        completion = llm.generate("hello", greedy(), use_tqdm=False)[0].outputs[0]
        assert completion.finish_reason == "error"
        assert "no memory" in completion.detail
        with pytest.raises(RuntimeError, match="no memory"):
            list(llm.stream_chat([{"role": "user", "content": "hi"}], greedy()))
    assert llm.generate("hello", greedy(), use_tqdm=False)[0].outputs[0].finish_reason == "length"


def test_a_stop_string_ends_a_reply_and_is_cut_off(llm: LLM) -> None:
    text = llm.generate("hello", greedy(30), use_tqdm=False)[0].outputs[0].text
    stop = text[5:7]
    found = llm.generate("hello", greedy(30, stop=stop), use_tqdm=False)[0].outputs[0]
    assert found.text == text[: text.index(stop)]
    assert (found.finish_reason, found.stop_reason) == ("stop", stop)
    shown = greedy(30, stop=[stop], include_stop_str_in_output=True)
    assert llm.generate("hello", shown, use_tqdm=False)[0].outputs[0].text.endswith(stop)


def test_logprobs_have_the_shape_that_vllm_gives(llm: LLM) -> None:
    output = llm.generate("hello", greedy(4, logprobs=2, prompt_logprobs=1), use_tqdm=False)[0]
    completion = output.outputs[0]
    assert completion.logprobs is not None
    assert [len(p) for p in completion.logprobs] == [2, 2, 2, 2]
    chosen = [p[t] for p, t in zip(completion.logprobs, completion.token_ids, strict=True)]
    assert [c.rank for c in chosen] == [1, 1, 1, 1]
    assert math.isclose(sum(c.logprob for c in chosen), completion.cumulative_logprob or 0)
    assert output.prompt_logprobs is not None
    assert [p is None for p in output.prompt_logprobs] == [True, False, False, False, False]
    single = llm.generate("h", greedy(1, prompt_logprobs=1), use_tqdm=False)[0]
    assert single.prompt_logprobs == [None]


def test_n_gives_choices_that_differ_and_repeat(llm: LLM) -> None:
    params = SamplingParams(temperature=1.5, n=3, seed=5, max_tokens=10)
    first, again = (llm.generate("hello", params, use_tqdm=False)[0] for _ in range(2))
    assert [o.index for o in first.outputs] == [0, 1, 2]
    assert len({o.text for o in first.outputs}) == 3
    assert first.outputs == again.outputs


def test_prompts_without_a_seed_differ(llm: LLM) -> None:
    params = SamplingParams(temperature=1.5, max_tokens=10)
    outputs = llm.generate(["hello"] * 8, params, use_tqdm=False)
    assert len({o.outputs[0].text for o in outputs}) > 1


def test_chat_takes_one_conversation_or_many(llm: LLM) -> None:
    chat = [{"role": "user", "content": "hi"}]
    alone = llm.chat(chat, greedy(), use_tqdm=False)
    both = llm.chat([chat, chat], greedy(), use_tqdm=False)
    assert alone[0].prompt == "[user]hi<|end|>[assistant]"
    assert [o.outputs for o in both] == [alone[0].outputs] * 2
    assert "".join(llm.stream_chat(chat, greedy())) == alone[0].outputs[0].text
    prompt = "Once upon a time"
    assert (
        "".join(llm.stream(prompt, greedy())) == llm.generate(prompt, greedy())[0].outputs[0].text
    )


def test_a_stream_that_is_closed_early_leaves_nothing_behind(llm: LLM) -> None:
    stream = llm.stream_chat([{"role": "user", "content": "hi"}], greedy(100))
    next(stream)
    stream.close()
    assert llm._engine.scheduler.stats().num_held_blocks == 0
    assert not llm._engine.scheduler.has_unfinished()


def test_the_second_identical_prompt_is_cached(llm: LLM) -> None:
    prompt = "the same words again and again, forty characters or more"
    first, second = (llm.generate(prompt, greedy(), use_tqdm=False)[0] for _ in range(2))
    assert second.num_cached_tokens == (len(second.prompt_token_ids) - 1) // 16 * 16
    assert first.outputs == second.outputs


@pytest.mark.parametrize(
    ("prompt", "params", "words"),
    [
        ("", greedy(), "empty"),
        ([200], greedy(), "outside the model's vocabulary of 96"),
        ([-1], greedy(), "outside the model's vocabulary"),
        ([5] * 300, greedy(), "256"),
        ("hello", greedy(1, logprobs=50), "max_logprobs=20"),
        ("hello", greedy(1, logit_bias={96: 1.0}), "logit_bias token 96"),
        ("hello", greedy(1, stop_token_ids=[96]), "stop_token_ids token 96"),
        ("hello", greedy(1, allowed_token_ids=[3, 96]), "allowed_token_ids token 96"),
        (None, greedy(1), "a prompt must be a string or token ids, got NoneType"),
    ],
)
def test_bad_requests_are_one_sentence_and_disturb_nobody(
    llm: LLM, prompt: str | list[int], params: SamplingParams, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        llm.generate(["fine", prompt], [greedy(), params], use_tqdm=False)
    assert not llm._engine.scheduler.has_unfinished()
    assert llm.generate("fine", greedy(), use_tqdm=False)[0].finished


def test_no_prompts_at_all_are_one_sentence(llm: LLM) -> None:
    with pytest.raises(ValueError, match=r"prompts must be a string, .* got NoneType"):
        llm.generate(None, use_tqdm=False)  # type: ignore[arg-type]


def test_bad_words_are_not_said_and_only_allowed_tokens_are(llm: LLM) -> None:
    said = llm.generate("hello", greedy(20), use_tqdm=False)[0].outputs[0].text
    word = said[4:6]
    params = greedy(20, bad_words=[word], ignore_eos=True)
    assert word not in llm.generate("hello", params, use_tqdm=False)[0].outputs[0].text
    params = greedy(9, allowed_token_ids=[40, 41])
    assert set(llm.generate("hello", params, use_tqdm=False)[0].outputs[0].token_ids) <= {40, 41}


def test_an_output_that_goes_round_in_circles_ends(llm: LLM) -> None:
    rule = RepetitionDetection(max_pattern_size=2, min_count=3)
    params = greedy(50, allowed_token_ids=[40, 41], repetition_detection=rule)
    output = llm.generate("hello", params, use_tqdm=False)[0].outputs[0]
    assert (output.finish_reason, output.stop_reason) == ("repetition", "repetition_detected")
    assert ends_in_repetition(output.token_ids, rule)
    assert not ends_in_repetition(output.token_ids[:-1], rule)


def test_p33_equal_prompts_differ_without_a_seed_and_agree_with_one(llm: LLM) -> None:
    def texts(**more: int) -> set[str]:
        params = SamplingParams(temperature=1.0, max_tokens=12, **more)
        return {o.outputs[0].text for o in llm.generate(["hello"] * 8, params, use_tqdm=False)}

    assert len(texts()) > 1
    assert len(texts(seed=7)) == 1


@pytest.mark.parametrize("name", ["trace.jsonl", "trace.jsonl.zst"])
def test_a_recording_of_the_library_is_complete(folder: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    llm = LLM(str(folder), num_gpu_blocks_override=64, max_num_seqs=8, record=str(path))
    llm.generate(["hello there", "abc"], greedy(20), use_tqdm=False)
    [recording] = load_recordings(path)
    assert recording.header.num_blocks == 64
    kinds = [type(entry) for entry in recording.entries]
    assert kinds.count(EndedSequence) == kinds.count(Arrival) == 2
    assert kinds.count(StepRecord) == llm._engine.scheduler.num_steps


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_model_len": 10_000}, "256 positions"),
        ({"block_size": 8}, "multiple of 16"),
        ({"dtype": "float16"}, "float32, bfloat16"),
        ({"kv_cache_memory_bytes": 100}, "raise --kv-cache-memory-bytes"),
        ({"nonsense": 1}, "knows no setting nonsense"),
        ({"kv_policy": "perhaps"}, "kv_policy"),
        ({"max_num_seqs": 0}, "max_num_seqs must be at least 1"),
        ({"record": "/nowhere/trace.jsonl"}, "record: cannot write '/nowhere/trace.jsonl'"),
        ({"record": "trace.jsonl.gz"}, "asks for gzip"),
        ({"scheduler_cls": "headway.core.scheduler.MAX_STEPS_IN_FLIGHT"}, "must be a subclass"),
    ],
)
def test_impossible_settings_are_one_sentence(
    folder: Path, settings: dict[str, object], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        LLM(str(folder), **settings)


def test_ctrl_c_in_the_middle_of_a_step_leaves_the_model_usable(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A job in the background has no interrupts.
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    executor = llm._engine.executor
    real = executor.run

    def interrupted(step: Step) -> StepResult:
        signal.raise_signal(signal.SIGINT)
        return real(step)

    before = llm.generate("hello", greedy(), use_tqdm=False)
    monkeypatch.setattr(executor, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate("hello", greedy(), use_tqdm=False)
    monkeypatch.undo()
    signal.signal(signal.SIGINT, usual)
    after = llm.generate("hello", greedy(), use_tqdm=False)
    assert after[0].outputs[0].token_ids == before[0].outputs[0].token_ids


def test_threads_take_turns_and_get_the_same_answers(llm: LLM) -> None:
    alone = llm.generate(["abc", "hello"], greedy(20), use_tqdm=False)

    def ask(_: int) -> list[str]:
        outputs = llm.generate(["abc", "hello"], greedy(20), use_tqdm=False)
        return [output.outputs[0].text for output in outputs]

    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ask, range(12)))
    assert answers == [[output.outputs[0].text for output in alone]] * 12
    assert llm.generate("abc", greedy(20), use_tqdm=False)[0].outputs[0].text == answers[0][0]
