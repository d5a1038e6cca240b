"""`LLM`: the engine in this process, for offline use; argument names are vLLM's."""

from __future__ import annotations

import itertools
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from typing import Any

from headway.collector import Collector
from headway.core.events import Event
from headway.core.request import FinishReason, Request, SamplingParams
from headway.drive.ports import Command, Submit, Withdraw
from headway.engine.build import build_engine
from headway.engine.config import EngineConfig
from headway.engine.logprobs import LogprobStore
from headway.model.source import resolve
from headway.model_text import open_text
from headway.outputs import RequestOutput
from headway.text.bad_words import bad_word_ids
from headway.wire import EngineFacts

Prompt = str | Sequence[int] | Mapping[str, Any]
Message = Mapping[str, Any]


class LLM:
    """A model ready to answer; every keyword of `EngineConfig` is accepted.

    model: a directory, a .gguf file or a hub name; None takes the default model.
    gpu_memory_utilization is accepted so that scripts written for vLLM run, and has no effect on a
    CPU: `kv_cache_memory_bytes` sets the pool there.
    Raises ValueError or OSError with a sentence when the model or a setting cannot work.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        tokenizer: str | None = None,
        chat_template: str | None = None,
        gpu_memory_utilization: float | None = None,
        **settings: Any,
    ) -> None:
        if gpu_memory_utilization is not None:
            print(
                "headway: gpu_memory_utilization has no effect on a CPU; "
                "kv_cache_memory_bytes sets the KV cache",
                file=sys.stderr,
            )
        config = _engine_config(model, settings)
        source = resolve(config.model, revision=config.revision, download_dir=config.download_dir)
        self._text = open_text(source, tokenizer_path=tokenizer, chat_template=chat_template)
        self._seed = config.seed or 0
        self._serial = itertools.count()
        # Threads take turns: a call holds it to its end, a stream for each step.
        self._lock = threading.RLock()
        self._inbox = _MemoryInbox()
        self._collector = Collector(self._text.tokenizer, self._inbox.commands.append)
        feed = _Feed(self._collector)
        self._engine = build_engine(config, self._inbox, (feed,))
        feed.logprobs = self._engine.executor.logprobs
        self._engine.warm_up()

    @property
    def facts(self) -> EngineFacts:
        """What the engine decided at start: sizes, dtypes, backend."""
        return self._engine.facts

    def default_sampling_params(self) -> SamplingParams:
        """What holds where `sampling_params` is None: the model's own defaults."""
        return SamplingParams(**self._text.sampling_defaults)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete every prompt; results in the order of the prompts.

        A prompt is a string, a list of token ids, or {"prompt": ...} / {"prompt_token_ids": [...]}.
        One `SamplingParams` for all, or one for each. A prompt that cannot be served raises
        ValueError, and then none is. A completion whose step failed has finish_reason "error".
        """
        many = _as_prompts(prompts)
        params = _one_each(sampling_params or self.default_sampling_params(), len(many))
        pairs = zip(many, params, strict=True)
        requests = [self._request(*self._encode(p), s) for p, s in pairs]
        return self._run(requests, use_tqdm, follows_text=True)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        chat_template_kwargs: Mapping[str, Any] | None = None,
    ) -> list[RequestOutput]:
        """Answer one conversation (a list of messages) or several (a list of lists)."""
        chats: Sequence[Any] = (
            [messages] if messages and isinstance(messages[0], Mapping) else messages
        )
        params = _one_each(sampling_params or self.default_sampling_params(), len(chats))
        texts = [
            self._render(chat, add_generation_prompt, continue_final_message, chat_template_kwargs)
            for chat in chats
        ]
        requests = [
            self._request(text, self._text.tokenizer.encode(text, add_special_tokens=False), s)
            for text, s in zip(texts, params, strict=True)
        ]
        return self._run(requests, use_tqdm, follows_text=False)

    def stream(
        self, prompt: Prompt, sampling_params: SamplingParams | None = None
    ) -> Iterator[str]:
        """Complete one prompt, yielding text as it comes; closing the iterator ends it."""
        return self._stream(*self._encode(prompt), sampling_params, follows_text=True)

    def stream_chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None
    ) -> Iterator[str]:
        """Answer one conversation, yielding text as it comes; closing the iterator ends it."""
        text = self._render(messages, True, False, None)
        ids = self._text.tokenizer.encode(text, add_special_tokens=False)
        return self._stream(text, ids, sampling_params, follows_text=False)

    def _stream(
        self,
        text: str | None,
        token_ids: list[int],
        sampling_params: SamplingParams | None,
        *,
        follows_text: bool,
    ) -> Iterator[str]:
        request, prompt = self._request(
            text, token_ids, sampling_params or self.default_sampling_params()
        )
        with self._lock:
            self._submit([(request, prompt)], follows_text=follows_text)
        sent = 0
        try:
            while not self._collector.output(request.request_id).finished:
                self._turn()
                answer = self._collector.output(request.request_id).outputs[0].text
                if len(answer) > sent:
                    yield answer[sent:]
                    sent = len(answer)
            self._raise_failure(self._collector.output(request.request_id))
        finally:
            with self._lock:
                self._withdraw_unfinished([request.request_id])
                self._collector.take(request.request_id)

    def _raise_failure(self, output: RequestOutput) -> None:
        self._collector.raise_rejections()
        for completion in output.outputs:
            if completion.finish_reason == FinishReason.ERROR.value:
                raise RuntimeError(completion.detail)

    def _render(
        self,
        messages: Sequence[Message],
        add_generation_prompt: bool,
        continue_final_message: bool,
        kwargs: Mapping[str, Any] | None,
    ) -> str:
        if self._text.template is None:
            raise ValueError(
                "the model has no chat template: pass chat_template=, or use generate()"
            )
        return self._text.template.render(
            messages,
            add_generation_prompt=add_generation_prompt and not continue_final_message,
            continue_final_message=continue_final_message,
            **(kwargs or {}),
        )

    def _encode(self, prompt: Prompt) -> tuple[str | None, list[int]]:
        if isinstance(prompt, Mapping):
            prompt = prompt.get("prompt_token_ids") or prompt.get("prompt") or ""
        if isinstance(prompt, str):
            return prompt, self._text.tokenizer.encode(prompt)
        if not isinstance(prompt, Sequence):
            raise ValueError(f"a prompt must be a string or token ids, got {type(prompt).__name__}")
        return None, [int(token_id) for token_id in prompt]

    def _request(
        self, prompt: str | None, token_ids: list[int], params: SamplingParams
    ) -> tuple[Request, str | None]:
        facts = self._engine.facts
        _check_token_ids(token_ids, facts.vocab_size)
        _check_params(params, facts.vocab_size, facts.max_logprobs)
        serial = next(self._serial)
        own = frozenset(params.stop_token_ids or ())
        request = Request(
            request_id=f"offline-{serial}",
            prompt_token_ids=tuple(token_ids),
            sampling=params,
            stop_token_ids=own if params.ignore_eos else own | self._text.stop_token_ids,
            # Unseeded requests differ from each other and repeat from run to run.
            seed=params.seed if params.seed is not None else (self._seed << 32) + serial,
            bad_word_ids=bad_word_ids(self._text.tokenizer, params.bad_words or ()),
        )
        return request, prompt

    def _submit(
        self, requests: Sequence[tuple[Request, str | None]], *, follows_text: bool
    ) -> None:
        for request, prompt in requests:
            self._collector.expect(request, prompt, follows_text=follows_text)
            self._inbox.commands.append(Submit(request))

    def _run(
        self, requests: Sequence[tuple[Request, str | None]], use_tqdm: bool, *, follows_text: bool
    ) -> list[RequestOutput]:
        with self._lock:
            return self._run_alone(requests, use_tqdm, follows_text=follows_text)

    def _run_alone(
        self, requests: Sequence[tuple[Request, str | None]], use_tqdm: bool, *, follows_text: bool
    ) -> list[RequestOutput]:
        ids = [request.request_id for request, _ in requests]
        self._submit(requests, follows_text=follows_text)
        try:
            with self._collector.progress(len(ids), shown=use_tqdm):
                while self._collector.num_unfinished:
                    self._turn()
                    self._collector.raise_rejections()
        finally:
            self._withdraw_unfinished(ids)
            outputs = [self._collector.take(request_id) for request_id in ids]
        return outputs

    def _turn(self) -> None:
        with self._lock, _interrupts_held():
            self._engine.loop.turn()

    def _withdraw_unfinished(self, ids: Sequence[str]) -> None:
        """Leave nothing behind when a run is cut short, and the recording whole."""
        left = [i for i in ids if not self._collector.output(i).finished]
        self._inbox.commands += [Withdraw(request_id) for request_id in left]
        while self._inbox.commands:
            self._turn()
        if self._engine.recording is not None:
            self._engine.recording.flush()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: a turn cut short would leave its step in flight."""
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    held: list[tuple[Any, ...]] = []
    signal.signal(signal.SIGINT, lambda *args: held.append(args))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
    if held:
        usual(*held[0])


