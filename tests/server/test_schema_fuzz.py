"""Requests made from the server's own schema, good and bad: no fault, every error of its shape."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.server.bench import LiveServer, live_server
from tests.server.test_openapi import PATHS

CHECKS = [
    schemathesis.checks.not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    directory = tmp_path_factory.mktemp("open")
    with live_server(
        directory, is_debug=True, enable_tokenizer_info_endpoint=True, clamp_max_tokens=True
    ) as live:
        yield live


@pytest.fixture(scope="module")
def api(open_server: LiveServer) -> schemathesis.BaseSchema:
    return schemathesis.openapi.from_url(f"{open_server.url}/openapi.json")


OPERATIONS = [(path, method) for path, methods in PATHS.items() for method in sorted(methods)]


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_no_request_makes_a_fault(
    open_server: LiveServer,
    api: schemathesis.BaseSchema,
    path: str,
    method: str,
    mode: schemathesis.GenerationMode,
) -> None:
    num_examples = 60 if method == "post" else 8

    @settings(
        max_examples=num_examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=api[path][method].as_strategy(generation_mode=mode))
    def check(case: schemathesis.Case) -> None:
        case.call_and_validate(base_url=open_server.url, checks=CHECKS, timeout=20)

    try:
        check()
    except Unsatisfiable:
        assert mode is schemathesis.GenerationMode.NEGATIVE  # nothing can be wrong here


def test_the_server_still_answers(open_server: LiveServer) -> None:
    assert open_server.client.health().is_ok
