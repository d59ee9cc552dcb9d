"""Polynomials for 2^f: those of the kernel and of the paper, and the room that 16 bits leave."""

from __future__ import annotations

import numpy as np
import pytest

from tirx_attn.analysis.exp2 import minimax, polynomial_error, relative_error, rounding_error


def test_degree_3_is_the_kernels():
    from tirx_attn.roles.rowmath import EXP2_COEFFICIENTS

    assert minimax(3) == pytest.approx(EXP2_COEFFICIENTS, abs=5e-7)
    assert polynomial_error(3, EXP2_COEFFICIENTS).fp32 == pytest.approx(8.6e-5, abs=5e-7)


def test_degree_3_has_the_digits_that_the_paper_prints():
    published = (1.0, 0.6951, 0.2276, 0.0771)
    assert tuple(round(c, 4) for c in minimax(3)) == published
    assert polynomial_error(3, published).exact == pytest.approx(1.0e-4, rel=0.01)  # four digits cost as much


def test_degree_1_by_hand():
    """The relative error of 1 + c·f has its extremes inside and at the end, and they are equal and opposite."""
    _, c = minimax(1)
    at = 1 / np.log(2) - 1 / c  # where the derivative of (1 + c·f)/2^f is 0
    assert (1 + c * at) / 2**at - 1 == pytest.approx(1 - (1 + c) / 2, rel=1e-6)


@pytest.mark.parametrize("degree", [1, 2, 3, 4, 5, 6])
def test_the_error_swings_between_equal_extremes(degree):
    error = relative_error(minimax(degree), np.linspace(0, 1, 200001))
    assert error[0] == 0
    tops = [part.max() for part in np.split(np.abs(error[1:]), np.flatnonzero(np.diff(np.sign(error[1:]))) + 1)]
    assert len(tops) == degree + 1
    assert tops == pytest.approx([max(tops)] * len(tops), rel=1e-3)


def test_sixteen_bits_hide_the_error():
    third = polynomial_error(3)
    assert rounding_error("float16") == pytest.approx(2**-11, rel=0.01)
    assert rounding_error("bfloat16") == pytest.approx(2**-8, rel=0.01)
    assert third.fp16 < 2**-11 + 8.6e-5
    assert third.bf16 == pytest.approx(2**-8, rel=0.01)
    assert third.bf16_same == pytest.approx(0.99, abs=0.001)
    assert third.fmas == 7


@pytest.mark.parametrize("degree", [0, 7])
def test_degrees_that_are_refused(degree):
    with pytest.raises(ValueError, match=f"degree={degree}: allowed are 1 to 6"):
        minimax(degree)
