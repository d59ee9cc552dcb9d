"""Context: how packed query rows lie in shared memory, where P lies in tensor memory, what does not fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tvm.error import DiagnosticError

from tirx_attn import AttentionConfig, Schedule
from tirx_attn.kernel import build_kernel
from tirx_attn.roles import mailbox, storage
from tirx_attn.roles.context import Context
from tirx_attn.schedule import Plan, make_plan


class View:
    """Stands for a buffer; keeps how it was viewed."""

    def view(self, *shape, layout):
        self.shape, self.layout = shape, layout
        return self


def context(plan: Plan) -> Context:
    """A Context that has allocated nothing."""
    bare = object.__new__(Context)
    bare.plan, bare.config, bare.tiles = plan, plan.config, plan.tiles
    return bare


def element(layout, shape: tuple[int, ...], *place: int) -> int:
    (offset,) = layout.apply(*place, shape=list(shape)).values()
    return int(offset)


@pytest.mark.parametrize("ratio", [1, 2, 8, 32, 128])
def test_packed_rows_are_the_rows_of_the_mma_tile(ratio):
    """(token, head) of TMA's view is row token·ratio + head of the operand that the MMA reads, swizzle included."""
    from tvm.backend.cuda.tile_primitive.tma_utils import SwizzleMode, mma_shared_layout

    plan = make_plan(AttentionConfig(1, 256, 256, ratio, 1, 128))
    packed = storage.packed(View(), 2, plan.tiles)
    tile = mma_shared_layout("float16", SwizzleMode.SWIZZLE_128B_ATOM, (2, 128, 128))
    assert packed.shape == (2, 2, 128 // ratio, ratio, 64)
    generator = np.random.default_rng(ratio)
    for stage, row, column in generator.integers((2, 128, 128), size=(60, 3)).tolist():
        place = (stage, column // 64, row // ratio, row % ratio, column % 64)
        assert element(packed.layout, packed.shape, *place) == element(tile, (2, 128, 128), stage, row, column)


def test_p_starts_in_the_upper_half_of_its_s():
    """Columns of the 16-bit view of tensor memory, two to a 32-bit column: P0 at 64, P1 at 192."""
    plan = make_plan(AttentionConfig(1, 256, 256, 1, 1, 128))
    assert [context(plan).p_column(stage) for stage in (0, 1)] == [2 * 64, 2 * 192]
    assert [context(plan).p_column(stage) for stage in (0, 1)] == [2 * region.start for region in plan.tmem.p]


@pytest.mark.parametrize(("o_stages", "tiles", "freed"), [(2, [0, 1], [0, 1]), (1, [0, 0], [1, 0])])
def test_a_stage_has_a_staging_tile_or_a_turn_at_the_one(o_stages, tiles, freed):
    ctx = context(make_plan(AttentionConfig(1, 256, 256, 1, 1, 128), Schedule(o_stages=o_stages)))
    assert [ctx.staging_tile(stage) for stage in (0, 1)] == tiles
    assert [ctx.freed_stage(stage) for stage in (0, 1)] == freed


@pytest.mark.parametrize("place", ["acc_scale", "row_sum"])
def test_columns_of_a_statistic_are_the_planned_ones(place):
    plan = make_plan(AttentionConfig(1, 256, 256, 1, 1, 128), Schedule(statistics="tmem"))
    columns = [mailbox.tmem_column(context(plan), place, stage) for stage in (0, 1)]
    assert columns == [region.start for region in getattr(plan.tmem, place)]
    assert columns == {"acc_scale": [0, 128], "row_sum": [32, 160]}[place]


def test_barriers_that_do_not_fit_are_refused():
    plan = make_plan(AttentionConfig(1, 256, 256, 1, 1, 128))
    control = replace(plan.smem.control, size=100)
    plan.__dict__["smem"] = replace(plan.smem, control=control)  # where cached_property keeps it
    with pytest.raises(DiagnosticError, match=r"barriers need \d+ bytes of shared memory, planned are"):
        build_kernel(plan)
