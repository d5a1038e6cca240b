"""What a step-time model is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from headway.core.step import Step


class StepShape(NamedTuple):
    """A step in numbers. A token at position p attends p + 1 tokens, itself among them.

    A decode is a chunk of one token behind its prompt; all else is prefill, recomputes too.
    """

    num_prefill_tokens: int = 0
    num_prefills: int = 0  # chunks
    prefill_attended: int = 0  # summed over the tokens of all prefill chunks
    prefill_context: int = 0  # summed over prefill chunks: tokens up to the end of each
    num_decode_tokens: int = 0
    decode_attended: int = 0  # summed over the decodes
    num_samples: int = 0  # sequences that get a token

    @property
    def num_tokens(self) -> int:
        return self.num_prefill_tokens + self.num_decode_tokens


class PlacedChunk(NamedTuple):
    """Tokens [first_position, first_position + num_tokens) of a sequence in a step."""

    first_position: int
    num_tokens: int
    num_prompt_tokens: int  # of the sequence
    samples: bool


def is_decode(first_position: int, num_tokens: int, num_prompt_tokens: int) -> bool:
    """As `Chunk.is_decode` has it, for chunks that were only noted."""
    return num_tokens == 1 and first_position >= num_prompt_tokens


def shape_of(chunks: Iterable[PlacedChunk]) -> StepShape:
    """The shape of a step of these chunks."""
    prefill_tokens = prefills = prefill_attended = prefill_context = 0
    decodes = decode_attended = samples = 0
    for first, count, num_prompt_tokens, is_sampled in chunks:
        samples += is_sampled
        if is_decode(first, count, num_prompt_tokens):
            decodes += 1
            decode_attended += first + 1
        else:
            prefill_tokens += count
            prefills += 1
            prefill_attended += count * first + count * (count + 1) // 2
            prefill_context += first + count
    return StepShape(
        prefill_tokens,
        prefills,
        prefill_attended,
        prefill_context,
        decodes,
        decode_attended,
        samples,
    )


def shape_of_step(step: Step) -> StepShape:
    """The shape of a step that a scheduler has decided and not been told the outcome of."""
    return shape_of(
        PlacedChunk(first, count, sequence.num_prompt_tokens, samples)
        for sequence, first, count, samples, _ in step.chunks
    )


class StepTimeModel(Protocol):
    """Predicts how long a step takes, from when it is decided to when the next can be."""

    def step_ns(self, shape: StepShape) -> int:
        """Nanoseconds, at least 1."""
        ...

    def terms_ns(self, shape: StepShape) -> Mapping[str, float]:
        """What `step_ns` is made of, by name, for people. Need not add up where terms overlap."""
        ...
