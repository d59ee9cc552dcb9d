"""Arithmetic on a row of scores: the polynomial against 2**f, and the generated code on the simulator."""

from __future__ import annotations

import numpy as np
import pytest

from tirx_attn.roles.rowmath import EXP2_COEFFICIENTS

HALF_FP16_ULP = 2.0**-11
"""Of a number in [1, 2)."""

SCALE, REFERENCE = 0.127517432, 3.5
EMULATED = (0, 16, 3, 16)
"""Pairs of the 16 of each 32-column piece that the polynomial computes."""

LIMITS = (-300, -1, 0, 1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 1000)


def test_the_polynomial_is_five_times_better_than_fp16_needs():
    f = np.linspace(0, 1, 100001)
    relative = np.polynomial.polynomial.polyval(f, EXP2_COEFFICIENTS) / np.exp2(f) - 1
    assert np.abs(relative).max() < 8.7e-5 < HALF_FP16_ULP / 5


def test_whole_exponents_are_exact_and_the_pieces_join():
    assert EXP2_COEFFICIENTS[0] == 1.0
    assert sum(EXP2_COEFFICIENTS) == pytest.approx(2.0, rel=2e-4)


def row_kernel():
    """One thread per row of X [128, 128]: mask from VISIBLE on, maximum, exponentials, sum, and two copies."""
    from tvm.script import tirx as T

    from tirx_attn.roles import rowmath

    @T.prim_func
    def main(
        x: T.handle, visible: T.handle, top: T.handle, e: T.handle, total: T.handle, scaled: T.handle, less: T.handle
    ):
        X = T.match_buffer(x, (128, 128), "float32")
        VISIBLE = T.match_buffer(visible, (128,), "int32")
        TOP = T.match_buffer(top, (128,), "float32")
        E = T.match_buffer(e, (128, 128), "float32")
        TOTAL = T.match_buffer(total, (128,), "float32")
        SCALED = T.match_buffer(scaled, (128, 128), "float32")
        LESS = T.match_buffer(less, (128, 128), "float32")
        T.device_entry()
        T.cta_id([1])
        row = T.thread_id([128])
        low = T.local_scalar("float32")
        high = T.local_scalar("float32")
        offset = T.local_scalar("float32")
        sums = T.local_scalar("uint64")
        values = T.alloc_local((128,), "float32")
        result = T.alloc_local((1,), "float32")
        for c in T.unroll(128):
            values[c] = X[row, c]
        rowmath.mask_columns(values, VISIBLE[row])
        rowmath.row_maximum(values, result)
        TOP[row] = result[0]
        T.ptx.mov.b64(sums, T.float32(0), T.float32(0))
        rowmath.emulation_offset(T.float32(REFERENCE), offset)
        for piece in T.unroll(4):
            emulated = T.meta_var(T.Select(piece == 1, 16, T.Select(piece == 2, 3, T.Select(piece == 3, 16, 0))))
            rowmath.exponentials(values, piece * 32, T.float32(SCALE), T.float32(REFERENCE), offset, emulated)
            rowmath.add_columns(sums, values, piece * 32)
        T.ptx.mov.b64(low, high, sums)
        TOTAL[row] = low + high
        for c in T.unroll(128):
            E[row, c] = values[c]
            values[c] = X[row, c]
        rowmath.scale_columns(values, 128, T.float32(0.375))
        for c in T.unroll(128):
            SCALED[row, c] = values[c]
            values[c] = X[row, c]
        rowmath.subtract(values, 128, T.float32(SCALE), T.float32(REFERENCE))
        for c in T.unroll(128):
            LESS[row, c] = values[c]

    return main


@pytest.fixture(scope="module")
def launched():
    """Scores whose exponents run from -150 to 8, one row per mask limit, and what the kernel makes of them."""
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
    from tirx_attn import verify

    exponents = np.random.default_rng(0).uniform(-30, 8, (128, 128))
    exponents[:, ::7] -= 120
    x = ((exponents + REFERENCE) / SCALE).astype(np.float32)
    visible = np.resize(np.array(LIMITS, np.int32), 128)
    run = verify.run(row_kernel(), {"X": x, "VISIBLE": visible}, time_limit=600)
    assert run.verdict == "clean"
    return x, np.arange(128) < visible[:, None], run.outputs


@pytest.mark.simulator
@pytest.mark.slow
@pytest.mark.recorded("tirx_attn/roles/rowmath.py", unit="rowmath")
class TestGeneratedCode:
    def test_the_maximum_is_over_the_visible_columns(self, launched):
        x, seen, outputs = launched
        some = seen.any(axis=1)
        assert np.array_equal(outputs["TOP"][some], np.where(seen, x, -np.inf).max(axis=1)[some])

    def test_the_maximum_of_nothing_is_minus_infinity(self, launched):
        _, seen, outputs = launched
        assert np.all(outputs["TOP"][~seen.any(axis=1)] == -np.inf)

    def test_exponentials(self, launched):
        x, seen, outputs = launched
        exact = np.exp2(x.astype(np.float64) * np.float32(SCALE) - REFERENCE)
        normal = seen & (exact > 2.0**-120)
        error = np.abs(outputs["E"] / np.where(normal, exact, 1) - 1)
        columns = np.arange(128)
        emulated = columns % 32 // 2 >= 16 - np.array(EMULATED)[columns // 32]
        assert error[:, emulated][normal[:, emulated]].max() < 1.2e-4
        assert error[:, ~emulated][normal[:, ~emulated]].max() < 2e-5

    def test_hidden_and_tiny_columns_are_nothing_in_16_bit(self, launched):
        x, seen, outputs = launched
        tiny = ~seen | (x.astype(np.float64) * SCALE - REFERENCE < -130)
        assert np.all(outputs["E"][tiny] >= 0)
        assert np.all(outputs["E"][tiny].astype(np.float16) == 0)
        assert np.isfinite(outputs["E"]).all()

    def test_the_sum_is_that_of_the_exponentials(self, launched):
        _, _, outputs = launched
        assert outputs["TOTAL"] == pytest.approx(outputs["E"].astype(np.float64).sum(axis=1), rel=1e-6)

    def test_scaling_is_exact_to_a_rounding(self, launched):
        x, _, outputs = launched
        assert np.array_equal(outputs["SCALED"], x * np.float32(0.375))

    def test_subtracting_rounds_once(self, launched):
        """A product rounded by itself would be off by up to a rounding of the product."""
        x, _, outputs = launched
        exact = x.astype(np.float64) * np.float32(SCALE) - REFERENCE
        assert np.array_equal(outputs["LESS"], exact.astype(np.float32))
