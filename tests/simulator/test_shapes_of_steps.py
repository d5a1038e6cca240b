"""A simulated step is counted where it is run, in one pass: as `shape_of_step` counts it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.worlds import PerToken, asks

from headway.core.sequence import Sequence
from headway.core.step import Chunk, Step
from headway.drive.clock import VirtualClock
from headway.simulator.executor import CostModelExecutor
from headway.simulator.script import SyntheticScript
from headway.simulator.step_time.base import StepShape, is_decode, shape_of_step


class Scripts:
    """Of requests that are called by their sequence's id."""

    def __init__(self, step: Step) -> None:
        requests = (chunk.sequence.request for chunk in step.chunks)
        self._scripts = {
            r.request_id: SyntheticScript(asks(int(r.request_id), 1, 9)) for r in requests
        }

    def script_of(self, request_id: str) -> SyntheticScript:
        return self._scripts[request_id]


class Shapes:
    """As a Collector is told."""

    def __init__(self) -> None:
        self.seen: list[StepShape] = []

    def on_run(self, step: Step, shape: StepShape, start_ns: int, end_ns: int) -> None:
        self.seen.append(shape)


def chunk(number: int, prompt: int, first: int, count: int, samples: bool) -> Chunk:
    request = SyntheticScript(asks(number, prompt, 9)).request
    sequence = Sequence(sequence_id=number, request=request, index=0, max_num_tokens=10_000)
    return Chunk(sequence, first, count, samples)


chunks = st.tuples(
    st.integers(1, 12), st.integers(0, 14), st.sampled_from([1, 1, 2, 9]), st.booleans()
)
steps = st.lists(chunks, min_size=1, max_size=8).map(
    lambda rows: Step(index=0, chunks=tuple(chunk(i, *row) for i, row in enumerate(rows)))
)


@given(steps)
def test_the_executor_counts_as_everybody_else(step):
    shapes, clock, model = Shapes(), VirtualClock(), PerToken()
    result = CostModelExecutor(clock, model, Scripts(step), shapes).run(step)
    shape = shape_of_step(step)
    assert shapes.seen == [shape]
    assert clock.now_ns() == model.step_ns(shape)
    assert len(result.token_ids) == shape.num_samples
    attended = (c.first_position + i + 1 for c in step.chunks for i in range(c.num_tokens))
    assert shape.prefill_attended + shape.decode_attended == sum(attended)


@given(steps)
def test_a_decode_is_what_the_scheduler_calls_one(step):
    shape = shape_of_step(step)
    assert shape.num_decode_tokens == step.num_tokens - step.num_prefill_tokens
    assert shape.num_prefill_tokens == step.num_prefill_tokens
    for one in step.chunks:
        num_prompt_tokens = one.sequence.num_prompt_tokens
        assert is_decode(one.first_position, one.num_tokens, num_prompt_tokens) == one.is_decode
