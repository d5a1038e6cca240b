"""How log lines look: text, or one JSON object a line, for every logger of the process."""

from __future__ import annotations

import datetime
import json
import logging
import sys
import threading
from typing import IO

_LOGGERS = ("headway", "headway.access", "uvicorn", "uvicorn.error", "uvicorn.access", "asyncio")
_EXTRAS = ("method", "path", "status", "ms", "request_id")


class JsonFormatter(logging.Formatter):
    """time, level, logger, message; `exception` where there is one, and the access log's fields."""

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        entry: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in _EXTRAS if hasattr(record, name)}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


def set_up_logging(level: str, log_format: str) -> None:
    """All loggers to stderr in one format. `level` is uvicorn's and the access log's; Headway's
    own lines are shown from info up, or from debug.
    """
    stream = logging.StreamHandler(sys.stderr)
    if log_format == "json":
        stream.setFormatter(JsonFormatter())
    else:
        stream.setFormatter(logging.Formatter("%(levelname)s %(asctime)s %(message)s"))
    logging.root.handlers[:] = [stream]
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    is_debug = level in ("debug", "trace")
    logging.getLogger("headway").setLevel(logging.DEBUG if is_debug else logging.INFO)
    access_level = logging.DEBUG if level == "trace" else getattr(logging, level.upper())
    logging.getLogger("headway.access").setLevel(access_level)


def relay(lines: IO[bytes]) -> None:
    """What another process writes to its stderr becomes our log lines, until it ends."""

    def run() -> None:
        log = logging.getLogger("headway.engine")
        with lines:
            for line in lines:
                log.warning("%s", line.decode(errors="replace").rstrip())

    threading.Thread(target=run, daemon=True, name="engine-stderr").start()
