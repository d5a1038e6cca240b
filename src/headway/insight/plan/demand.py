"""What requests ask for, in the form that a plan computes with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from headway.simulator.workload.clients import NOT_DECLARED, Declared
from headway.simulator.workload.lengths import LengthLaw, empirical, histogram

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
_PROMPT_BINS, _OUTPUT_BINS = 96, 256
_MOST_PAIRS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Lengths in tokens: of each kind by itself, and as prompts and outputs come together.

    `prompt_sizes`, `output_sizes`, `shares`, [n]: pairs and the share of requests of each.
    `declared`: the max_tokens that clients send.
    """

    prompts: LengthLaw
    outputs: LengthLaw
    prompt_sizes: I64
    output_sizes: I64
    shares: F64
    declared: Declared = NOT_DECLARED

    @classmethod
    def of_laws(
        cls, prompts: LengthLaw, outputs: LengthLaw, declared: Declared = NOT_DECLARED
    ) -> Demand:
        """Drawn independently."""
        p, p_shares = thinned(prompts, _PROMPT_BINS)
        o, o_shares = thinned(outputs, _OUTPUT_BINS)
        return cls(
            prompts=prompts,
            outputs=outputs,
            prompt_sizes=np.repeat(p, len(o)),
            output_sizes=np.tile(o, len(p)),
            shares=np.outer(p_shares, o_shares).ravel(),
            declared=declared,
        )

    @classmethod
    def of_requests(cls, lengths: Iterable[tuple[int, int]]) -> Demand:
        """As they were: long prompts may have short outputs. Raises ValueError if there are none.

        Of very many, evenly spaced ones stand for the rest.
        """
        both = np.array(list(lengths), dtype=np.int64).reshape(-1, 2)
        if not len(both):
            raise ValueError("the workload makes no requests")
        every = -(-len(both) // _MOST_PAIRS)
        kept = both[np.lexsort((both[:, 1], both[:, 0]))][::every]
        return cls(
            prompts=empirical(both[:, 0].tolist()),
            outputs=empirical(both[:, 1].tolist()),
            prompt_sizes=kept[:, 0],
            output_sizes=kept[:, 1],
            shares=np.full(len(kept), 1 / len(kept)),
        )

    @property
    def sizes(self) -> I64:
        """Prompt and output together, [n]."""
        return self.prompt_sizes + self.output_sizes

    def mean(self, values: F64 | I64 | npt.NDArray[np.bool_]) -> float:
        """Over requests; `values` has one for each pair."""
        return float(values @ self.shares)

    def quantile(self, values: I64, share: float) -> int:
        """The least of `values` that at least this share of the requests do not exceed."""
        order = np.argsort(values, kind="stable")
        index = int(np.searchsorted(np.cumsum(self.shares[order]), share - 1e-12))
        return int(values[order][min(index, len(order) - 1)])

    def within(self, max_model_len: int, num_tokens: int) -> Demand:
        """What is served of it: prompts that leave room for a token, outputs that end where the
        model's length or a constant max_tokens ends them, and nothing of more than `num_tokens`.

        Raises ValueError if that is nobody.
        """
        outputs = np.minimum(self.output_sizes, max_model_len - self.prompt_sizes)
        if self.declared.constant is not None:
            outputs = np.minimum(outputs, self.declared.constant)
        fits = (outputs > 0) & (self.prompt_sizes + outputs <= num_tokens)
        if not fits.any():
            raise ValueError(
                f"no request fits: the shortest has {int(self.prompt_sizes.min()):,} prompt tokens "
                f"and {int(self.output_sizes.min()):,} of output, the KV cache holds "
                f"{num_tokens:,} tokens and max_model_len is {max_model_len:,}"
            )
        if fits.all() and (outputs == self.output_sizes).all():
            return self
        return replace(self, output_sizes=outputs).where(fits)

    def where(self, kept: npt.NDArray[np.bool_]) -> Demand:
        """Of these pairs only, of which there must be one."""
        prompts, outputs = self.prompt_sizes[kept], self.output_sizes[kept]
        shares = self.shares[kept] / self.mean(kept)
        return replace(
            self,
            prompts=_law(prompts, shares),
            outputs=_law(outputs, shares),
            prompt_sizes=prompts,
            output_sizes=outputs,
            shares=shares,
        )

    def reserved(self, max_model_len: int) -> I64:
        """Prompt and declared max_tokens together, as a reservation counts them, [n]."""
        asked = self.declared.at(self.output_sizes)
        most = np.array([max_model_len if n is None else n for n in asked], dtype=np.int64)
        return np.minimum(self.prompt_sizes + most, max_model_len)


def _law(sizes: I64, shares: F64) -> LengthLaw:
    values, places = np.unique(sizes, return_inverse=True)
    weights = np.bincount(places, shares)
    return histogram(dict(zip(values.tolist(), weights.tolist(), strict=True)))


def thinned(law: LengthLaw, count: int) -> tuple[I64, F64]:
    """At most so many lengths that stand for a law, and their shares.

    Each is the mean of a stretch, whole. Stretches have about equal parts of the requests, of the
    tokens and of the squares together: what holds memory for long is resolved as finely.
    """
    if len(law.values) <= count:
        return law.values, law.probabilities()
    shares = law.probabilities()
    relative = law.values / law.mean()
    weights = shares * (1 + relative + relative * relative)
    place = np.minimum(count - 1, (np.cumsum(weights) / weights.sum() * count).astype(np.int64))
    totals = np.bincount(place, shares, minlength=count)
    sums = np.bincount(place, shares * law.values, minlength=count)
    used = totals > 0
    return np.rint(sums[used] / totals[used]).astype(np.int64), totals[used].astype(np.float64)
