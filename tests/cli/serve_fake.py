"""`headway serve` with the fake engine: PORT LOG SHUTDOWN_TIMEOUT [engine flags]."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

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
    port, log, timeout, *flags = sys.argv[1:]
    config = ServerConfig(host="127.0.0.1", port=int(port), shutdown_timeout=int(timeout))
    start = fake_engine.start(Path(log), *flags)
    sys.exit(serve(EngineConfig(), config, start_engine=start, open_text=open_text))
