"""What is asked: a small set of our own, a file, and strangers without end."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

_MAX_FILE_BYTES = 64 << 20
Message = Mapping[str, object]


class PromptsError(Exception):
    """A file that holds no prompts; the message is one sentence."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A text, or the messages of a conversation."""

    asked: str | tuple[Message, ...]

    @property
    def is_text(self) -> bool:
        return isinstance(self.asked, str)

    def as_messages(self) -> list[Message]:
        if isinstance(self.asked, str):
            return [{"role": "user", "content": self.asked}]
        return list(self.asked)

    def as_text(self) -> str:
        """Raises ValueError for a conversation."""
        if not isinstance(self.asked, str):
            raise ValueError("a conversation is no text")
        return self.asked

    @property
    def title(self) -> str:
        """What it is called in a report."""
        if isinstance(self.asked, str):
            return self.asked
        return str(self.asked[-1].get("content")) if self.asked else ""


_REPORT = """The lamp at the harbour was lit at dusk and put out at dawn. The keeper wrote down the
wind, the swell, and the ships that passed, and who among them had answered his signal. """

BUILT_IN = tuple(
    map(
        Prompt,
        (
            "What is the capital of France?",
            "Count from one to thirty in words.",
            "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
            "Explain to a child why the sky is blue.",
            'def fibonacci(n):\n    """The n-th Fibonacci number."""\n',
            "List ten animals in alphabetical order, one on each line.",
            "Translate into French: The train leaves at half past seven.",
            "Is 391 a prime number? Show your work.",
            "Give me three names for a bakery, each with one sentence of why.",
            "SELECT name, COUNT(*) FROM orders",
            "Write a poem of eight lines about rain on a tin roof.",
            "Summarise in one sentence: " + _REPORT * 12,
            "Continue this report: " + _REPORT * 30,
            "Welche Farbe hat ein reifer Apfel, und warum wird er rot?",
            "Erzähle in fünf Sätzen, wie ein Brot gebacken wird.",
            "Explique en quelques phrases comment fonctionne une écluse.",
            "¿Cuáles son las tres ciudades más grandes de España?",
            "Qual è la differenza tra un lago e uno stagno?",
            "Опиши утро в деревне тремя предложениями.",
            "用三句话介绍长城。",
            "富士山について短く説明してください。",
            "한국의 사계절을 짧게 설명해 주세요.",
            "اذكر ثلاث فوائد للمشي كل يوم.",
            '{"name": "Ada", "born": 1815, "known for": ',
        ),
    )
)


def strangers(draws: random.Random) -> Iterator[Prompt]:
    """Others who ask at the same time: pieces of our prompts, never the same twice."""
    words = [word for prompt in BUILT_IN for word in prompt.as_text().split()]
    while True:
        length = draws.choice((4, 16, 60, 200))
        number = draws.getrandbits(40)
        yield Prompt(f"{number:x} {' '.join(draws.choices(words, k=length))}")


def read_prompts(path: Path) -> tuple[Prompt, ...]:
    """A prompt on each line; in a file that ends in .jsonl, each is a JSON string or an object
    with `prompt` or `messages`. Empty lines do not count. Raises PromptsError, OSError."""
    if not path.is_file():
        raise PromptsError(f"{path} is no file: give one with a prompt on each line")
    if path.stat().st_size > _MAX_FILE_BYTES:
        raise PromptsError(f"{path} is larger than {_MAX_FILE_BYTES >> 20} MiB: split it")
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise PromptsError(f"{path} is no text in UTF-8") from None
    read = _from_json if path.suffix == ".jsonl" else _from_line
    prompts = tuple(
        read(path, number, line.rstrip("\r"))
        for number, line in enumerate(lines, start=1)
        if line.strip()
    )
    if not prompts:
        raise PromptsError(f"{path} has no prompts: put one on each line")
    return prompts


class _Asked(msgspec.Struct):
    prompt: str | None = None
    messages: list[dict[str, object]] | None = None


def _from_line(path: Path, number: int, line: str) -> Prompt:
    return Prompt(line)


def _from_json(path: Path, number: int, line: str) -> Prompt:
    try:
        asked = msgspec.json.decode(line, type=_Asked | str)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise PromptsError(f"{path}, line {number}: {error}") from None
    if isinstance(asked, str):
        return Prompt(asked)
    if asked.prompt is not None:
        return Prompt(asked.prompt)
    if asked.messages:
        return Prompt(tuple(asked.messages))
    raise PromptsError(f"{path}, line {number} has neither prompt nor messages")