class _MemoryInbox:
    """Commands from this very thread: what `generate` has put there."""

    def __init__(self) -> None:
        self.commands: list[Command] = []

    def take(self) -> list[Command]:
        taken, self.commands[:] = list(self.commands), []
        return taken

    def wait(self, until_ns: int | None = None) -> bool:
        return bool(self.commands)


class _Feed:
    """Tells the collector what happened, then the logprobs that came with it."""

    logprobs: LogprobStore

    def __init__(self, collector: Collector) -> None:
        self._collector = collector

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self._collector.on_events(events, now_ns)
        self._collector.on_logprobs(self.logprobs.take())


def _engine_config(model: str | None, settings: Mapping[str, Any]) -> EngineConfig:
    unknown = sorted(set(settings) - set(EngineConfig.__dataclass_fields__))
    if unknown:
        known = ", ".join(EngineConfig.__dataclass_fields__)
        raise ValueError(f"LLM knows no setting {', '.join(unknown)}; it knows {known}")
    return EngineConfig(model=model, **settings)


def _as_prompts(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str | Mapping):
        return [prompts]
    if not isinstance(prompts, Sequence):
        raise ValueError(
            f"prompts must be a string, token ids or a list of those, got {type(prompts).__name__}"
        )
    if prompts and all(isinstance(item, Integral) for item in prompts):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _one_each(
    params: SamplingParams | Sequence[SamplingParams], count: int
) -> list[SamplingParams]:
    if isinstance(params, SamplingParams):
        return [params] * count
    if len(params) != count:
        raise ValueError(
            f"{count} prompts but {len(params)} sampling_params: give one, or one each"
        )
    return list(params)


def _check_token_ids(token_ids: Sequence[int], vocab_size: int) -> None:
    bad = next((i for i in token_ids if not 0 <= i < vocab_size), None)
    if bad is not None:
        raise ValueError(f"token id {bad} is outside the model's vocabulary of {vocab_size}")


def _check_params(params: SamplingParams, vocab_size: int, max_logprobs: int) -> None:
    for name in ("logit_bias", "stop_token_ids", "allowed_token_ids"):
        for token_id in getattr(params, name) or ():
            if token_id >= vocab_size:
                raise ValueError(
                    f"{name} token {token_id} is outside the model's vocabulary of {vocab_size}"
                )
    for name in ("logprobs", "prompt_logprobs"):
        value = getattr(params, name)
        if value is not None and value > max_logprobs:
            raise ValueError(f"{name}={value} is more than max_logprobs={max_logprobs}: raise it")
