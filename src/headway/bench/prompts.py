"""Texts for prompts: as token ids, or as words of about one token each.

Equal names begin equally, within one load; another salt makes other texts of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.simulator.workload.base import Segment

# In nearly every vocabulary: above control tokens and single bytes, below the smallest's end.
FIRST_ID, END_ID = 1_000, 30_000
_WORD_LIST = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work government number night point
home water room mother area money story fact month lot right study book eye job word business issue
side kind head house service friend father power hour game line end member law car city community
name president team minute idea body information back parent face others level office door health
person art war history party result change morning reason research girl guy moment air teacher force
"""
_WORDS = _WORD_LIST.split()


def token_ids(prompt: Sequence[Segment], salt: int) -> list[int]:
    """Exactly as many tokens as the prompt has."""
    ids: list[int] = []
    for segment in prompt:
        ids += (FIRST_ID + (END_ID - FIRST_ID) * _draws(segment, salt)).astype(np.int64).tolist()
    return ids


def words(prompt: Sequence[Segment], salt: int) -> str:
    """About as many tokens: one for each word, in most vocabularies."""
    chosen: list[str] = []
    for segment in prompt:
        indices = (len(_WORDS) * _draws(segment, salt)).astype(np.int64).tolist()
        chosen += [_WORDS[index] for index in indices]
    return " ".join(chosen)


def _draws(segment: Segment, salt: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    generator = np.random.Generator(np.random.PCG64([salt, segment.name]))
    return generator.random(segment.num_tokens)
