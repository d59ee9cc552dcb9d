"""The tuned and a changed kernel by turns, in time that the calls themselves make."""

from __future__ import annotations

import pytest

from benchmarks import versus
from benchmarks.measure import Implementation
from tests.benchmarks.fakes import FakeClock
from tirx_attn import AttentionConfig

CONFIG = AttentionConfig(4, 4096, 4096, 16, 8, 64, True)


def test_both_are_timed_by_turns_in_each_round():
    clock, order = FakeClock(), []

    def kernel(name: str, seconds: float) -> Implementation:
        def call() -> None:
            order.append(name)
            clock.busy(seconds)

        return Implementation(call, lambda: None)

    times = versus.by_turns({"tuned": kernel("tuned", 2e-3), "changed": kernel("changed", 1e-3)}, clock)
    assert times == {
        "tuned": pytest.approx([2.0] * versus.ROUNDS), "changed": pytest.approx([1.0] * versus.ROUNDS)
    }  # fmt: skip
    calls = round(versus.SECONDS / 1e-3)
    assert order[:6] == ["tuned"] * 3 + ["changed"] * 3
    assert order[6 : 6 + 4 * calls : calls] == ["tuned", "changed", "changed", "tuned"]


def test_every_kernel_has_a_file_of_its_own(tmp_path):
    tuned, changed = versus.files(tmp_path, CONFIG, ["q_stages=1", "ping_pong=false"])
    assert tuned == tmp_path / "float16_causal_h16x8_d64_tuned.so"
    assert changed == tmp_path / "float16_causal_h16x8_d64_ping_pongFalse_q_stages1.so"
    assert versus.files(tmp_path, CONFIG, ["ping_pong=False", "q_stages=1"]) == (tuned, changed)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--export"], "--schedule"),
        (["--export", "--schedule", "turns=1"], "turns"),
        (["--export", "--schedule", "kv_stages=1"], "kv_stages=1: allowed values are integers from 3"),
        (["--export", "--schedule", "kv_stages=9"], "shared memory"),
        (["--export", "--schedule", "ping_pong=false", "--group", "mha"], "mha"),
        (["--export", "--schedule", "producer_registers=24", "--group", "gqa"], "the tuned kernels of all shapes have"),
        (["--measure", "none", "--schedule", "bogus=1"], "bogus"),
        (["--measure", "none", "--schedule", "q_stages=1"], "is missing (24 in all)"),
    ],
)
def test_wrong_words_are_refused_before_any_work(options, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        versus.main([*options, "-o", "x"])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
