"""A tokenizer from a model directory in the Hugging Face layout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import tokenizers
from tokenizers import AddedToken

from headway.text.tokenizer import Tokenizer, TokenizerError, call_library
from headway.text.tokenizer_parts import bos_eos_template

_MAX_FILE_BYTES = 512 * 2**20


def load_tokenizer_dir(path: str | Path) -> Tokenizer:
    """Read `tokenizer.json` and the files beside it.

    Raises TokenizerError when a file is missing, damaged, or says something impossible.
    """
    folder = Path(path)
    config = _read_object(folder / "tokenizer_config.json")
    special_map = _read_object(folder / "special_tokens_map.json")
    backend = _read_backend(folder)
    _add_configured_tokens(backend, config)
    bos_id = _special_id(backend, config, special_map, "bos_token")
    eos_id = _special_id(backend, config, special_map, "eos_token")
    if backend.post_processor is None:
        template = bos_eos_template(
            backend,
            bos_id if config.get("add_bos_token") is True else None,
            eos_id if config.get("add_eos_token") is True else None,
        )
        if template is not None:
            backend.post_processor = template
    return Tokenizer(
        backend,
        bos_token_id=bos_id,
        eos_token_id=eos_id,
        end_token_ids={} if eos_id is None else {"eos_token": eos_id},
        chat_templates=_chat_templates(folder, config),
    )


def _read_backend(folder: Path) -> tokenizers.Tokenizer:
    file = folder / "tokenizer.json"
    if not file.is_file():
        raise TokenizerError(
            f"there is no tokenizer.json in {folder}: save the model's tokenizer in the fast "
            "format (transformers' save_pretrained does), or name another with --tokenizer"
        )
    text = _read_text(file)
    return call_library(lambda: tokenizers.Tokenizer.from_str(text), f"{file} is not a tokenizer")


def _read_object(file: Path) -> Mapping[str, object]:
    """The JSON object in `file`; an empty one when there is no such file."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(_read_text(file))
    except (ValueError, RecursionError) as error:
        raise TokenizerError(f"{file} is not valid JSON: {error}") from error
    if not isinstance(value, dict):
        raise TokenizerError(f"{file} must hold a JSON object, got {type(value).__name__}")
    return value


def _read_text(file: Path) -> str:
    if file.stat().st_size > _MAX_FILE_BYTES:
        raise TokenizerError(f"{file} is larger than {_MAX_FILE_BYTES >> 20} MiB: refused")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise TokenizerError(f"{file} is not UTF-8 text: {error}") from error


def _add_configured_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, object]) -> None:
    """Tokens that only `tokenizer_config.json` lists, in the order of their ids."""
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, Mapping):
        raise TokenizerError("added_tokens_decoder in tokenizer_config.json must be an object")
    known = backend.get_added_tokens_decoder()
    for token_id, entry in sorted((_as_id(key), entry) for key, entry in listed.items()):
        if token_id not in known:
            _add_token(backend, token_id, entry)


def _as_id(key: object) -> int:
    if not isinstance(key, str) or not (key.isascii() and key.isdigit()):
        raise TokenizerError(f"added_tokens_decoder has {key!r} where a token id should be")
    return int(key)


def _add_token(backend: tokenizers.Tokenizer, token_id: int, entry: object) -> None:
    content = entry.get("content") if isinstance(entry, Mapping) else None
    if not isinstance(entry, Mapping) or not isinstance(content, str):
        raise TokenizerError(f"added_tokens_decoder[{token_id}] has no content")
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    token = AddedToken(content, **{flag: bool(entry.get(flag, False)) for flag in flags})
    backend.add_tokens([token])
    if backend.token_to_id(content) != token_id:
        raise TokenizerError(
            f"tokenizer_config.json gives {content!r} the id {token_id}, "
            f"but tokenizer.json makes it {backend.token_to_id(content)}: "
            "the two files do not belong together"
        )


def _special_id(
    backend: tokenizers.Tokenizer,
    config: Mapping[str, object],
    special_map: Mapping[str, object],
    name: str,
) -> int | None:
    """The id of the token called `name`; the token is marked special."""
    entry = config.get(name) or special_map.get(name)
    content = entry.get("content") if isinstance(entry, Mapping) else entry
    if content is None:
        return None
    if not isinstance(content, str):
        raise TokenizerError(f"{name} in tokenizer_config.json must be a string")
    token_id = backend.token_to_id(content)
    if token_id is None:
        raise TokenizerError(f"{name} is {content!r}, which is no token of tokenizer.json")
    added = backend.get_added_tokens_decoder().get(token_id)
    if added is None or not added.special:
        backend.add_special_tokens([AddedToken(content, special=True, normalized=False)])
    return token_id


def _chat_templates(folder: Path, config: Mapping[str, object]) -> dict[str, str]:
    """Files of their own come before what `tokenizer_config.json` says."""
    templates = _configured_templates(config.get("chat_template"))
    in_json = _read_object(folder / "chat_template.json").get("chat_template")
    if isinstance(in_json, str):
        templates["default"] = in_json
    if (folder / "chat_template.jinja").is_file():
        templates["default"] = _read_text(folder / "chat_template.jinja")
    for file in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        templates[file.stem] = _read_text(file)
    return templates


def _configured_templates(value: object) -> dict[str, str]:
    if value is None:
        return {}
    if isinstance(value, str):
        return {"default": value}
    entries = value if isinstance(value, list) else [value]
    templates = {}
    for entry in entries:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        source = entry.get("template") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or not isinstance(source, str):
            raise TokenizerError(
                "chat_template in tokenizer_config.json must be a string, "
                "or a list of objects with name and template"
            )
        templates[name] = source
    return templates
