"""Parts that tokenizers of every source are completed with."""

from __future__ import annotations

import tokenizers
from tokenizers import processors


def bos_eos_template(
    backend: tokenizers.Tokenizer, bos_id: int | None, eos_id: int | None
) -> processors.TemplateProcessing | None:
    """What puts BOS before and EOS after every text; None when neither is wanted."""
    named = [("bos", bos_id), ("eos", eos_id)]
    tokens = {name: (str(backend.id_to_token(i)), i) for name, i in named if i is not None}
    if not tokens:
        return None
    single = [*_name(tokens, "bos"), "$A:0", *_name(tokens, "eos")]
    pair = [*single, *_name(tokens, "bos", 1), "$B:1", *_name(tokens, "eos", 1)]
    return processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=list(dict(tokens.values()).items())
    )


def _name(tokens: dict[str, tuple[str, int]], name: str, sequence: int = 0) -> list[str]:
    return [f"{tokens[name][0]}:{sequence}"] if name in tokens else []
