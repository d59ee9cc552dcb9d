"""Schedule: its defaults, and what it refuses with which words."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import pytest

from tirx_attn import AttentionConfig, Schedule
from tirx_attn.config import HEAD_DIMS
from tirx_attn.schedule import make_plan, tuned_schedule
from tirx_attn.schedule.tuning import KV_STAGES, TUNING_TABLE, tuning_row
from tirx_attn.targets import B200, B300, H200, TARGETS, target_for

FULL = AttentionConfig(1, 256, 256, 1, 1, 128)
CAUSAL = replace(FULL, is_causal=True)
BLACKWELL = (B200, B300)


def refused(error: type[Exception], **changes) -> str:
    with pytest.raises(error) as raised:
        Schedule(**changes)
    return str(raised.value)


@pytest.mark.parametrize(
    ("name", "values", "allowed"),
    [
        (
            "pv_split",
            [(128, 0), (0, 128), (100, 28), (64, 32), (-32, 160), (48, 80), (32, 32, 32), (32,) * 5, (64,), ()],
            "positive multiples of 32, in sum 128",
        ),
        ("epilogue_owner", ["mma", "", None, "Correction", 1], "'correction' and 'softmax'"),
        ("statistics", ["none", "", None, True], "'pairwise', 'collective' and 'tmem'"),
        ("mma_order", ["by_stage", "", None, True], "'by_tile' and 'by_product'"),
        ("rescale", ["never", "", None, 1], "'voted' and 'always'"),
        ("o_stages", [0, 3, -1], "1 and 2"),
        ("emulated_pairs", [(2, 2, 2), (17, 0, 0, 0), (-1, 0, 0, 0), (2,) * 5, ()], "4 integers from 0 to 16"),
        ("kv_stages", [1, 0, -3], "integers from 2 (one K and one V tile)"),
        ("rescale_threshold", [-0.5, 8.5, float("inf"), float("nan")], "numbers from 0 to 8 (weights stay below 2**8)"),
        ("rescale_columns", [0, 8, 24, 128], "16, 32 and 64"),
        ("softmax_registers", [16, 201, 264, 0], "multiples of 8 from 24 to 256"),
        ("correction_registers", [16, 63, 264], "multiples of 8 from 24 to 256"),
        ("issue_registers", [16, 50, 264], "multiples of 8 from 24 to 256"),
        ("l2_budget", [0, -1, 2**31], "positive byte counts below 2**31"),
        ("persistent_ctas", [0, -2, 2**30 + 1], "None and positive integers up to 2**30"),
    ],
)
def test_a_value_out_of_range_names_argument_value_and_allowed(name, values, allowed):
    for value in values:
        assert refused(ValueError, **{name: value}) == f"{name}={value!r}: allowed values are {allowed}"


@pytest.mark.parametrize(
    ("name", "values", "allowed"),
    [
        ("pv_split", [[96, 32], 96, (96.0, 32.0), (True, 127), None], "tuples of integers"),
        ("emulated_pairs", [[2] * 4, 2, (2, 2, 2, 2.0), (True,) * 4], "tuples of integers"),
        ("stagger", [0, 1, None, "yes"], "True and False"),
        ("rescale_threshold", ["8", None, True], "numbers from 0 to 8"),
        ("kv_stages", [3.0, "3", None, True], "integers"),
        ("rescale_columns", [16.0, True], "integers"),
        ("o_stages", [1.0, "2", None, True], "integers"),
        ("softmax_registers", [200.0, "200", True, None], "integers"),
        ("l2_budget", [1e6, None], "integers"),
        ("persistent_ctas", [2.0, "2", True], "integers"),
    ],
)
def test_a_value_of_the_wrong_type_names_argument_value_and_allowed(name, values, allowed):
    for value in values:
        message = refused(TypeError, **{name: value})
        assert message.startswith(f"{name}={value!r}")
        assert message.endswith(f"allowed values are {allowed}")


@pytest.mark.parametrize("split", [(32, 96), (64, 64), (96, 32), (32, 64, 32), (32, 32, 32, 32), (128,)])
def test_every_split_into_pieces_is_allowed(split):
    assert Schedule(pv_split=split).pv_split == split


def test_a_schedule_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        Schedule().stagger = True


@pytest.mark.parametrize(("pairs", "exponentials"), [((0, 0, 0, 0), 0), ((2, 2, 2, 2), 16), ((16, 16, 16, 16), 128)])
def test_emulated_exponentials_are_two_a_pair(pairs, exponentials):
    assert Schedule(emulated_pairs=pairs).emulated_exponentials == exponentials


def test_splits_of_the_two_masks():
    """P is handed over as 96 + 32 columns without a mask and as 64 + 64 with it."""
    assert tuned_schedule(FULL, B200).pv_split == (96, 32)
    assert tuned_schedule(CAUSAL, B200).pv_split == (64, 64)


def test_register_split_of_the_default():
    schedule = Schedule()
    assert (schedule.softmax_registers, schedule.correction_registers, schedule.issue_registers) == (192, 80, 48)


@pytest.mark.parametrize("config", [FULL, CAUSAL], ids=["full", "causal"])
def test_only_a_target_with_slow_exponentials_emulates(config):
    assert tuned_schedule(config, B200).emulated_exponentials > 0
    assert tuned_schedule(config, B300).emulated_exponentials == 0


@pytest.mark.parametrize("target", BLACKWELL, ids=lambda target: target.name)
@pytest.mark.parametrize("config", [FULL, CAUSAL], ids=["full", "causal"])
def test_the_tuned_schedule_is_the_default_of_a_plan(config, target):
    assert make_plan(config, target=target).schedule is tuning_row(config, target).schedule


@pytest.mark.parametrize("target", BLACKWELL, ids=lambda target: target.name)
@pytest.mark.parametrize("config", [FULL, CAUSAL], ids=["full", "causal"])
def test_the_ring_is_twice_as_deep_for_half_the_head_size(config, target):
    """Same row, same bytes: 6 tiles of 128 x 64 are 3 of 128 x 128."""
    small = replace(config, D=64)
    row, other = tuning_row(config, target), tuning_row(small, target)
    assert (row.schedule.kv_stages, other.schedule.kv_stages) == (3, 6)
    assert (other.id, replace(other.schedule, kv_stages=3)) == (row.id, row.schedule)
    assert make_plan(small, target=target).smem.kv.size == make_plan(config, target=target).smem.kv.size


def test_every_head_size_has_a_ring():
    assert set(KV_STAGES) == set(HEAD_DIMS)


def test_every_tuning_row_is_reached_and_has_an_id_of_its_own():
    reached = {tuning_row(config, target).id for config in (FULL, CAUSAL) for target in BLACKWELL}
    assert reached == {row.id for row in TUNING_TABLE}
    assert len(reached) == len(TUNING_TABLE)


def test_known_facts_of_the_targets():
    assert (B200.arch, B300.arch) == ("sm_100a", "sm_103a")
    for target in BLACKWELL:
        assert (target.sms, target.tmem_columns) == (148, 512)
    assert (H200.arch, H200.sms, H200.tmem_columns) == ("sm_90a", 132, 0)
    for target in TARGETS.values():
        assert target.registers == 65536
        assert (target.smem_bytes, target.named_barriers) == (232448, 16)


def test_an_unknown_target_is_refused():
    with pytest.raises(ValueError, match=r"arch='sm_80': allowed values are sm_100a, sm_103a, sm_90a"):
        target_for("sm_80")
