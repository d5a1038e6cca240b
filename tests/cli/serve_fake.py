"""`headway serve` with the fake engine: LOG SERVER_FLAGS_AS_JSON_LIST [engine flags]."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace

from headway.cli.parsing import parse_flags
from headway.cli.serve import serve
from headway.engine.config import EngineConfig
from headway.server.config import ServerConfig
from headway.text.chat_template import ChatTemplate
from tests.server import fake_engine
from tests.server.bench import TEMPLATE, byte_tokenizer


def open_text(engine: EngineConfig, server: ServerConfig) -> SimpleNamespace:
    return SimpleNamespace(
        tokenizer=byte_tokenizer(),
        template=ChatTemplate(TEMPLATE),
        stop_ids=("256 '<|end|>' (test)",),
        stop_token_ids=frozenset({256}),
        sampling_defaults={},
    )


if __name__ == "__main__":
    log, server_flags, *flags = sys.argv[1:]
    engine, server = parse_flags(json.loads(server_flags)).configs()
    start = fake_engine.start(Path(log), *flags)
    sys.exit(serve(engine, server, start_engine=start, open_text=open_text))
