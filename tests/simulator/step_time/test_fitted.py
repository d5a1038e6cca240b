"""The fit finds what made the times, in spite of noise, and says how far off it is."""

from __future__ import annotations

import numpy as np
import pytest
from synthetic import law_ns, observed, shapes

from headway.simulator.step_time.base import StepShape
from headway.simulator.step_time.fitted import (
    COUNTS,
    FitErrors,
    FittedModel,
    Term,
    count,
    fit,
    predict_ns,
)
from headway.simulator.step_time.observations import Observations

NO_ERRORS = FitErrors(num_fitted=0, num_left_out=0, num_held_out=0, median=0, p90=0, total=0)


def coefficients(model: FittedModel) -> dict[tuple[str, int], float]:
    return {(term.name, term.above): term.ns for term in model.terms}


def off(model: FittedModel) -> np.ndarray:
    return np.array([model.step_ns(shape) / law_ns(shape) - 1 for shape in shapes(300, seed=9)])


def test_it_says_where_steps_leave_what_it_has_seen():
    seen = dict.fromkeys(COUNTS, (0, 1000)) | {"decodes": (2, 4), "samples": (0, 4)}
    model = FittedModel(terms=(), errors=NO_ERRORS, seen=seen)
    inside = StepShape(num_decode_tokens=3, decode_attended=30, num_samples=3)
    outside = StepShape(5, 1, 15, 1005, 9, 90, 10)
    idle = StepShape(5, 1, 15, 5)
    assert model.beyond(np.array([inside])) == {}
    assert model.beyond(np.array([inside, outside])) == {
        "decodes": (3, 9),
        "samples": (3, 10),
        "prefill_context": (0, 1005),
    }
    assert model.beyond(np.array([inside, idle])) == {"decodes": (0, 3)}
    assert model.beyond(np.empty((0, 7), np.int64)) == {}


def test_known_coefficients_are_found():
    model = fit(observed(800))
    found = coefficients(model)
    # The first sample and the others: which of three terms that depend on each other say so is
    # left to the last bits of a product.
    sampling, first, later = (
        found.pop(term, 0.0) for term in (("steps_that_sample", 0), ("samples", 0), ("samples", 1))
    )
    assert sampling + first == pytest.approx(1.22e6, rel=1e-3)
    assert first + later == pytest.approx(2e4, rel=1e-3)
    assert found == {
        ("steps", 0): pytest.approx(4e6, rel=1e-3),
        ("tokens", 16): pytest.approx(6e4, rel=1e-3),
        ("decode_attended", 0): pytest.approx(300, rel=1e-3),
        ("prefill_attended", 0): pytest.approx(40, rel=1e-3),
    }
    assert model.errors.p90 < 1e-4
    assert abs(model.errors.total) < 1e-4
    assert (model.errors.num_fitted, model.errors.num_held_out) == (640, 160)


def test_noise_averages_out_and_is_what_the_errors_say():
    model = fit(observed(1500, noise=0.05))
    assert np.abs(off(model)).max() < 0.03
    assert model.errors.median == pytest.approx(0.05 * 0.674, rel=0.25)  # of a normal's |x|
    assert abs(model.errors.total) < 0.01


def test_what_others_take_from_the_machine_is_in_every_total():
    """Six steps of a hundred last up to four times as long: on average all last 1.1 times."""
    seen = observed(1500, noise=0.02, outliers=0.06, seed=2)
    model = fit(seen)
    assert model.errors.num_left_out == 0
    is_fitted = np.arange(len(seen)) % 5 != 4
    has_prompts = seen.shapes[:, 1] > 0
    predicted, measured = predict_ns(model, seen), seen.durations_ns
    assert predicted[is_fitted].sum() == pytest.approx(measured[is_fitted].sum(), rel=1e-4)
    for kind in (has_prompts & is_fitted, ~has_prompts & is_fitted):
        assert predicted[kind].sum() == pytest.approx(measured[kind].sum(), rel=0.03)
    slowed = 1 + 0.06 * ((1.3 + 4) / 2 - 1)
    assert np.quantile(np.abs((off(model) + 1) / slowed - 1), 0.9) < 0.05


def test_outliers_choose_no_terms():
    names = {term.name for term in fit(observed(1500, noise=0.02, outliers=0.06)).terms}
    assert not names & {"prefills", "steps_that_prefill", "prefill_context"}


