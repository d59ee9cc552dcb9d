"""The structural check on what a CTA leaves in flight when it ends: stores, loads, products, bytes."""

from __future__ import annotations

import pytest

from tests.barriers.checked import headline
from tests.barriers.edited import Edits, build, place
from tests.barriers.faults import AT_THE_END, LATE, LATE_AND_LAST, LATE_STORE_ROLE, WAIT
from tests.barriers.hopper import kernel
from tirx_attn.barriers.check import check
from tirx_attn.barriers.checker.rewrite import edit, leaves

BLACKWELL = ((1, 256, 256, 2, 1, 64), "sm_100a")
HOPPER = ((1, 256, 384, 2, 1, 128), "sm_90a")

COMMIT = "            T.ptx.cp.async_.bulk.commit_group()\n"
STORE_FROM = "Tx.copy_async("
LOAD_KV = "Tx.copy_async(\n                ctx.kv_smem["
TO_THE_END = "then the end of the CTA, not ordered:"


class TestStores:
    @pytest.mark.parametrize(
        ("shape", "arch"),
        [BLACKWELL, HOPPER, pytest.param((4, 2048, 256, 32, 4, 128), "sm_90a", marks=pytest.mark.slow)],
    )
    def test_that_nobody_waits_for_after_the_last_one(self, tmp_path, shape, arch):
        report = check(build(tmp_path, LATE, shape, arch))
        assert [finding.kind for finding in report.findings] == ["in flight"]
        assert report.findings[0].role == "store"
        assert report.findings[0].message == (
            f"TMA store from ctx_o_rows by store, {TO_THE_END} no wait_group waits for its bulk group "
            f"({place(LATE, 'roles/tma.py', STORE_FROM)})\n  in CTA 0, no branch on data taken"
        )

    @pytest.mark.slow
    @pytest.mark.parametrize(("shape", "arch"), [BLACKWELL, HOPPER])
    def test_that_are_waited_for_late_but_in_time(self, tmp_path, shape, arch):
        report = check(build(tmp_path, LATE_AND_LAST, shape, arch))
        assert (report.verdict, report.findings) == ("clean", [])

    @pytest.mark.parametrize(
        ("changes", "missing"),
        [
            pytest.param([(WAIT, "")], "no wait_group waits for its bulk group", marks=pytest.mark.slow),
            ([(WAIT, WAIT.replace("(0)", "(1)"))], "no wait_group waits for its bulk group"),
            pytest.param([(COMMIT, "")], "it is in no bulk group", marks=pytest.mark.slow),
        ],
        ids=["no wait", "one group left", "no commit"],
    )
    @pytest.mark.parametrize(("shape", "arch"), [BLACKWELL, pytest.param(*HOPPER, marks=pytest.mark.slow)])
    def test_of_a_single_task(self, tmp_path, shape, arch, changes, missing):
        """No tile is written twice, so that this is all there is to find."""
        report = check(build(tmp_path, {"roles/tma.py": changes}, shape, arch))
        assert {finding.kind for finding in report.findings} == {"in flight"}
        assert headline(report).startswith(f"TMA store from ctx_o_rows by store, {TO_THE_END} {missing} (roles/tma.py:")

    @pytest.mark.slow
    def test_one_group_may_be_left_where_each_tile_has_its_own(self, tmp_path):
        """With two staging tiles and the other one's store still running, a tile may be written once its own is done:
        the arrival for a stage waits for the store of the stage before; the last ones are waited for at the end."""
        late = LATE_STORE_ROLE.replace("wait_group.read(0)", "wait_group.read(1)", 1)
        edits: Edits = {"roles/tma.py": [(WAIT, "")], "roles/epilogue.py": [("", late + AT_THE_END)]}
        report = check(build(tmp_path, edits, (1, 256, 256, 2, 1, 64)))
        assert (report.verdict, report.findings) == ("clean", [])  # a CTA has one task
        report = check(build(tmp_path / "two tasks", edits, (149, 256, 256, 2, 1, 64)))
        (finding,) = {(f.kind, f.edge, f.message.partition(" by ")[0]) for f in report.findings if f.kind == "race"}
        assert finding == ("race", "o_staged.empty", "o_staged.empty: TMA store from ctx_o_rows")


