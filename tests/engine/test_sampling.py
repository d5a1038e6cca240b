"""Masks, penalties and draws: against the formulas, row by row, and independent of the batch."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from headway.core.request import SamplingParams
from headway.engine.sampling import Sampler, stream_seed
from headway.ops.reference.backend import ReferenceOps

VOCAB = 50


def sequence(
    sequence_id: int = 0,
    prompt: tuple[int, ...] = (1, 2, 3),
    output: tuple[int, ...] = (),
    index: int = 0,
    seed: int = 0,
    stop_ids: tuple[int, ...] = (),
    **sampling: object,
) -> SimpleNamespace:
    params = SamplingParams(**({"temperature": 0.0, "max_tokens": 100} | sampling))  # type: ignore[arg-type]
    request = SimpleNamespace(sampling=params, seed=seed, stop_token_ids=frozenset(stop_ids))
    return SimpleNamespace(
        sequence_id=sequence_id,
        index=index,
        request=request,
        token_ids=[*prompt, *output],
        num_prompt_tokens=len(prompt),
        num_output_tokens=len(output),
    )


def logits_of(rows: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, (rows, VOCAB)).astype(np.float32)


def sample_one(logits: np.ndarray, who: SimpleNamespace) -> int:
    return Sampler(ReferenceOps()).sample(logits.copy(), [who])[0]


def test_greedy_takes_the_lowest_of_equal_logits() -> None:
    logits = np.zeros((1, VOCAB), np.float32)
    logits[0, [7, 30]] = 5
    assert sample_one(logits, sequence()) == 7


def test_logit_bias_moves_the_choice() -> None:
    logits = logits_of()
    assert sample_one(logits, sequence(logit_bias={13: 100.0})) == 13
    best = int(logits.argmax())
    assert sample_one(logits, sequence(logit_bias={best: -100.0})) == np.argsort(-logits[0])[1]


def test_stop_ids_cannot_come_before_min_tokens() -> None:
    logits = logits_of()
    best = int(logits.argmax())
    early = sequence(output=(4,), min_tokens=2, stop_ids=(best,))
    late = sequence(output=(4, 5), min_tokens=2, stop_ids=(best,))
    assert sample_one(logits, early) != best
    assert sample_one(logits, late) == best


@pytest.mark.parametrize("penalty", [0.5, 1.7])
def test_repetition_penalty_divides_positive_and_multiplies_negative(penalty: float) -> None:
    logits = logits_of()
    expected = logits[0].copy()
    for token in {1, 2, 3, 9}:
        expected[token] = (
            expected[token] / penalty if expected[token] > 0 else expected[token] * penalty
        )
    adjusted = logits.copy()
    Sampler(ReferenceOps()).sample(adjusted, [sequence(output=(9, 9), repetition_penalty=penalty)])
    np.testing.assert_allclose(adjusted[0], expected, rtol=1e-6)


def test_presence_and_frequency_count_output_tokens_only() -> None:
    logits = logits_of()
    expected = logits[0].copy()
    expected[9] -= 0.5 + 0.25 * 3
    expected[4] -= 0.5 + 0.25
    adjusted = logits.copy()
    who = sequence(output=(9, 4, 9, 9), presence_penalty=0.5, frequency_penalty=0.25)
    Sampler(ReferenceOps()).sample(adjusted, [who])
    np.testing.assert_allclose(adjusted[0], expected, rtol=1e-6)


def test_counts_follow_a_sequence_and_are_forgotten() -> None:
    sampler = Sampler(ReferenceOps())
    who = sequence(output=(9,), frequency_penalty=1.0)
    sampler.sample(logits_of(), [who])
    who.token_ids += [9, 8]
    who.num_output_tokens = 3
    adjusted = logits_of()
    sampler.sample(adjusted, [who])
    assert adjusted[0, 9] == logits_of()[0, 9] - np.float32(2)
    sampler.forget(0)
    other = sequence(output=(), frequency_penalty=1.0)
    clean = logits_of()
    sampler.sample(clean, [other])
    np.testing.assert_array_equal(clean, logits_of())


def test_draws_depend_on_seed_position_and_index_only() -> None:
    logits = np.zeros((1, VOCAB), np.float32)
    drawn = [sample_one(logits, sequence(seed=7, temperature=1.0)) for _ in range(3)]
    assert len(set(drawn)) == 1
    by_seed = {sample_one(logits, sequence(seed=s, temperature=1.0)) for s in range(20)}
    by_index = {sample_one(logits, sequence(index=i, temperature=1.0)) for i in range(20)}
    by_position = {
        sample_one(logits, sequence(output=(5,) * n, temperature=1.0)) for n in range(20)
    }
    assert min(len(by_seed), len(by_index), len(by_position)) > 8


def test_a_row_draws_the_same_whoever_shares_its_batch() -> None:
    logits = logits_of(rows=8)
    crowd = [sequence(i, seed=i, temperature=0.8, top_k=20, top_p=0.9) for i in range(8)]
    together = Sampler(ReferenceOps()).sample(logits.copy(), crowd)
    alone = [sample_one(logits[i : i + 1], crowd[i]) for i in range(8)]
    assert together == alone


def test_draws_follow_the_distribution() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.2] + [1e-9] * (VOCAB - 3)], np.float32))
    tokens = [sample_one(logits, sequence(seed=s, temperature=1.0)) for s in range(4000)]
    shares = np.bincount(tokens, minlength=3)[:3] / 4000
    np.testing.assert_allclose(shares, [0.5, 0.3, 0.2], atol=0.03)  # 4 standard errors


def test_stream_seeds_are_64_bit_and_differ() -> None:
    seeds = [stream_seed(s, i) for s in (-5, 0, 2**63 - 1) for i in range(50)]
    assert len(set(seeds)) == len(seeds)
    assert all(0 <= s < 2**64 for s in seeds)


@pytest.mark.parametrize("sampling", [{"temperature": 1e300}, {"top_p": 1e-300}, {"top_k": 2**40}])
def test_values_beyond_float32_and_int32_fail_nobody(sampling: dict[str, float]) -> None:
    logits = logits_of(rows=2)
    odd = sequence(0, seed=1, **({"temperature": 1.0} | sampling))
    other = sequence(1, seed=2, temperature=0.8)
    tokens = Sampler(ReferenceOps()).sample(logits.copy(), [odd, other])
    assert 0 <= tokens[0] < VOCAB
    assert tokens[1] == sample_one(logits[1:], other)
