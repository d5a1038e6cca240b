"""`headway plan --usage`: lengths, rate and max_tokens of answers as they were."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.cli.plan_usage import demand_of_usage
from headway.flags import FlagError

WORDS = ["plan", "Qwen3-8B", "--hardware", "h100", "--json", "-"]


def answer(prompt: int | None, output: int, at_s: float, reason: str = "stop") -> dict[str, Any]:
    usage: dict[str, Any] = {"completion_tokens": output}
    if prompt is not None:
        usage["prompt_tokens"] = prompt
    return {
        "object": "text_completion",
        "created": at_s,
        "usage": usage,
        "choices": [{"index": 0, "text": "x", "finish_reason": reason}],
    }


def saved(folder: Path, answers: Sequence[dict[str, Any]]) -> str:
    path = folder / "usage.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in answers))
    return str(path)


def test_prompts_keep_their_outputs_and_the_rate_is_that_of_the_answers(tmp_path: Path) -> None:
    day = [answer(1000, 10, 1.7e9 + 2 * n) for n in range(60)]
    day += [answer(10, 400, 1.7e9 + 2 * n + 1) for n in range(60)]
    demand, rate, notes = demand_of_usage({"--usage": saved(tmp_path, day)})
    pairs = zip(demand.prompt_sizes.tolist(), demand.output_sizes.tolist(), strict=True)
    assert set(pairs) == {(1000, 10), (10, 400)}
    assert rate == pytest.approx(1.0)
    assert notes == ()


def test_who_was_broken_off_or_tells_no_prompt_is_left_out_and_said_to_be(tmp_path: Path) -> None:
    day = [answer(50, 20, 0), answer(50, 20, 1, "length"), answer(9, 9, 2, "abort")]
    day += [answer(None, 30, 3), answer(50, 0, 4)]
    demand, _, notes = demand_of_usage({"--usage": saved(tmp_path, day)})
    assert demand.outputs.mean() == 20
    assert notes[0].startswith("3 of 5 answers are left out")
    assert "2 answers are few" in notes[1]
    assert notes[2].startswith("1 of 2 answers were cut off")


def test_max_tokens_are_those_that_all_declare(tmp_path: Path) -> None:
    lines = [{"prompt_tokens": 5, "completion_tokens": n, "max_tokens": 64} for n in (3, 9)]
    path = saved(tmp_path, lines)
    assert demand_of_usage({"--usage": path})[0].declared.constant == 64
    given = {"--usage": path, "--max-tokens": "4x", "--rate": "2.5"}
    demand, rate, _ = demand_of_usage(given)
    assert (demand.declared.multiple, rate) == (4.0, 2.5)
    differing = saved(tmp_path, [*lines, {**lines[0], "max_tokens": 65}])
    assert demand_of_usage({"--usage": differing})[0].declared.constant is None


def test_what_makes_no_lengths_is_refused_with_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(FlagError, match="--trace is not for --usage"):
        demand_of_usage({"--usage": "x", "--trace": "y"})
    with pytest.raises(ValueError, match="a plan needs both"):
        demand_of_usage({"--usage": saved(tmp_path, [answer(None, 5, 0)])})
    with pytest.raises(FlagError, match="--rate must be a number"):
        demand_of_usage({"--usage": saved(tmp_path, [answer(5, 5, 0)]), "--rate": "-1"})


def test_the_plan_is_about_these_lengths(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved(tmp_path, [answer(500, 100, n / 4) for n in range(200)])
    assert main([*WORDS, "--usage", path]) == 0
    of_usage = json.loads(capsys.readouterr().out)
    laws = ["--prompt-tokens", "500", "--output-tokens", "100", "--rate", "4"]
    assert main([*WORDS, *laws]) == 0
    of_laws = json.loads(capsys.readouterr().out)
    assert of_usage.pop("notes") == of_laws.pop("notes") == []
    assert of_usage["residents"]["on-demand"] == pytest.approx(of_laws["residents"]["on-demand"])
    assert of_usage["decodes_at_rate"] == pytest.approx(of_laws["decodes_at_rate"])
