"""How byte-level BPE cuts text into words before merging: one list of expressions per kind.

A GGUF file names the kind in `tokenizer.ggml.pre`. The expressions are applied one after the other
to the pieces that the ones before left; both matches and gaps stay as pieces. They are facts about
the published tokenizers, so that a kind that is not listed here is refused and never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SUFFIX = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LLAMA3 = rf"{_SUFFIX}|{_WORD}|\p{{N}}{{1,3}}|{_SYMBOLS}|{_SPACE}"
_QWEN2 = rf"{_SUFFIX}|{_WORD}|\p{{N}}|{_SYMBOLS}|{_SPACE}"
_QWEN35 = (
    rf"{_SUFFIX}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    rf"| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACE}"
)
# Words that are cut where lower case turns to upper case.
_LOWER_END = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
_UPPER_START = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
_SYMBOLS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_LOWER_END}|{_UPPER_START}|\p{{N}}|{_SYMBOLS_SLASH}|{_SPACE}"
_GPT4O = (
    rf"{_LOWER_END}{_SUFFIX}?|{_UPPER_START}{_SUFFIX}?"
    rf"|\p{{N}}{{1,3}}|{_SYMBOLS_SLASH}|{_SPACE}"
)
_DEEPSEEK3_WORD = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
    r"|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_SPACE}"
)
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_CJK_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c" + r")]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`ignore_merges`: a word that is a token stays whole, whatever the merges say.

    `adds_bos` holds where the file does not say whether texts begin with the BOS token.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    adds_bos: bool = False


_BY_KINDS: dict[tuple[str, ...], PreTokenizer] = {
    ("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "trillion"): PreTokenizer((_GPT2,)),
    ("default",): PreTokenizer(
        (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    ),
    ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"): (
        PreTokenizer((r"\p{N}", _GPT2))
    ),
    ("falcon",): PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]")),
    ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"): (
        PreTokenizer((_LLAMA3,), ignore_merges=True, adds_bos=True)
    ),
    ("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"): PreTokenizer((_LLAMA3,)),
    ("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez", "kormo"): (
        PreTokenizer((_QWEN2,))
    ),
    ("qwen35",): PreTokenizer((_QWEN35,)),
    ("tekken",): PreTokenizer((_TEKKEN,), ignore_merges=True, adds_bos=True),
    ("gpt-4o", "llama4", "kanana2", "minimax-m2"): PreTokenizer((_GPT4O,)),
    ("deepseek-llm",): PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", _CJK, r"\p{N}+"),
    ),
    ("deepseek-coder",): PreTokenizer(
        (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, r"\p{N}"),
    ),
    ("deepseek-v3",): PreTokenizer((r"\p{N}{1,3}", _CJK_KANA, _DEEPSEEK3_WORD)),
    ("bloom", "poro-chat", "gpt3-finnish"): PreTokenizer((_BLOOM,)),
    ("viking",): PreTokenizer((_BLOOM, r"\p{N}")),
}

PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    kind: pre_tokenizer for kinds, pre_tokenizer in _BY_KINDS.items() for kind in kinds
}