class TestLoads:
    AHEAD = "        task.next_tile()\n    load_kv(ctx, ctx.k, task, 0, slot)\n"
    """A tile of the next task, though there may be none."""

    def test_that_nobody_waits_for(self, tmp_path):
        edits: Edits = {"roles/load.py": [("        task.next_tile()\n", self.AHEAD)]}
        report = check(build(tmp_path, edits, (1, 256, 384, 2, 1, 128)))
        assert [(finding.kind, finding.edge, finding.role) for finding in report.findings] == [
            ("in flight", "kv_load.full", "load")
        ]
        assert report.findings[0].message == (
            f"TMA load to ctx_kv_smem by load, {TO_THE_END} nobody waits for its bytes on kv_load.full "
            f"({place(edits, 'roles/tma.py', LOAD_KV)})\n  in CTA 0, no branch on data taken"
        )

    @pytest.mark.slow
    def test_that_nobody_waits_for_on_hopper(self, tmp_path):
        ahead = "        stop.next_tile()\n    load_kv(ctx, ctx.k, stop, 0, kv)\n\n\n@T.inline\ndef store_role"
        edits: Edits = {"hopper/transfer.py": [("        stop.next_tile()\n\n\n@T.inline\ndef store_role", ahead)]}
        report = check(build(tmp_path, edits, *HOPPER))
        assert [(finding.kind, finding.edge, finding.role) for finding in report.findings] == [
            ("in flight", "kv_load.full", "load")
        ]

    @pytest.mark.slow
    @pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
    def test_bytes_that_are_expected_and_never_come(self, tmp_path, arch):
        blackwell = arch == "sm_100a"
        name, task, slot = ("roles/load.py", "task", "slot") if blackwell else ("hopper/transfer.py", "stop", "kv")
        expect = (
            f"    ctx.barriers.kv_load_empty.wait({slot}.stage, {slot}.phase)\n    if T.cuda.elect_sync():\n"
            f"        ctx.barriers.kv_load_full.arrive({slot}.stage, ctx.plan.tile_bytes)\n"
        )
        end = f"        {task}.next_tile()\n" + ("" if blackwell else "\n\n@T.inline\ndef store_role")
        edits: Edits = {name: [(end, end.replace("next_tile()\n", f"next_tile()\n{expect}"))]}
        report = check(build(tmp_path, edits, (1, 256, 384, 2, 1, 128), arch))
        assert [(finding.kind, finding.edge) for finding in report.findings] == [("in flight", "kv_load.full")]
        assert headline(report) == "kv_load.full[0]: 32768 bytes are outstanding at the end of the CTA"


class TestProducts:
    @pytest.mark.slow
    def test_tcgen05_that_nobody_waits_for(self, tmp_path):
        product = """\
        task.next_tile()
    Tx.warp.gemm_async(
        ctx.s_tmem[:, 0:TILE_KEYS], ctx.q_smem[0, :, :], ctx.kv_smem[0, :, :], dispatch="tcgen05"
    )
"""
        edits: Edits = {"roles/mma.py": [("        task.next_tile()\n", product)]}
        report = check(build(tmp_path, edits, (1, 256, 256, 2, 1, 64)))
        (finding,) = [finding for finding in report.findings if finding.kind == "in flight"]
        assert finding.message.splitlines()[0] == (
            f"MMA ctx_s_tmem from ctx_q_smem and ctx_kv_smem by mma, {TO_THE_END} nobody waits for a commit of it "
            f"({place(edits, 'roles/mma.py', 'Tx.warp.gemm_async(')})"
        )

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("dropped", "missing"),
        [(("wgmma_wait_group",), "no wait_group waits for it"),
         (("wgmma_wait_group", "wgmma_commit_group"), "it is not committed")],
    )  # fmt: skip
    def test_wgmma_that_nobody_waits_for(self, dropped, missing):
        """The last statements of these kinds, and all that uses O after them, left out."""
        func = kernel("full")
        found = leaves(func)
        last = [[leaf for leaf in found if leaf.operator == operator][-1] for operator in dropped]
        wait = last[0].index
        uses = [leaf for leaf in found if leaf.index >= wait and "rows_o" in str(leaf.statement)]
        report = check(edit(func, {leaf.index: lambda _: [] for leaf in (*last, *uses)}))
        assert report.findings[0].kind == "in flight"
        assert headline(report).startswith(
            f"WGMMA rows_o from rows_p and ctx_kv_smem by consumer 0, {TO_THE_END} {missing} (hopper/wgmma.py:"
        )
