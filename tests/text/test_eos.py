"""Every place that names an end-of-text token is heard."""

from __future__ import annotations

import chat_templates
import pytest
import vocabularies

from headway.text.chat_template import ChatTemplate
from headway.text.eos import StopId, unite_stop_ids
from headway.text.tokenizer import TokenizerError
from headway.text.tokenizer_gguf import tokenizer_from_gguf


def test_ids_of_all_places_are_united_and_say_who_named_them() -> None:
    tokens = len(vocabularies.byte_level_metadata()["tokenizer.ggml.tokens"])
    metadata = vocabularies.byte_level_metadata(eos_token_id=tokens - 4, eot_token_id=tokens - 2)
    tokenizer = tokenizer_from_gguf(metadata)
    found = unite_stop_ids(tokenizer, [tokens - 4, tokens - 1], ChatTemplate(chat_templates.CHATML))
    assert found == [
        StopId(tokens - 4, "<|endoftext|>", ("tokenizer eos_token", "model configuration")),
        StopId(tokens - 2, "<|im_end|>", ("tokenizer eot_token", "chat template")),
        StopId(tokens - 1, "<think>", ("model configuration",)),
    ]
    assert str(found[1]) == f"{tokens - 2} '<|im_end|>' (tokenizer eot_token, chat template)"


def test_a_model_without_a_template_still_has_its_own_ids() -> None:
    tokenizer = vocabularies.byte_level()
    assert [stop.token for stop in unite_stop_ids(tokenizer)] == ["<|im_end|>"]


def test_an_id_without_a_token_is_refused() -> None:
    with pytest.raises(TokenizerError, match="do not belong together"):
        unite_stop_ids(vocabularies.byte_level(), [10**6])
