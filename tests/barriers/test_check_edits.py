"""The structural check on faults in the source of a role, as public reports have them: each is found, in its place."""

from __future__ import annotations

import pytest

from tests.barriers.checked import headline
from tests.barriers.edited import Edits, build, place
from tirx_attn.barriers.check import Report, check

SHAPE = (1, 256, 384, 2, 1, 128)
NO_KEYS = (1, 512, 128, 2, 1, 128)
"""With a causal mask, the rows of three tasks in four see no key."""

pytestmark = pytest.mark.slow


def found(tmp_path, edits: Edits, shape=SHAPE, is_causal: bool = False, arch: str = "sm_100a") -> Report:
    return check(build(tmp_path, edits, shape, arch, is_causal))


class TestTensorMemory:
    LOAD = "            Tx.wg.copy_async(o_reg[:, :], self.ctx.o_tmem[:, column : column + PIECE])\n"
    CREDIT = (
        "        T.ptx.tcgen05.fence__before_thread_sync()\n        bar.p_o_rescale.arrive(stage)\n"
    )
    EARLY = (
        "            if i == D // PIECE - 1:\n"
        "                T.ptx.tcgen05.fence__before_thread_sync()\n                bar.p_o_rescale.arrive(stage)\n"
    )

    def test_released_while_a_load_runs(self, tmp_path):
        """O's credit between the last tcgen05.ld and its wait::ld."""
        edits: Edits = {"roles/epilogue.py": [(self.CREDIT, ""), (self.LOAD, self.LOAD + self.EARLY)]}
        report = found(tmp_path, edits)
        assert report.findings[0].kind == "race"
        assert "tcgen05.ld of ctx_o_tmem by correction" in headline(report)
        assert place(edits, "roles/epilogue.py", "Tx.wg.copy_async(o_reg") in headline(report)


class TestFences:
    ZEROS = "            self._stage_piece(stage, i * PIECE, zeros)\n        self._staged(stage)\n"
    UNFENCED = ZEROS.replace("self._staged(stage)", "self.ctx.barriers.o_staged_full.arrive(stage)")

    def test_mbarrier_init_without_its_fence(self, tmp_path):
        report = found(tmp_path, {"kernel.py": [("        T.ptx.fence.mbarrier_init.release.cluster()\n", "")]})
        assert headline(report) == "mbarrier.init is not followed by fence.mbarrier_init: TMA may not see it"

    def test_proxy_fence_missing_on_the_path_without_work(self, tmp_path):
        edits: Edits = {"roles/epilogue.py": [(self.ZEROS, self.UNFENCED)]}
        report = found(tmp_path, edits, NO_KEYS, is_causal=True)
        assert (report.findings[0].kind, report.findings[0].edge) == ("race", "o_staged.full")
        assert headline(report).startswith("o_staged.full: write of ctx_o_smem by ")
        assert place(edits, "roles/epilogue.py", "Tx.wg.copy(self.ctx.o_smem") in headline(report)

    def test_a_launch_in_which_no_task_is_without_keys_does_not_take_that_path(self, tmp_path):
        edits: Edits = {"roles/epilogue.py": [(self.ZEROS, self.UNFENCED)]}
        assert found(tmp_path, edits, (1, 256, 256, 2, 1, 128), is_causal=True).verdict == "clean"


class TestBarriers:
    def test_one_named_barrier_for_both_stages(self, tmp_path):
        index = "pair = stage if self.per_stage == 1 else stage * self.per_stage + warp"
        edits: Edits = {"barriers/device.py": [(index, "pair = 0 if self.per_stage == 1 else warp")]}
        report = found(tmp_path, edits)
        assert report.findings[0].edge.startswith("stats.full")
        assert {finding.role.split()[0] for finding in report.findings} <= {"softmax", "correction"}

    @pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
    def test_twice_the_bytes_are_expected(self, tmp_path, arch):
        expect = "full.arrive(slot, ctx.plan.q_tile_bytes)"
        report = found(tmp_path, {"roles/tma.py": [(expect, expect.replace("ctx", "2 * ctx"))]}, arch=arch)
        assert headline(report) == "q_load.full: load expects 65536 bytes, declared are 32768 (a full tile)"
        assert ("bytes", "q_load.full") in {(finding.kind, finding.edge) for finding in report.findings}

    def test_the_cta_meets_in_one_role(self, tmp_path):
        init = "    task.init(ctx.cta)\n"
        edits: Edits = {"roles/load.py": [(init, init + "    T.cuda.cta_sync()\n")]}
        report = found(tmp_path, edits)
        assert report.verdict == "error"
        assert any("CTA sync" in finding.message and "load" in finding.message for finding in report.findings)

    @pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
    def test_a_leader_that_is_elected_ahead_of_the_wait(self, tmp_path, arch):
        wait = "    ctx.barriers.kv_load_empty.wait(slot.stage, slot.phase)\n    if T.cuda.elect_sync():\n"
        hoisted = "    leader: T.let = T.cuda.elect_sync()\n" + wait.replace("T.cuda.elect_sync()", "leader")
        assert found(tmp_path, {"roles/tma.py": [(wait, hoisted)]}, arch=arch).verdict == "error"