def test_stalls_are_left_out_and_counted():
    """A machine that slept says nothing of steps."""
    seen = observed(400, noise=0.02)
    slept = seen.durations_ns.copy()
    slept[[3, 50, 51, 257]] *= 40
    slept[9] *= 40  # held out
    model = fit(Observations(seen.shapes, slept))
    assert (model.errors.num_left_out, model.errors.num_fitted) == (4, 316)
    assert np.abs(off(model)).max() < 0.03
    assert model.errors.total < -0.03  # a held-out step keeps its own, and is told of


def test_attention_is_fitted_however_noisy_the_steps_are():
    """A longer context costs more on any machine, though these steps are too few to prove it."""
    model = fit(observed(60, noise=0.5))
    short, long = StepShape(64, 1, 64 * 33, 64, 0, 0, 1), StepShape(64, 1, 64 * 4000, 4000, 0, 0, 1)
    assert model.step_ns(long) > model.step_ns(short)


def test_terms_that_do_not_earn_their_place_are_gone():
    names = {term.name for term in fit(observed(1500, noise=0.02)).terms}
    assert "prefills" not in names
    assert len(names) <= 7


def test_short_steps_count_as_much_as_long_ones():
    model = fit(observed(800, noise=0.03))
    short = [s for s in shapes(800, seed=4) if s.num_tokens <= 4]
    assert short
    for shape in short:
        assert model.step_ns(shape) == pytest.approx(law_ns(shape), rel=0.03)


def test_terms_add_up_to_the_step():
    model = fit(observed(400, noise=0.02))
    for shape in shapes(50, seed=5):
        terms = model.terms_ns(shape)
        assert sum(terms.values()) == pytest.approx(model.step_ns(shape), abs=1)
        assert set(terms) == {term.name for term in model.terms}


def test_many_at_once_are_the_same_as_one_by_one():
    seen = observed(200, noise=0.02)
    model = fit(seen)
    one_by_one = [model.step_ns(StepShape(*row)) for row in seen.shapes.tolist()]
    assert predict_ns(model, seen) == pytest.approx(np.array(one_by_one), abs=1)


def test_it_says_what_it_has_seen():
    seen = observed(200)
    tokens = [StepShape(*row).num_tokens for row in seen.shapes.tolist()]
    model = fit(seen, held_out_every=40)
    fitted = [tokens[i] for i in range(200) if i % 40 != 39]
    assert model.seen["tokens"] == (min(fitted), max(fitted))
    assert set(model.seen) == set(COUNTS)


def test_steps_of_one_kind_can_be_fitted_too():
    """A recording of decodes alone knows nothing of prompts, and is no reason to fail."""
    decodes = [s for s in shapes(900) if not s.num_prefills]
    seen = observed(900)
    only = seen.where(np.array([row[1] == 0 for row in seen.shapes.tolist()]))
    model = fit(only)
    assert model.seen["prefills"] == (0, 0)
    assert model.step_ns(decodes[0]) == pytest.approx(law_ns(decodes[0]), rel=1e-3)


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="39 steps are too few for a fit, which takes 40: measure"):
        fit(observed(39))


@pytest.mark.parametrize("every", [1, 41])
def test_some_steps_must_be_held_out_and_some_not(every):
    with pytest.raises(ValueError, match=r"held_out_every must be in \[2, 40\]"):
        fit(observed(60), held_out_every=every)


def test_counts_have_an_order():
    shape = StepShape(10, 1, 55, 10, 4, 400, 5)
    assert dict(zip(COUNTS, count(shape), strict=True)) == {
        "steps": 1,
        "steps_that_sample": 1,
        "steps_that_prefill": 1,
        "tokens": 14,
        "samples": 5,
        "decodes": 4,
        "decode_attended": 400,
        "prefills": 1,
        "prefill_attended": 55,
        "prefill_context": 10,
    }


@pytest.mark.parametrize(
    ("term", "sentence"),
    [
        (Term("tokens", 0, -1.0), "the term of tokens must have numbers of at least 0"),
        (Term("tokens", -1, 1.0), "must have numbers of at least 0"),
        (Term("tokens", 0, float("nan")), "must have numbers of at least 0"),
        (Term("moons", 0, 1.0), "nothing is counted as 'moons'"),
    ],
)
def test_impossible_terms_are_refused(term, sentence):
    with pytest.raises(ValueError, match=sentence):
        FittedModel(terms=(term,), errors=NO_ERRORS, seen={})


def test_a_step_takes_at_least_a_nanosecond():
    assert FittedModel(terms=(), errors=NO_ERRORS, seen={}).step_ns(StepShape()) == 1
