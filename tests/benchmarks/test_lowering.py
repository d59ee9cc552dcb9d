"""Times of tracing and lowering, by turns, with kernels that stand in for both."""

from __future__ import annotations

import pytest

from benchmarks import lowering


def test_kernels_take_turns_and_the_first_turn_warms_up(monkeypatch):
    clock, order = [0.0], []
    monkeypatch.setattr(lowering.time, "process_time", lambda: clock[0])

    def generator(name, seconds):
        def generate(*arguments):
            order.append((name, arguments))
            clock[0] += seconds
            return name

        return generate

    def lower(func):
        clock[0] += {"ours": 0.5, "peer": 1.0}[func]

    monkeypatch.setattr(lowering, "get_flash_attention4_kernel", generator("ours", 0.5))
    monkeypatch.setattr(lowering, "generate_cuda", lower)
    found = lowering.measure((1, 2), generator("peer", 3.0), rounds=2)
    assert order == [("ours", (1, 2)), ("peer", (1, 2))] * 3
    assert found == {"ours": [0.5, 0.5], "peer": [3.0, 1.0], "ratio": 0.25}


def test_without_the_peer_it_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setattr(lowering, "PEER", "tirx_kernels_that_is_not_there")
    assert lowering.main([]) == 2
    assert "pip install --no-deps tirx-kernels" in capsys.readouterr().err


@pytest.mark.parametrize("name", lowering.PROBLEMS)
def test_the_problems_are_the_benchmark_shapes(name):
    *sizes, causal = lowering.PROBLEMS[name]
    assert len(sizes) == 6
    assert causal == name.startswith("causal")
