"""The thread pool: several callers, forks, and no work while idle."""

from __future__ import annotations

import os
import threading
import time

import numpy as np

from headway.ops import catalog
from headway.ops.cpu.backend import CpuOps
from tests.ops.comparing import assert_same_bits

INPUTS = catalog.LINEAR.inputs(
    np.random.default_rng(1), {"m": 9, "n": 300, "k": 200, "dtype": "bfloat16"}
)


def test_callers_on_several_threads_take_turns():
    ops = CpuOps(num_threads=3)
    expected = catalog.LINEAR.run(ops, INPUTS)
    wrong = []

    def call_often():
        results = [catalog.LINEAR.run(ops, INPUTS) for _ in range(100)]
        wrong.extend(result for result in results if result.tobytes() != expected.tobytes())

    callers = [threading.Thread(target=call_often) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


def test_a_forked_child_computes_alone():
    ops = CpuOps(num_threads=3)
    expected = catalog.LINEAR.run(ops, INPUTS)
    child = os.fork()
    if child == 0:
        same = catalog.LINEAR.run(ops, INPUTS).tobytes() == expected.tobytes()
        del ops
        fresh = catalog.LINEAR.run(CpuOps(num_threads=2), INPUTS).tobytes() == expected.tobytes()
        os._exit(0 if same and fresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert_same_bits(catalog.LINEAR.run(ops, INPUTS), expected)


def test_idle_threads_sleep():
    ops = CpuOps(num_threads=4)
    catalog.LINEAR.run(ops, INPUTS)
    time.sleep(0.05)
    before = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - before < 0.1


def test_defaults_to_the_processors_it_may_use():
    assert CpuOps().num_threads == len(os.sched_getaffinity(0))
