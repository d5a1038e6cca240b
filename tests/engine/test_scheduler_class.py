"""--scheduler-cls: a subclass of Scheduler, or one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from headway.core.scheduler import Scheduler
from headway.engine.scheduler_class import load_scheduler_class
from tests.engine.harness import Bench, ask


class OneAtATime(Scheduler):
    """As an operator might write one."""

    def __init__(self, config: object, num_blocks: int) -> None:
        super().__init__(replace(config, max_num_seqs=1), num_blocks)  # type: ignore[type-var]


def test_none_is_ours() -> None:
    assert load_scheduler_class(None) is Scheduler


def test_a_scheduler_of_ones_own_is_the_one_that_runs(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(scheduler_cls=f"{__name__}.OneAtATime")
    assert isinstance(bench.engine.scheduler, OneAtATime)
    bench.run({0: [ask("a", [5] * 4), ask("b", [6] * 4)]})
    assert bench.engine.scheduler.config.max_num_seqs == 1


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("Scheduler", "must be MODULE.CLASS, got 'Scheduler'"),
        ("nowhere.Scheduler", "cannot be imported: ModuleNotFoundError"),
        ("headway.core.scheduler.Nothing", "cannot be imported: AttributeError"),
        ("headway.core.request.Request", "must be a subclass of headway.core.scheduler.Scheduler"),
        ("headway.core.step.apart", "must be a subclass"),
    ],
)
def test_anything_else_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load_scheduler_class(name)
