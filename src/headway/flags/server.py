"""The flags of ServerConfig."""

from __future__ import annotations

from headway.flags.kinds import Flag, Section
from headway.flags.values import (
    parse_buckets,
    parse_bytes,
    parse_count,
    parse_file,
    parse_header,
    parse_int,
    parse_object,
    parse_paths,
    parse_seconds,
    parse_size,
    parse_template,
    parse_words,
)
from headway.server.config import (
    CONTENT_FORMATS,
    FINGERPRINT_MODES,
    LOG_FORMATS,
    LOG_LEVELS,
    QUEUE_FULL_STATUSES,
)

_server = Section("server")
_value, _choice, _switch, _object = (
    _server.value,
    _server.choice,
    _server.switch,
    _server.object,
)

_LISTENING = (
    _value("--host", str, "Address to listen on.", "HOST"),
    _value("--port", parse_int, "Port to listen on.", "PORT"),
    _value("--uds", str, "Unix domain socket to listen on instead of host and port.", "PATH"),
    _value("--root-path", str, "Prefix that a proxy puts before every path.", "PATH"),
    _value("--ssl-keyfile", parse_file, "Private key for TLS.", "FILE"),
    _value("--ssl-certfile", parse_file, "Certificate for TLS.", "FILE"),
    _value("--ssl-ca-certs", parse_file, "Who may sign clients' certificates.", "FILE"),
    _value(
        "--ssl-cert-reqs",
        parse_int,
        "Clients' certificates: 0 none, 1 checked if sent, 2 required.",
        "0|1|2",
    ),
    _value("--ssl-ciphers", str, "Ciphers of TLS 1.2, in OpenSSL's words.", "LIST"),
)
_COMING_IN = (
    _value(
        "--api-key",
        str,
        "Keys that clients must send one of, for all but health.",
        "KEY",
        repeats=True,
    ),
    _value("--api-key-file", parse_file, "File of more keys, one a line, # for comments.", "FILE"),
    _switch("--open-metrics", "Whether /metrics needs no key."),
    _value(
        "--allowed-origins",
        parse_words,
        "Origins whose pages may call this server, or a JSON list; * is all of them.",
        "ORIGIN",
        repeats=True,
    ),
    _value("--allowed-methods", parse_words, "Methods for such pages.", "METHOD", repeats=True),
    _value("--allowed-headers", parse_words, "Headers for such pages.", "HEADER", repeats=True),
    _switch("--allow-credentials", "Whether such pages may send credentials."),
    _value(
        "--middleware",
        str,
        "Import path of an ASGI class or a coroutine function to put round the server.",
        "PATH",
        repeats=True,
    ),
)
_BRAKES = (
    _value(
        "--max-num-queued-reqs",
        parse_size,
        "Most sequences in flight, waiting or running; n choices count n.",
    ),
    _value(
        "--max-num-queued-tokens",
        parse_size,
        "Prompt tokens still to compute at which nothing more is taken.",
    ),
    _value(
        "--max-tenant-queued-reqs",
        parse_size,
        "Most sequences of one tenant in flight; n choices count n.",
    ),
    _value(
        "--max-tenant-queued-tokens",
        parse_size,
        "Prompt tokens of one tenant before their first output at which no more of it is taken.",
    ),
    _value(
        "--tenant-header",
        parse_header,
        "Header that names the tenant: x-tenant-id, or with several keys none: the key is one.",
        "NAME|none",
    ),
    _choice(
        "--queue-full-status",
        QUEUE_FULL_STATUSES,
        "What a refused client is told.",
        "STATUS",
        int,
    ),
    _value("--max-queue-time-s", parse_seconds, "Longest wait before a first token.", "SECONDS"),
    _value("--max-request-seconds", parse_seconds, "Longest run, from first admission.", "SECONDS"),
    _value(
        "--default-deadline-s",
        parse_seconds,
        "Time from arrival to end of requests that name none (x-request-deadline).",
        "SECONDS",
    ),
    _value("--max-body-bytes", parse_bytes, "Longest body.", "BYTES"),
    _switch(
        "--clamp-max-tokens", "Whether max_tokens is cut to what the context leaves, not refused."
    ),
    _value("--max-connections", parse_size, "Most open connections."),
    _value("--h11-max-incomplete-event-size", parse_bytes, "Longest headers.", "BYTES"),
    _value(
        "--http-read-timeout-s",
        parse_seconds,
        "For a request to come in whole; a body gets more at 16 KiB/s.",
        "SECONDS",
    ),
    _value(
        "--http-write-timeout-s",
        parse_seconds,
        "For a client that reads nothing of its answer.",
        "SECONDS",
    ),
)
_TEXTS = (
    _value("--tokenizer", str, "Directory of another tokenizer.", "DIR"),
    _value("--chat-template", parse_template, "Another chat template: a file or a text.", "FILE"),
    _choice(
        "--chat-template-content-format", CONTENT_FORMATS, "How templates get content.", "FORMAT"
    ),
    _object("--default-chat-template-kwargs", parse_object, "Variables for the chat template."),
    _switch("--trust-request-chat-template", "Whether requests may bring a chat template."),
    _value("--response-role", str, "Role of the answer.", "ROLE"),
    _value(
        "--generation-config",
        str,
        "Where sampling defaults come from: auto (the model), vllm (none), or a directory.",
        "auto|vllm|DIR",
    ),
    _object("--override-generation-config", parse_object, "Sampling defaults above those."),
)
_ANSWERS = (
    _switch("--return-tokens-as-token-ids", "Whether logprobs name tokens as token_id:N."),
    _switch("--enable-force-include-usage", "Whether every answer has its usage."),
    _switch("--enable-per-request-metrics", "Whether every answer has its times."),
    _switch("--enable-request-id-headers", "Whether answers have X-Request-Id."),
    _switch("--enable-tokenizer-info-endpoint", "Whether there is /tokenizer_info."),
    _switch("--enable-dev-endpoints", "Whether there is /reset_prefix_cache."),
    _switch("--disable-fastapi-docs", "Leave out /docs, /redoc and /openapi.json."),
    _value("--stream-interval", parse_int, "Tokens of a choice between two chunks."),
    _choice("--fingerprint-mode", FINGERPRINT_MODES, "What system_fingerprint says.", "MODE"),
    _value("--fingerprint-value", str, "What it says in mode custom.", "TEXT"),
)
_TELLING = (
    _switch("--disable-log-stats", "Leave out the line of figures every ten seconds."),
    _choice("--uvicorn-log-level", LOG_LEVELS, "How much the HTTP server says.", "LEVEL"),
    _choice("--log-format", LOG_FORMATS, "Lines of text, or one JSON object a line.", "FORMAT"),
    _switch("--disable-uvicorn-access-log", "Leave out the line for each request."),
    _value(
        "--disable-access-log-for-endpoints",
        parse_paths,
        "Paths that get no such line, as /health,/metrics.",
        "PATHS",
    ),
    _switch("--enable-log-requests", "Log each request's parameters, without its text."),
    _value("--max-log-len", parse_count, "Characters of each prompt to log with them."),
    _value("--otlp-traces-endpoint", str, "Where to send OpenTelemetry spans.", "URL"),
    _value(
        "--explain-buffer",
        parse_count,
        "Requests that are over and can still be explained; 0 explains none.",
    ),
    _object(
        "--custom-histogram-buckets", parse_buckets, "Bounds by family, in place of the usual."
    ),
)
_LIFE = (
    _value(
        "--shutdown-timeout",
        parse_count,
        "Seconds that running requests get to finish after SIGTERM.",
        "SECONDS",
    ),
    _value(
        "--health-timeout-s",
        parse_seconds,
        "After how long without a sign of progress the engine counts as hung.",
        "SECONDS",
    ),
    _value(
        "--engine-restart-limit",
        parse_count,
        "Deaths of the engine in a row before it is given up; always restarted unless given.",
    ),
)
SERVER_FLAGS: tuple[Flag, ...] = (
    *_LISTENING,
    *_COMING_IN,
    *_BRAKES,
    *_TEXTS,
    *_ANSWERS,
    *_TELLING,
    *_LIFE,
)
