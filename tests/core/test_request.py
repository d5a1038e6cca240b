"""Sampling parameters are refused with a sentence, or stand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core.request import Request, SamplingParams


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        ({"n": 0}, "n must be at least 1, got 0"),
        ({"max_tokens": 0}, "max_tokens must be at least 1"),
        ({"max_tokens": 2, "min_tokens": 3}, "min_tokens must be at most max_tokens=2, got 3"),
        ({"temperature": float("nan")}, "temperature must be a finite number"),
        ({"temperature": -0.1}, "temperature must be at least 0"),
        ({"top_p": 0}, r"top_p must be in \(0, 1\]"),
        ({"top_k": -2}, "top_k must be 0 or -1"),
        ({"presence_penalty": 2.5}, r"presence_penalty must be in \[-2, 2\]"),
        ({"repetition_penalty": 0}, "repetition_penalty must be greater than 0"),
        ({"logit_bias": {-1: 1.0}}, "logit_bias must be token ids"),
        ({"stop": [""]}, "stop must be non-empty strings"),
        ({"stop_token_ids": [-1]}, "stop_token_ids must be token ids"),
        ({"logprobs": -1}, "logprobs must be at least 0"),
        ({"allowed_token_ids": []}, r"allowed_token_ids must be at least one token id.*got \(\)"),
        ({"allowed_token_ids": [3, -1]}, "each of at least 0"),
        ({"bad_words": [" "]}, "bad_words must be strings with more than spaces"),
        ({"seed": 2**64}, "seed must be a 64-bit integer"),
    ],
)
def test_values_out_of_range_are_refused(asked, sentence):
    with pytest.raises(ValueError, match=sentence):
        SamplingParams(**asked)


def test_shorthands_are_resolved():
    params = SamplingParams(stop="end", top_k=-1, stop_token_ids=[3])
    assert (params.stop, params.top_k, params.stop_token_ids) == (("end",), 0, (3,))
    assert Request(request_id="a", prompt_token_ids=(1, 2), sampling=params).num_prompt_tokens == 2


def test_forced_tokens_are_the_length_of_the_output():
    params = SamplingParams(max_tokens=16)
    request = Request(request_id="a", prompt_token_ids=(1,), sampling=params)
    assert request.max_output_tokens == 16
    assert replace(request, forced_token_ids=(1,) * 20).max_output_tokens == 20
