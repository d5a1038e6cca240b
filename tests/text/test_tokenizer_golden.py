# ruff: noqa: RUF001  (compatibility characters are what is normalised)
"""Ids equal those of the tokenizers that the models were trained with."""

from __future__ import annotations

import copy
import io
import random
from pathlib import Path
from typing import Any

import pytest
import vocabularies
from text_corpus import HARD_CHARACTERS, NASTY_TEXTS, TRAINING_TEXTS
from tokenizers import Regex, decoders, pre_tokenizers

from headway.text.detokenizer import Detokenizer
from headway.text.tokenizer import Tokenizer
from headway.text.tokenizer_dir import load_tokenizer_dir
from headway.text.tokenizer_gguf import tokenizer_from_gguf

pytest.importorskip("torch")
pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")
spm = pytest.importorskip("sentencepiece")

pytestmark = pytest.mark.golden


def hard_texts() -> list[str]:
    generator = random.Random(1)
    words = ["".join(generator.choices(HARD_CHARACTERS + "ABC .,'s12", k=40)) for _ in range(200)]
    return NASTY_TEXTS + TRAINING_TEXTS + words


def metadata_of(file: Path) -> dict[str, Any]:
    fields = gguf.GGUFReader(file).fields
    return {name: fields[name].contents() for name in fields if name.startswith("tokenizer.")}


@pytest.fixture(scope="module")
def smollm(default_gguf: Path) -> Tokenizer:
    return tokenizer_from_gguf(metadata_of(default_gguf))


@pytest.fixture(scope="module")
def reference(smollm_of_transformers: Any) -> Any:
    """transformers' own conversion, with the digit rule that SmolLM2 was trained with."""
    loaded = copy.deepcopy(smollm_of_transformers)
    # The conversion leaves out that digits stand alone ("smollm" in the file).
    loaded.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return loaded


def test_smollm_ids_equal_transformers(smollm: Tokenizer, reference: Any) -> None:
    for text in [*hard_texts(), "long " * 20_000]:
        assert smollm.encode(text) == reference(text)["input_ids"], text[:200]
        ids = smollm.encode(text)
        for skip in (True, False):
            assert smollm.decode(ids, skip) == reference.decode(
                ids, skip_special_tokens=skip, clean_up_tokenization_spaces=False
            )


def test_a_saved_directory_gives_the_same_tokenizer(
    smollm: Tokenizer, reference: Any, tmp_path: Path
) -> None:
    reference.save_pretrained(tmp_path)
    loaded = load_tokenizer_dir(tmp_path)
    assert loaded.encode_batch(hard_texts()) == smollm.encode_batch(hard_texts())
    assert loaded.eos_token_id == smollm.eos_token_id
    assert loaded.chat_template == smollm.chat_template
    assert loaded.special_ids == smollm.special_ids


def test_every_smollm_token_streams_to_the_library_decode(smollm: Tokenizer) -> None:
    generator = random.Random(2)
    for _ in range(200):
        ids = [generator.randrange(smollm.vocab_size) for _ in range(50)]
        detokenizer = Detokenizer(smollm)
        text = "".join(detokenizer.push([i]) for i in ids) + detokenizer.finish()
        assert text == smollm._backend.decode(ids)


def splits_of_transformers() -> dict[str, str]:
    mapping = pytest.importorskip("transformers.integrations.gguf.gguf_tokenizer_mapping")
    return dict(mapping.GGUF_PRE_TOKENIZER_SPLITS)


@pytest.mark.parametrize(
    "kind", ["llama-bpe", "dbrx", "tekken", "qwen2", "qwen35", "gpt-4o", "falcon3", "minimax-m2"]
)
def test_byte_level_kinds_equal_the_published_expressions(kind: str) -> None:
    split = pre_tokenizers.Split(Regex(splits_of_transformers()[kind]), "isolated")
    check_against(kind, [split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


@pytest.mark.parametrize(
    ("kind", "steps"),
    [
        ("gpt-2", [pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        (
            "starcoder",
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ],
        ),
    ],
)
def test_byte_level_kinds_equal_the_library_steps(kind: str, steps: list[Any]) -> None:
    check_against(kind, steps)


def check_against(kind: str, steps: list[Any]) -> None:
    tokenizer = tokenizer_from_gguf(vocabularies.byte_level_metadata(kind))
    model = tokenizer._backend.model
    other = type(tokenizer._backend)(model)
    other.pre_tokenizer = pre_tokenizers.Sequence(steps)
    other.decoder = decoders.ByteLevel()
    for text in hard_texts():
        if "<|" not in text:
            assert tokenizer.encode(text, add_special_tokens=False) == other.encode(text).ids, text


def trained_sentencepiece(kind: str, **options: Any) -> Any:
    model = io.BytesIO()
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(
            line for text in TRAINING_TEXTS for line in text.split("\n") if line
        ),
        model_writer=model,
        model_type=kind,
        vocab_size=520,
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return spm.SentencePieceProcessor(model_proto=model.getvalue())


def metadata_of_sentencepiece(model: Any, kind: str, **more: Any) -> dict[str, Any]:
    def type_of(i: int) -> int:
        checks = [(model.is_unknown, 2), (model.is_control, 3), (model.is_byte, 6)]
        return next((number for check, number in checks if check(i)), 1)

    size = model.get_piece_size()
    return {
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.tokens": [model.id_to_piece(i) for i in range(size)],
        "tokenizer.ggml.scores": [model.get_score(i) for i in range(size)],
        "tokenizer.ggml.token_type": [type_of(i) for i in range(size)],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        **more,
    }


@pytest.mark.parametrize("has_prefix", [True, False])
@pytest.mark.parametrize(("kind", "name"), [("bpe", "llama"), ("unigram", "t5")])
def test_sentencepiece_kinds_equal_sentencepiece(kind: str, name: str, has_prefix: bool) -> None:
    model = trained_sentencepiece(
        kind,
        add_dummy_prefix=has_prefix,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )
    more = {"tokenizer.ggml.add_space_prefix": has_prefix}
    tokenizer = tokenizer_from_gguf(metadata_of_sentencepiece(model, name, **more))
    for text in hard_texts():
        if "<" in text or "▁" in text or "\x00" in text:
            continue
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert ids == model.encode(text), text
        assert tokenizer.decode(ids) == model.decode(ids)


def test_unigram_with_its_character_map_equals_sentencepiece() -> None:
    pb2 = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
    model = trained_sentencepiece("unigram", normalization_rule_name="nmt_nfkc")
    spec = pb2.ModelProto.FromString(model.serialized_model_proto()).normalizer_spec
    more = {
        "tokenizer.ggml.precompiled_charsmap": list(spec.precompiled_charsmap),
        "tokenizer.ggml.remove_extra_whitespaces": True,
    }
    tokenizer = tokenizer_from_gguf(metadata_of_sentencepiece(model, "t5", **more))
    for text in [*TRAINING_TEXTS[:4], "  ﬁne   Ⅷ ½  ｗｉｄｅ x\t\ty  ", "Å 日本語 ①"]:
        assert tokenizer.encode(text, add_special_tokens=False) == model.encode(text), text
