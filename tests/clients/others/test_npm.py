"""The openai package of npm: its lock file is installed and its tests run by node."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from benchmarks.load.server import Server

from tests.clients.waiting import is_soon_idle

_FOLDER = Path(__file__).parent / "npm"


def test_openai_of_npm(tmp_path: Path, server: Server, base_url: str, model: str) -> None:
    folder = tmp_path / "npm"
    shutil.copytree(_FOLDER, folder, ignore=shutil.ignore_patterns("node_modules"))
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=folder, check=True)
    environment = {**os.environ, "HEADWAY_URL": base_url, "HEADWAY_MODEL": model}
    done = subprocess.run(
        ["node", "--test", "client.test.mjs"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert is_soon_idle(server)
