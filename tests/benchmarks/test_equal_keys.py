"""The rule for sums of many like terms, which README.md states."""

from __future__ import annotations

from pathlib import Path

from benchmarks.equal_keys import bound


def test_the_rule_passes_half_a_step_of_fp16_at_32768_keys():
    assert bound(2**15) == 2.0**-11
    assert "n · 2⁻²⁶" in (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
