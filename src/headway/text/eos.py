"""Which tokens end a reply: every place that names one is heard, and the list can be printed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headway.text.chat_template import ChatTemplate, end_token_ids
from headway.text.tokenizer import Tokenizer, TokenizerError


@dataclass(frozen=True, slots=True)
class StopId:
    """A token that ends every reply of the model, and the places that say so."""

    token_id: int
    token: str
    named_by: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.token_id} {self.token!r} ({', '.join(self.named_by)})"


def unite_stop_ids(
    tokenizer: Tokenizer,
    model_eos_ids: Iterable[int] = (),
    template: ChatTemplate | None = None,
) -> list[StopId]:
    """The union of what the tokenizer, the model's configuration and its chat template name.

    Ascending by id. Files of one model contradict each other often enough that hearing only one
    of them lets replies run to their token limit. Raises TokenizerError for an id without a token.
    """
    named_by: dict[int, list[str]] = {}
    for place, token_id in tokenizer.end_token_ids.items():
        named_by.setdefault(token_id, []).append(f"tokenizer {place}")
    for token_id in dict.fromkeys(model_eos_ids):
        named_by.setdefault(token_id, []).append("model configuration")
    for token_id in end_token_ids(template, tokenizer) if template else ():
        named_by.setdefault(token_id, []).append("chat template")
    return [
        StopId(token_id, _token(tokenizer, token_id), tuple(places))
        for token_id, places in sorted(named_by.items())
    ]


def _token(tokenizer: Tokenizer, token_id: int) -> str:
    token = tokenizer.id_to_token(token_id)
    if token is None:
        raise TokenizerError(
            f"the model's configuration names {token_id} as an end-of-text token, "
            "but the tokenizer has no such token: they do not belong together"
        )
    return token
