"""Where a server listens: TLS, a Unix socket, and sentences where it cannot."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import httpx
import pytest

from headway.cli.listening import ListenError, listening
from headway.server.config import ServerConfig
from tests.cli.live_process import command, free_port
from tests.cli.test_leaving import wait_for


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A key and a certificate that it signed itself."""
    directory = tmp_path_factory.mktemp("tls")
    key, certificate = directory / "key.pem", directory / "cert.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    words += ["-nodes", "-days", "1", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1"]
    words += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True)
    return key, certificate


def tls_flags(pair: tuple[Path, Path]) -> list[str]:
    return ["--ssl-keyfile", str(pair[0]), "--ssl-certfile", str(pair[1])]


def test_tls_and_json_logs(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    port = free_port()
    flags = ["--port", str(port), "--log-format", "json", *tls_flags(pair)]
    process = subprocess.Popen(command(tmp_path / "log", flags), stderr=subprocess.PIPE, text=True)
    url = f"https://127.0.0.1:{port}"
    trusting = ssl.create_default_context(cafile=str(pair[1]))
    with httpx.Client(verify=trusting) as client:
        wait_for(lambda: answers(client, url + "/health"), 20)
        body = {"prompt": "abc", "max_tokens": 3}
        answer = client.post(url + "/v1/completions", json=body)
        assert answer.json()["choices"][0]["text"] == "abc"
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(url + "/health")
    with socket.create_connection(("127.0.0.1", port)) as plain:
        plain.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" not in plain.recv(4096)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 0
    entries = [json.loads(line) for line in said.splitlines()]
    assert any(f"Listening on {url}" in entry["message"] for entry in entries)
    visits = [entry for entry in entries if entry["logger"] == "headway.access"]
    assert visits[-1]["path"] == "/v1/completions"
    assert visits[-1]["status"] == 200
    assert "uvicorn.error" in {entry["logger"] for entry in entries}


def test_clients_certificates(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    port = free_port()
    flags = ["--port", str(port), *tls_flags(pair)]
    flags += ["--ssl-ca-certs", str(pair[1]), "--ssl-cert-reqs", "2"]
    process = subprocess.Popen(command(tmp_path / "log", flags), stderr=subprocess.DEVNULL)
    url = f"https://127.0.0.1:{port}/health"
    known = ssl.create_default_context(cafile=str(pair[1]))
    known.load_cert_chain(pair[1], pair[0])
    with httpx.Client(verify=known) as client:
        wait_for(lambda: answers(client, url), 20)
    unknown = ssl.create_default_context(cafile=str(pair[1]))
    with httpx.Client(verify=unknown) as client, pytest.raises(httpx.HTTPError):
        client.get(url)
    process.terminate()
    assert process.wait(10) == 0


def test_unix_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(str(path))
    words = command(tmp_path / "log", ["--uds", str(path)])
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(path))) as client:
        wait_for(lambda: answers(client, "http://local/health"), 20)
        body = {"prompt": "abc", "max_tokens": 3}
        answer = client.post("http://local/v1/completions", json=body)
        assert answer.json()["choices"][0]["text"] == "abc"
    again = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert again.returncode == 2
    assert again.stderr == f"headway serve: cannot listen on {path}: Address already in use\n"
    process.terminate()
    _, said = process.communicate(timeout=10)
    assert process.returncode == 0
    assert f"Listening on unix:{path}" in said
    assert not path.exists()


def test_keys_that_do_not_fit_are_one_sentence(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    empty = tmp_path / "empty"
    empty.write_text("")
    for key, certificate in ((pair[1], pair[0]), (empty, pair[1])):
        config = ServerConfig(port=0, ssl_keyfile=key, ssl_certfile=certificate)
        with pytest.raises(ListenError, match="TLS cannot be set up"), listening(config):
            pass


def answers(client: httpx.Client, url: str) -> bool:
    try:
        return client.get(url).status_code == 200
    except httpx.HTTPError:
        return False
