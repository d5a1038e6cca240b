"""A minute of load by guidellm, with its synthetic data."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.load.server import Server

from tests.clients.others.tokenizer_folder import write_tokenizer
from tests.clients.waiting import is_soon_idle

_SECONDS = 60


@pytest.mark.timeout(300)
def test_a_minute_of_load(tmp_path: Path, server: Server, model: str) -> None:
    report = tmp_path / "report.json"
    words = [
        *(str(Path(sys.executable).parent / "guidellm"), "run", "--disable-console"),
        *("--backend", f"kind=openai_http,target={server.url},model={model}"),
        *("--profile", "kind=concurrent,streams=8"),
        *("--constraint", f"kind=max_duration,seconds={_SECONDS}"),
        *("--tokenizer", f"kind=huggingface_auto,model={write_tokenizer(tmp_path)}"),
        *("--data", "kind=synthetic_text,prompt_tokens=64,output_tokens=16"),
        *("--output", f"kind=json,path={report}"),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    totals = benchmark["metrics"]["request_totals"]
    assert totals["errored"] == 0
    assert totals["successful"] > 8
    for request in benchmark["requests"]["successful"]:
        assert request["output_metrics"]["text_tokens"] == 16
    assert is_soon_idle(server)
