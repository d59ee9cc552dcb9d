"""Edits of the source that a launch shows only at its end, or where it uses a slot again, or comes to a path."""

from __future__ import annotations

from dataclasses import dataclass

from tests.barriers.edited import Edits

WAIT = "            T.ptx.cp.async_.bulk.wait_group.read(0)\n"
LATE_STORE_ROLE = """

@T.inline
def store_role(ctx):
    staged = ctx.barriers.cursor("o_staged.full")
    task = ctx.tasks("store")
    task.init(ctx.cta)
    pending = T.local_scalar("int32")
    pending = 0
    while task.valid():
        if pending != 0:
            if T.cuda.elect_sync():
                T.ptx.cp.async_.bulk.wait_group.read(0)
            T.cuda.warp_sync()
            for stage in T.unroll(Q_STAGES):
                ctx.barriers.o_staged_empty.arrive(ctx.freed_stage(stage))
        pending = 1
        for stage in T.unroll(Q_STAGES):
            tile = T.meta_var(ctx.staging_tile(stage))
            store_o(ctx, task, ctx.tiles.first_token(task.m_block_idx, stage), stage, staged.phase, tile)
        staged.advance()
        task.next_tile()
"""
LATE_HOPPER_STORE_ROLE = """

@T.inline
def store_role(ctx):
    staged = ctx.barriers.cursor("o_staged.full")
    stop = ctx.stops("store")
    stop.init(ctx.cta)
    pending = T.local_scalar("int32")
    pending = 0
    while stop.valid():
        for turn in T.serial(ctx.plan.tiles_per_stop, unroll=False):
            m_block: T.let = ctx.tile(stop, turn)
            if ctx.has_tile(stop, turn):
                if pending != 0:
                    if T.cuda.elect_sync():
                        T.ptx.cp.async_.bulk.wait_group.read(0)
                    T.cuda.warp_sync()
                    ctx.barriers.o_staged_empty.arrive(0)
                pending = 1
                store_o(ctx, stop, ctx.tiles.first_token(m_block, 0), 0, staged.phase, 0)
                staged.advance()
        stop.next_tile()
"""
AT_THE_END = """\
    if T.cuda.elect_sync():
        T.ptx.cp.async_.bulk.wait_group.read(0)
    T.cuda.warp_sync()
"""
LATE: Edits = {
    "roles/tma.py": [(WAIT, "")],
    "roles/epilogue.py": [("", LATE_STORE_ROLE)],
    "hopper/transfer.py": [("", LATE_HOPPER_STORE_ROLE)],
}
"""Stores are waited for before a tile is written again, and not after the last one."""
LATE_AND_LAST: Edits = {
    "roles/tma.py": [(WAIT, "")],
    "roles/epilogue.py": [("", LATE_STORE_ROLE + AT_THE_END)],
    "hopper/transfer.py": [("", LATE_HOPPER_STORE_ROLE + AT_THE_END)],
}
"""The same, and after the last one too."""


@dataclass(frozen=True)
class Fault:
    """An edit, a launch that is clean with it, and one that is not.

    Attributes:
        edits: of the package's source.
        arch, is_causal: the kernel.
        short, long: shapes.
        edge, kind: of the first finding in the long launch.
        unseen: how a line begins by which the short launch says that it did not come to this.
    """

    edits: Edits
    arch: str
    is_causal: bool
    short: tuple[int, ...]
    long: tuple[int, ...]
    edge: str
    kind: str
    unseen: str


ZEROS = "            self._stage_piece(stage, i * PIECE, zeros)\n        self._staged(stage)\n"
FREED = """\
            for stage in T.unroll(Q_STAGES):
                bar.q_load_empty.arrive(stage, pred=T.cuda.elect_sync())
"""
STEADY = "            for j in T.serial(key_blocks - 1, unroll=False):\n"
K_WAIT, K_FREED, K_READ = (
    f"        {line}\n"
    for line in ("wgmma.wait(0)", "self.release(self.ctx.barriers.kv_load_empty, self.k_slot)",
                 "self.softmax(m_block, block, self.ctx.tiles.may_mask)")
)  # fmt: skip

FAULTS = {
    "V released a query tile early": Fault(
        {"roles/mma.py": [("if stage == Q_STAGES - 1:", "if stage == 0:")]},
        "sm_100a", True, (1, 256, 256, 2, 1, 128), (1, 512, 512, 2, 1, 128), "kv_load.full", "race", "kv_load.empty[",
    ),
    "Q released ahead of its last product": Fault(
        {"roles/mma.py": [(FREED, ""), (STEADY, FREED + STEADY)]},
        "sm_100a", False, (1, 256, 384, 1, 1, 128), (149, 256, 384, 1, 1, 128), "q_load.full", "race", "q_load.empty[",
    ),
    "K released ahead of its product on Hopper": Fault(
        {"hopper/consumer.py": [
            ("        self.pass_turn()\n" + K_WAIT, "        self.pass_turn()\n" + K_FREED + K_WAIT),
            (K_FREED + K_READ, K_READ),
        ]},
        "sm_90a", False, (1, 128, 128, 1, 1, 128), (1, 128, 640, 1, 1, 128), "kv_load.empty", "race", "kv_load.empty[",
    ),
    "phase of the staging memory stands still": Fault(
        {"hopper/transfer.py": [("                staged.advance()\n", "")]},
        "sm_90a", True, (1, 100, 300, 1, 1, 64), (1, 1024, 300, 1, 1, 64), "o_staged.full", "aliased phase",
        "o_staged.full[",
    ),
    "zeros without a proxy fence": Fault(
        {"roles/epilogue.py": [(ZEROS, ZEROS.replace("_staged(stage)", "ctx.barriers.o_staged_full.arrive(stage)"))]},
        "sm_100a", True, (1, 256, 256, 2, 1, 128), (1, 512, 128, 2, 1, 128), "o_staged.full", "race",
        "branch roles/softmax.py",
    ),
}  # fmt: skip
