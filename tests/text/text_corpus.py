# ruff: noqa: RUF001  (look-alike characters are what these texts are for)
"""Texts that tokenizers and detokenizers have been seen to get wrong."""

from __future__ import annotations

NASTY_TEXTS = [
    "",
    " ",
    "  ",
    "\n",
    "\r\n\r\n \t\t x\r",
    "Hello, world! It's 3.14159 o'clock; they'LL DON'T we'Ve",
    "   leading and trailing   ",
    "a\u0301e\u0308\u0323 combining \u0915\u094d\u0937\u093f \u0e01\u0e33",
    "naïve café ẞ ﬁ Ω Å ǅ ʰ",
    "日本語とカタカナ、漢字。한국어 문장입니다. 中文，测试！",
    "👩‍👩‍👧‍👦 👍🏽 🇩🇪🇫🇷 ❤️‍🔥 \U0001f9d1\u200d\U0001f680",
    "שלום עולם مرحبا بالعالم \u202eRTL\u202c ؟، ۔",
    "\x00\x01\x02\x07\x1b[31m\x7f\x80\x9f\xa0\xad",
    "\u2028\u2029\u3000\u200b\ufeff\u00a0x\u1680y",
    "1234567890123456789012345678901234567890 ٣٤٥ ²³ ½ Ⅷ 一二三 007",
    "def f(x):\n\tif x == 0:\n\t\treturn [1, 2]\n    # comment\n\n\n\nclass A_b: pass\r\n",
    "<|im_start|>user\nx<|im_end|><|endoftext|><s></s><unk><0x41>▁ ▁▁x",
    "\U00010000\U0001d538\U000e0041\U000f0000\U0010ffff\ufffd\uffff",
    "CamelCaseWORDSmixedUp HTTPServer2 x/y//z\n/ ../..\n",
    "$^~|`<=>+ ((a)) {{b}} [[c]] !!!??? ... --- ___ 'tis ''s",
    "ꙮ ᚠᛇᚻ 𒀀 𝔘𝔫𝔦 ﷽ 🂡",
    "x" * 300 + " " * 70 + "\n" * 40 + "=" * 65,
]

# Characters for random strings: every plane, and those that join, combine or turn direction.
HARD_CHARACTERS = "aé ▁\t\n0٣日한글字👍🏽\u200d🇩🇪\u0301שم\ufffd\U00010000\U000f0000\U0010ffff<>"

TRAINING_TEXTS = [
    "The quick brown fox jumps over the lazy dog. It's what they'll do, 1234 times or 56,789!",
    "def total(values):\n    return sum(v for v in values if v > 0)\n\nprint(total([1, 2, 3]))\n",
    "日本語の文章と漢字。한국어 문장입니다. 中文测试，数字一二三。 Привет, мир! Здравствуй.",
    "naïve café déjà vu; Größe, Straße; HTTPServer camelCase WORDS mixedUp   spaces    here",
] * 8
