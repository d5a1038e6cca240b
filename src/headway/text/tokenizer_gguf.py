"""A tokenizer from a GGUF file's own metadata: byte-level BPE and the SentencePiece kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers

from headway.text.gguf_vocabulary import GgufVocabulary, TokenType, read_vocabulary
from headway.text.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from headway.text.tokenizer import Tokenizer, TokenizerError, call_library
from headway.text.tokenizer_parts import bos_eos_template

_SPACE_MARK = "▁"
_BYTE_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]


def tokenizer_from_gguf(metadata: Mapping[str, object]) -> Tokenizer:
    """Build the tokenizer that `tokenizer.ggml.*` describes.

    Values may be lists or numpy arrays. Raises TokenizerError when they are missing, damaged, or
    of a kind that is not known.
    """
    vocabulary = read_vocabulary(metadata)
    kind = vocabulary.text("model", "")
    if kind not in _BUILDERS:
        raise TokenizerError(
            f"tokenizer.ggml.model is {kind!r}, which Headway does not know: "
            f"supported are {', '.join(_BUILDERS)}"
        )
    build, adds_bos = _BUILDERS[kind], _adds_bos(vocabulary, kind)
    backend = call_library(lambda: build(vocabulary), "the GGUF file's tokenizer cannot be built")
    _add_tokens(backend, vocabulary)
    return _finish(backend, vocabulary, adds_bos=adds_bos)


def _finish(
    backend: tokenizers.Tokenizer, vocabulary: GgufVocabulary, *, adds_bos: bool
) -> Tokenizer:
    bos_id, end_ids = vocabulary.token_id("bos_token_id"), vocabulary.end_token_ids()
    eos_id = end_ids.get("eos_token")
    adds_eos = vocabulary.switch("add_eos_token", False)
    template = bos_eos_template(backend, bos_id if adds_bos else None, eos_id if adds_eos else None)
    if template is not None:
        backend.post_processor = template
    return Tokenizer(
        backend,
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        end_token_ids=end_ids,
        chat_templates=_chat_templates(vocabulary.metadata),
    )


def _adds_bos(vocabulary: GgufVocabulary, kind: str) -> bool:
    default = _pre_tokenizer(vocabulary).adds_bos if kind == "gpt2" else kind == "llama"
    return vocabulary.switch("add_bos_token", default)


def _byte_level_bpe(vocabulary: GgufVocabulary) -> tokenizers.Tokenizer:
    kind = _pre_tokenizer(vocabulary)
    model = models.BPE(
        vocab=vocabulary.ids,
        merges=vocabulary.merges(),
        ignore_merges=kind.ignore_merges,
        fuse_unk=False,
    )
    backend = tokenizers.Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(p), "isolated") for p in kind.patterns]
    to_bytes = pre_tokenizers.ByteLevel(
        add_prefix_space=vocabulary.switch("add_space_prefix", False), use_regex=False
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, to_bytes])
    backend.decoder = decoders.ByteLevel()
    return backend


def _pre_tokenizer(vocabulary: GgufVocabulary) -> PreTokenizer:
    kind = vocabulary.text("pre", "default")
    if kind not in PRE_TOKENIZERS:
        raise TokenizerError(
            f"tokenizer.ggml.pre is {kind!r}, which Headway does not know, and a guess would "
            f"give wrong tokens: known are {', '.join(PRE_TOKENIZERS)}; "
            "name a tokenizer directory with --tokenizer instead"
        )
    return PRE_TOKENIZERS[kind]


def _sentencepiece_bpe(vocabulary: GgufVocabulary) -> tokenizers.Tokenizer:
    has_merges = "tokenizer.ggml.merges" in vocabulary.metadata
    model = models.BPE(
        vocab=vocabulary.ids,
        merges=vocabulary.merges() if has_merges else _merges_by_score(vocabulary),
        unk_token=_unknown_token(vocabulary),
        fuse_unk=True,
        byte_fallback=_has_byte_pieces(vocabulary),
    )
    return _sentencepiece(model, vocabulary)


def _unigram(vocabulary: GgufVocabulary) -> tokenizers.Tokenizer:
    unknown = vocabulary.tokens_of_type(TokenType.UNKNOWN)
    if not vocabulary.scores or not unknown:
        raise TokenizerError(
            "a unigram tokenizer needs tokenizer.ggml.scores and one token of the unknown type"
        )
    model = models.Unigram(
        list(zip(vocabulary.tokens, vocabulary.scores, strict=True)),
        unk_id=vocabulary.ids[unknown[0]],
        byte_fallback=_has_byte_pieces(vocabulary),
    )
    return _sentencepiece(model, vocabulary)


_BUILDERS: dict[str, Callable[[GgufVocabulary], tokenizers.Tokenizer]] = {
    "gpt2": _byte_level_bpe,
    "llama": _sentencepiece_bpe,
    "t5": _unigram,
}


def _sentencepiece(model: models.Model, vocabulary: GgufVocabulary) -> tokenizers.Tokenizer:
    backend = tokenizers.Tokenizer(model)
    backend.normalizer = _sentencepiece_normalizer(vocabulary)
    backend.decoder = _sentencepiece_decoder(vocabulary)
    return backend


def _sentencepiece_normalizer(vocabulary: GgufVocabulary) -> normalizers.Normalizer:
    """What happens to text before merging.

    It runs on each piece between added tokens, so that every piece gets the space prefix: this is
    what llama.cpp, whose format GGUF is, does as well.
    """
    steps = [*_character_map(vocabulary), *_whitespace_steps(vocabulary)]
    if _has_space_prefix(vocabulary):
        steps.append(normalizers.Prepend(_SPACE_MARK))
    return normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE_MARK)])


def _sentencepiece_decoder(vocabulary: GgufVocabulary) -> decoders.Decoder:
    steps = [decoders.Replace(_SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if _has_space_prefix(vocabulary):
        steps.append(decoders.Strip(" ", 1, 0))
    return decoders.Sequence(steps)


def _has_space_prefix(vocabulary: GgufVocabulary) -> bool:
    return vocabulary.switch("add_space_prefix", True)


def _whitespace_steps(vocabulary: GgufVocabulary) -> list[normalizers.Normalizer]:
    if not vocabulary.switch("remove_extra_whitespaces", False):
        return []
    return [normalizers.Replace(Regex("^ +| +$"), ""), normalizers.Replace(Regex(" {2,}"), " ")]


def _character_map(vocabulary: GgufVocabulary) -> list[normalizers.Normalizer]:
    charsmap = vocabulary.metadata.get("tokenizer.ggml.precompiled_charsmap")
    if charsmap is None:
        return []
    values = charsmap.tolist() if hasattr(charsmap, "tolist") else charsmap
    if not isinstance(values, list | tuple | bytes) or not all(
        isinstance(value, int) and -128 <= value < 256 for value in values
    ):
        raise TokenizerError("tokenizer.ggml.precompiled_charsmap must be a list of bytes")
    return [normalizers.Precompiled(bytes(value % 256 for value in values))] if values else []


def _merges_by_score(vocabulary: GgufVocabulary) -> list[tuple[str, str]]:
    """SentencePiece keeps scores instead of merges: joining two pieces ranks as their sum does."""
    if not vocabulary.scores:
        raise TokenizerError(
            "tokenizer.ggml.scores is missing, and there are no merges either: "
            "the file does not say how to join its tokens"
        )
    known = vocabulary.ids
    found = [
        (-vocabulary.scores[token_id], token_id, known[token[:cut]], token[:cut], token[cut:])
        for token, token_id in known.items()
        if vocabulary.types[token_id] != TokenType.BYTE
        for cut in range(1, len(token))
        if token[:cut] in known and token[cut:] in known
    ]
    return [(left, right) for *_, left, right in sorted(found)]


def _has_byte_pieces(vocabulary: GgufVocabulary) -> bool:
    known = vocabulary.ids
    return all(piece in known for piece in _BYTE_PIECES)


def _unknown_token(vocabulary: GgufVocabulary) -> str | None:
    token_id = vocabulary.token_id("unknown_token_id")
    if token_id is not None:
        return vocabulary.tokens[token_id]
    return next(iter(vocabulary.tokens_of_type(TokenType.UNKNOWN)), None)


def _add_tokens(backend: tokenizers.Tokenizer, vocabulary: GgufVocabulary) -> None:
    """Tokens that are found in the raw text, before anything is split or normalised."""
    special = [
        *vocabulary.tokens_of_type(TokenType.CONTROL),
        *vocabulary.tokens_of_type(TokenType.UNKNOWN),
    ]
    backend.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in special])
    defined = vocabulary.tokens_of_type(TokenType.USER_DEFINED)
    # Runs of spaces are written with marks, which raw text does not have: merging reaches them.
    plain = [token for token in defined if token.strip(_SPACE_MARK)]
    backend.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])


def _chat_templates(metadata: Mapping[str, object]) -> dict[str, str]:
    """`tokenizer.chat_template` is the default; `tokenizer.chat_template.NAME` are named ones."""
    key = "tokenizer.chat_template"
    templates = {}
    for name, value in metadata.items():
        is_named = name.startswith(key + ".")
        if name != key and not is_named:
            continue
        if not isinstance(value, str):
            raise TokenizerError(f"{name} must be a string, got {type(value).__name__}")
        templates[name.removeprefix(key + ".") if is_named else "default"] = value
    return templates
