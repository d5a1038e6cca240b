"""Masks, penalties and draws: against the formulas, row by row, and independent of the batch."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from types import SimpleNamespace

import numpy as np
import pytest

from headway.core.request import SamplingParams
from headway.engine import sampling as sampling_module
from headway.engine.sampling import Sampler
from headway.engine.sampling_rows import stream_seed
from headway.engine.token_tables import TokenTables
from headway.ops.reference.backend import ReferenceOps

VOCAB = 50


def sequence(
    sequence_id: int = 0,
    prompt: tuple[int, ...] = (1, 2, 3),
    output: tuple[int, ...] = (),
    index: int = 0,
    seed: int = 0,
    stop_ids: tuple[int, ...] = (),
    bad_word_ids: tuple[tuple[int, ...], ...] = (),
    forced: tuple[int, ...] = (),
    **sampling: object,
) -> SimpleNamespace:
    params = SamplingParams(**({"temperature": 0.0, "max_tokens": 100} | sampling))  # type: ignore[arg-type]
    request = SimpleNamespace(
        request_id=f"request-{sequence_id - index}",
        sampling=params,
        seed=seed,
        stop_token_ids=frozenset(stop_ids),
        bad_word_ids=bad_word_ids,
        forced_token_ids=forced,
    )
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


def sample(sampler: Sampler, logits: np.ndarray, who: list[SimpleNamespace]) -> list[int]:
    [rows] = sampler.parts(tuple(who), len(who))  # type: ignore[arg-type]
    return sampler.sample(logits, rows, lengths_of(who)).tolist()


def lengths_of(who: SequenceOf[SimpleNamespace]) -> np.ndarray:
    return np.array([len(one.token_ids) for one in who], np.int64)


def sample_one(logits: np.ndarray, who: SimpleNamespace) -> int:
    return sample(Sampler(ReferenceOps()), logits.copy(), [who])[0]


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
    sample(Sampler(ReferenceOps()), adjusted, [sequence(output=(9, 9), repetition_penalty=penalty)])
    np.testing.assert_allclose(adjusted[0], expected, rtol=1e-6)


def test_presence_and_frequency_count_output_tokens_only() -> None:
    logits = logits_of()
    expected = logits[0].copy()
    expected[9] -= 0.5 + 0.25 * 3
    expected[4] -= 0.5 + 0.25
    adjusted = logits.copy()
    who = sequence(output=(9, 4, 9, 9), presence_penalty=0.5, frequency_penalty=0.25)
    sample(Sampler(ReferenceOps()), adjusted, [who])
    np.testing.assert_allclose(adjusted[0], expected, rtol=1e-6)


def test_counts_follow_a_sequence_and_are_forgotten() -> None:
    sampler = Sampler(ReferenceOps())
    who = sequence(output=(9,), frequency_penalty=1.0)
    sample(sampler, logits_of(), [who])
    who.token_ids += [9, 8]
    who.num_output_tokens = 3
    adjusted = logits_of()
    sample(sampler, adjusted, [who])
    assert adjusted[0, 9] == logits_of()[0, 9] - np.float32(2)
    sampler.forget(0)
    other = sequence(output=(), frequency_penalty=1.0)
    clean = logits_of()
    sample(sampler, clean, [other])
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
    together = sample(Sampler(ReferenceOps()), logits.copy(), crowd)
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
    tokens = sample(Sampler(ReferenceOps()), logits.copy(), [odd, other])
    assert 0 <= tokens[0] < VOCAB
    assert tokens[1] == sample_one(logits[1:], other)


def chosen(logits: np.ndarray, who: SimpleNamespace) -> tuple[int, np.ndarray]:
    adjusted = logits.copy()
    return sample(Sampler(ReferenceOps()), adjusted, [who])[0], adjusted[0]


def test_only_allowed_tokens_can_come() -> None:
    logits = logits_of()
    worst = [int(i) for i in np.argsort(logits[0])[:3]]
    token, row = chosen(logits, sequence(allowed_token_ids=worst))
    assert token == worst[-1]
    assert sorted(np.flatnonzero(np.isfinite(row))) == sorted(worst)
    drawn = {
        sample_one(logits, sequence(seed=s, temperature=5.0, allowed_token_ids=worst))
        for s in range(30)
    }
    assert drawn == set(worst)


def test_a_bias_lifts_no_token_that_is_not_allowed() -> None:
    logits = logits_of()
    who = sequence(allowed_token_ids=[3, 4], logit_bias={9: 1e300})
    assert sample_one(logits, who) in (3, 4)


def test_bans_that_would_leave_nothing_of_the_allowed_are_lifted() -> None:
    who = sequence(allowed_token_ids=[7], stop_ids=(7,), min_tokens=5, bad_word_ids=((7,),))
    assert sample_one(logits_of(), who) == 7


@pytest.mark.parametrize(
    ("output", "is_banned"),
    [((), False), ((8, 9), True), ((9,), False), ((8, 9, 5), False), ((1, 8, 9), True)],
)
def test_a_token_that_would_complete_a_bad_word_is_banned(
    output: tuple[int, ...], is_banned: bool
) -> None:
    _, row = chosen(logits_of(), sequence(output=output, bad_word_ids=((8, 9, 5),)))
    assert (row[5] == -np.inf) == is_banned
    assert np.isfinite(np.delete(row, 5)).all()


def test_the_prompt_is_no_part_of_a_bad_word() -> None:
    _, row = chosen(logits_of(), sequence(prompt=(8, 9), bad_word_ids=((8, 9, 5),)))
    assert np.isfinite(row).all()


def test_a_bad_word_of_one_token_never_comes_and_one_outside_the_vocabulary_harms_nobody() -> None:
    logits = logits_of()
    best = int(logits.argmax())
    assert sample_one(logits, sequence(bad_word_ids=((best,), (VOCAB + 5,)))) != best


def test_forced_tokens_replace_what_was_sampled_until_they_are_used_up() -> None:
    logits = logits_of()
    best = int(logits.argmax())
    assert sample_one(logits, sequence(forced=(11, 12))) == 11
    assert sample_one(logits, sequence(output=(11,), forced=(11, 12))) == 12
    assert sample_one(logits, sequence(output=(11, 12), forced=(11, 12))) == best


def test_masks_and_forced_tokens_stay_in_their_own_row() -> None:
    logits = logits_of(rows=4)
    crowd = [
        sequence(0, seed=1, temperature=1.0, allowed_token_ids=[4, 5]),
        sequence(1, seed=2, temperature=1.0, bad_word_ids=((6,),)),
        sequence(2, seed=3, temperature=1.0, forced=(9,)),
        sequence(3, seed=4, temperature=1.0),
    ]
    together = sample(Sampler(ReferenceOps()), logits.copy(), crowd)
    assert together == [sample_one(logits[i : i + 1], crowd[i]) for i in range(4)]


@pytest.mark.parametrize(
    "sampling",
    [
        {"repetition_penalty": 1e300},
        {"repetition_penalty": 1e-300},
        {"logit_bias": {1: 1e300, 2: -1e300}},
        {"logit_bias": {1: 1e300}, "repetition_penalty": 0.1, "frequency_penalty": -2.0},
    ],
)
@pytest.mark.filterwarnings("error")
def test_extreme_numbers_leave_a_row_without_nan_and_warn_of_nothing(
    sampling: dict[str, object],
) -> None:
    token, row = chosen(50 * logits_of(), sequence(temperature=1.0, **sampling))
    assert 0 <= token < VOCAB
    assert not np.isnan(row).any()
    assert not np.isposinf(row).any()


def test_p33_the_same_prompt_eight_times_differs_without_a_seed_and_agrees_with_one() -> None:
    logits = np.zeros((1, VOCAB), np.float32)
    unseeded = {sample_one(logits, sequence(seed=s, temperature=1.0)) for s in range(8)}
    seeded = {sample_one(logits, sequence(seed=7, temperature=1.0)) for _ in range(8)}
    assert len(unseeded) > 1
    assert len(seeded) == 1


def test_lists_of_tokens_become_arrays_once_for_all_sequences_of_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A list may name the whole vocabulary: 20 ms for each token of each of 256 choices."""
    made = []

    def make(request: object) -> TokenTables:
        made.append(request)
        return TokenTables(request)  # type: ignore[arg-type]

    monkeypatch.setattr(sampling_module, "TokenTables", make)
    sampler = Sampler(ReferenceOps())
    choices = [sequence(i, index=i, allowed_token_ids=[5, 6], logit_bias={5: 1.0}) for i in (0, 1)]
    for _ in range(3):
        assert set(sample(sampler, logits_of(2), choices)) <= {5, 6}
    assert len(made) == 1
    for choice in choices:
        sampler.forget(choice.sequence_id)
    sample(sampler, logits_of(1), choices[:1])
    assert len(made) == 2, "the arrays went with the last sequence"


def test_what_is_kept_of_a_step_never_outlives_a_change_of_its_rows() -> None:
    """Rows in parts, as many rows at once as a step may have, come and go and change places."""
    rng = np.random.default_rng(3)
    sampler, crowd, made = Sampler(ReferenceOps()), [], 0
    for _ in range(30):
        for _ in range(rng.integers(0, 3)):
            crowd.append(sequence(made, seed=made, temperature=1 + made % 3, top_k=made % 5))
            made += 1
        if crowd and rng.random() < 0.4:
            sampler.forget(crowd.pop(rng.integers(len(crowd))).sequence_id)
        rng.shuffle(crowd)
        logits = logits_of(max(1, len(crowd)), seed=made)
        tokens: list[int] = []
        for rows in sampler.parts(tuple(crowd), 4):  # type: ignore[arg-type]
            part = logits[len(tokens) : len(tokens) + len(rows.sequences)]
            tokens += sampler.sample(part.copy(), rows, lengths_of(rows.sequences)).tolist()
        assert tokens == [sample_one(logits[i : i + 1], who) for i, who in enumerate(crowd)]
        for who, token in zip(crowd, tokens, strict=True):
            who.token_ids.append(token)
