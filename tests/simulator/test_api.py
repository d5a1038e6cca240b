"""The package as people import it."""

from __future__ import annotations

from tests.simulator.worlds import Listed, PerToken, asks

from headway.simulator import SchedulerConfig, simulate


def test_columns_are_ready_for_a_data_frame():
    asked = [asks(name, 10, 5, at_ns=100 * name) for name in range(7)]
    result = simulate(SchedulerConfig(), Listed(asked), PerToken(), num_blocks=50)
    for columns, length in ((result.sequences, 7), (result.steps, result.summary().num_steps)):
        assert {len(column) for column in columns.values()} == {length}
        assert all(column.ndim == 1 for column in columns.values())
