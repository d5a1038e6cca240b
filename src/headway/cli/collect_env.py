"""`headway collect-env`: what a report of a fault should say about software and machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence

from headway.cli.help import print_about

_ABOUT = """\
usage: headway collect-env [--json]

Prints versions, processor, instruction set, memory and threads, for a report of a fault. Nothing is
fetched and no model is loaded. Of environment variables only those that concern Headway are shown,
and of keys and tokens only that they are set."""
PACKAGES = (
    "numpy",
    "tokenizers",
    "safetensors",
    "jinja2",
    "huggingface-hub",
    "msgspec",
    "pyzmq",
    "fastapi",
    "uvicorn",
    "prometheus-client",
    "rich",
    "httpx",
    "PyYAML",
    "zstandard",
)
_OPTIONAL = ("matplotlib", "opentelemetry-sdk", "torch")
_SHOWN = ("HEADWAY_", "VLLM_", "OMP_", "OPENBLAS_", "MALLOC_", "LD_PRELOAD", "GLIBC_TUNABLES")
_SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD")
_UNSHOWN_BUT_SET = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")

Section = Mapping[str, str]


def main(argv: Sequence[str]) -> int:
    if "--help" in argv or "-h" in argv:
        print_about(_ABOUT)
        return 0
    others = [word for word in argv if word != "--json"]
    if others:
        print(f"headway collect-env: takes --json or nothing, not {others[0]!r}", file=sys.stderr)
        return 2
    sections = collected(os.environ)
    if "--json" in argv:
        print(json.dumps(sections, indent=1))
    else:
        print("\n\n".join("\n".join(_lines(*section)) for section in sections.items()))
    return 0


def collected(environ: Mapping[str, str]) -> dict[str, Section]:
    """Sections by title, their facts by name."""
    return {
        "Software": _software(),
        "Machine": _machine(),
        "Kernels": _kernels(),
        "Environment": dict(_variables(environ)),
    }


def _lines(title: str, facts: Section) -> Iterator[str]:
    yield title
    if not facts:
        yield "  nothing set"
    width = max(map(len, facts), default=0)
    for name, value in facts.items():
        yield f"  {name:<{width}}  {value}"


def _software() -> Section:
    from headway import __version__

    return {
        "headway": __version__,
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": platform.platform(),
        **{name: _version(name) for name in PACKAGES},
        **{f"{name} (optional)": _version(name) for name in _OPTIONAL},
    }


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _machine() -> Section:
    from headway.cli.machine import processor_name
    from headway.engine.sizing import available_memory_bytes

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "processor": f"{processor_name()} ({platform.machine()})",
        "processors": f"{os.cpu_count()}, of which this process may use "
        f"{len(os.sched_getaffinity(0))}",
        "memory": f"{_gib(total)}, of which this process could get "
        f"{_gib(available_memory_bytes())}",
        "huge pages": _setting("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / (1 << 30):.1f} GiB"


def _setting(path: str) -> str:
    """Of a choice of the kernel's, as `always [madvise] never`."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read(200).strip()
    except (OSError, UnicodeDecodeError):
        return "not told"


def _kernels() -> Section:
    from headway.ops import select

    try:
        ops, why = select.choose()
        chosen = f"{ops.name}: {why}"
    except (ImportError, ValueError) as error:
        chosen = f"none: {error}"
    return {"chosen": chosen, "can run": _instruction_sets()}


def _instruction_sets() -> str:
    try:
        from headway.ops.cpu.backend import available_isas
    except ImportError:
        return "none: the cpu kernels are not built"
    return ", ".join(available_isas())


def _variables(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(environ):
        if name in _UNSHOWN_BUT_SET or (
            name.startswith(_SHOWN) and any(word in name.upper() for word in _SECRET)
        ):
            yield name, "set, not shown"
        elif name.startswith(_SHOWN):
            yield name, repr(environ[name])
