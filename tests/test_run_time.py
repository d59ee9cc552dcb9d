"""One kernel for all lengths: O and LSE against the reference, on the simulator and on a GPU; the checkers clean."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.engines import ENGINES, LARGE_KERNELS, OP_KERNELS, Gpu
from tests.proofs import note_gpu, source_of
from tests.run_time import KERNELS, LAUNCHES, Launch
from tirx_attn import merge_states, verify
from tirx_attn.config import RUNTIME
from tirx_attn.verify import attention_reference, proofs
from tirx_attn.verify.proofs import Kernel
from tirx_attn.verify.reference import largest_error, lse_rule, rounding_step

RUNS = [launch for launch in LAUNCHES if launch.kind == "run"]


def recorded(*names):
    """The mark of a test on run-time kernels: what its record depends on, and the build that it shares."""
    return pytest.mark.recorded(*map(source_of, names), unit=f"sm_100a/open_{names[0]} run")


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param()


def judge(engine, launch: Launch) -> verify.ErrorVerdict:
    """Run a launch: O within the rule of its probe, LSE right, nothing read that was not written."""
    subject = KERNELS[launch.kernel].subject
    result = engine.run(launch.kernel, subject.arrays(launch.proof))
    verdict, lse = subject.judged(launch.proof, {"O": result.o, "LSE": result.lse})
    assert verdict.ok, verdict
    assert lse.ok, lse
    assert result.verdict == "clean", result.findings
    return verdict


@pytest.mark.gpu
@pytest.mark.parametrize("launch", RUNS, ids=lambda launch: launch.id)
def test_launch(request, launch):
    """On the simulator they are proved by tests/test_proofs.py."""
    verdict = judge(Gpu(), launch)
    note_gpu(request, launch.kernel, launch.proof, KERNELS[launch.kernel].subject, verdict)


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*LARGE_KERNELS, *OP_KERNELS])
def test_every_other_kernel_has_a_launch(request, name):
    """With the outputs that it has, at a length that ends in the middle of a tile."""
    config = OP_KERNELS[name] if name in OP_KERNELS else LARGE_KERNELS[name].config
    subject = Kernel(name, config, None, scale=0.2 if config.scale == RUNTIME else None)
    launch = proofs.Launch("run", "random", (2, 130, 333))
    outputs = Gpu().outputs(name, subject.arrays(launch), config.return_lse)
    verdicts = subject.judged(launch, outputs)
    assert all(verdict.ok for verdict in verdicts), verdicts
    note_gpu(request, name, launch, subject, verdicts[0])


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=recorded(name)) for name in ("causal_7_1_bf16", "full_5_1_d64_bf16")]
)
@settings(
    derandomize=True,
    deadline=None,
    max_examples=3,
    phases=(Phase.generate,),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(lengths=st.tuples(st.integers(1, 2), st.integers(1, 120), st.integers(1, 400)))
def test_any_length(engine, name, lengths):
    verdict = judge(engine, Launch(name, "any", lengths))
    assert verdict.error <= verdict.bound


def test_kernels_run_at_many_lengths():
    """Ten or more each, from 1 to 600."""
    assert {launch.kernel for launch in RUNS} == KERNELS.keys()
    for name in KERNELS:
        lengths = {launch.lengths for launch in RUNS if launch.kernel == name}
        assert len(lengths) >= 10, name
        assert {1, 600} <= {size for _, *sizes in lengths for size in sizes}, name


@recorded("full")
def test_b2_tail_below_zero(engine):
    """O = 1, and the LSE of the list itself: −113.4746."""
    probe = Launch("full", "B2", (1, 704, 704), "tail_below_zero").make_probe()
    result = engine.run("full", probe.arrays)
    assert probe.judge(result.o).ok
    np.testing.assert_allclose(result.lse, -113.4746, atol=1e-4)


@recorded("full")
def test_e3_lse(engine):
    """The value of the list itself: −46340.950 + ln 256."""
    probe = Launch("full", "E3", (1, 128, 256), "very_negative").make_probe()
    np.testing.assert_allclose(engine.run("full", probe.arrays).lse, -46335.405, atol=0.004)


@recorded("full")
@pytest.mark.parametrize("beyond", ["next batch", "last launch"])
def test_nothing_beyond_the_used_length_counts(engine, beyond):
    """B7: the keys of batch 1 are NaN. E5: an earlier launch in the same process had NaN keys."""
    probe = Launch("full", "B7", (2, 129, 129)).make_probe()
    k, v = probe.k.copy(), probe.v.copy()
    k[1:], v[1:] = np.nan, np.nan
    if beyond == "last launch":
        everywhere = np.full((1, 256, 1, 128), np.nan, np.float16)
        spoiled = engine.run("full", {"Q": everywhere, "K": everywhere, "V": everywhere})
        assert np.isnan(spoiled.o).all()
        k, v = probe.k, probe.v
    o = engine.run("full", {"Q": probe.q, "K": k, "V": v}).o
    assert verify.judge(o[:1], probe.q[:1], probe.k[:1], probe.v[:1]).ok
    assert np.isnan(o[1]).all() == (beyond == "next batch")


@recorded("causal")
@pytest.mark.parametrize("score", ["inf", "nan"])
def test_e10_a_masked_key_is_selected_away(engine, score):
    """The last key, which only the last row sees, holds inf: scores of +inf where q > 0, of NaN where signs differ."""
    probe = Launch("causal", "E10", (1, 128, 128)).make_probe()
    q, k = np.abs(probe.q) if score == "inf" else probe.q, probe.k.copy()
    k[:, 127] = np.inf
    o = engine.run("causal", {"Q": q, "K": k, "V": probe.v}).o
    verdict = verify.judge(o[:, :127], q[:, :127], probe.k[:, :127], probe.v[:, :127], causal=True)
    assert verdict.ok, verdict


@recorded("causal", "full")
def test_e11_masked_and_unmasked_rows_agree(engine):
    """The last causal row sees all keys, through masked tiles; the same query without a mask through full ones.

    They differ by one fp16 ulp of the row's largest element at most: the steady loop emulates some exponentials.
    """
    probe = Launch("causal", "E11", (1, 256, 256)).make_probe()
    masked = engine.run("causal", probe.arrays).o[:, -1:]
    last = {"Q": probe.q[:, -1:], "K": probe.k, "V": probe.v}
    unmasked = engine.run("full", last).o
    assert largest_error(masked, unmasked) <= rounding_step(float(np.abs(unmasked).max()), np.float16)


@recorded("full")
def test_f1_parts_merge_to_the_whole(engine):
    """To the reference, and to a single pass over all keys."""
    probe = Launch("full", "F1", (1, 64, 3136)).make_probe()
    parts = []
    for keys in (slice(0, 3072), slice(3072, None)):
        part = engine.run("full", {"Q": probe.q, "K": probe.k[:, keys], "V": probe.v[:, keys]})
        parts += [part.o, part.lse]
    o, lse = merge_states(*parts)
    reference, reference_lse = attention_reference(probe.q, probe.k, probe.v)
    whole = engine.run("full", probe.arrays)
    assert largest_error(o, reference) <= 5e-4
    assert largest_error(o, whole.o) <= 5e-4
    assert lse_rule(lse, reference_lse, 128).ok
    assert lse_rule(lse, whole.lse.astype(np.float64), 128).ok


@recorded("causal_4_1")
def test_n1_batch_neighbours_do_not_matter(engine):
    probe = Launch("causal_4_1", "N1", (8, 257, 257)).make_probe()  # one of its two groups of heads
    alone = {"Q": probe.q[:1], "K": probe.k[:1], "V": probe.v[:1]}
    together, single = engine.run("causal_4_1", probe.arrays), engine.run("causal_4_1", alone)
    assert np.array_equal(together.o[:1].view(np.uint16), single.o.view(np.uint16))
    assert np.array_equal(np.ascontiguousarray(together.lse[:1]).view(np.uint32), single.lse.view(np.uint32))


@recorded("full")
def test_m3_equal_tasks_give_equal_bits(engine):
    """Six batches with the same data, task by task on two CTAs."""
    probe = Launch("full", "M3", (1, 128, 128)).make_probe()
    same = {name: np.repeat(array, 6, axis=0) for name, array in probe.arrays.items()}
    o = engine.run("full", same).o
    assert verify.judge(o[:1], probe.q, probe.k, probe.v).ok
    for batch in range(1, 6):
        assert np.array_equal(o[0].view(np.uint16), o[batch].view(np.uint16)), batch


@recorded("causal_bf16")
def test_bf16_is_its_own_dtype(engine):
    probe = Launch("causal_bf16", "dtype", (1, 33, 300)).make_probe()
    assert engine.run("causal_bf16", probe.arrays).o.dtype == ml_dtypes.bfloat16
