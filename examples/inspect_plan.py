"""Read a kernel before it exists: plan and barrier table as plain Python objects, in milliseconds, without TVM."""

import sys

from tirx_attn import AttentionConfig
from tirx_attn.barriers.protocol import protocol
from tirx_attn.schedule import make_plan

plan = make_plan(AttentionConfig(B=1, Sq=4096, Skv=4096, Hq=32, Hkv=4, D=128, is_causal=True))
print(f"{plan.tasks} tasks on {plan.grid} CTAs; {plan.tiles.tokens_per_tile} tokens x {plan.config.ratio} heads a tile")

for role in plan.warps.roles:
    print(f"{role.name:<11} warpgroups {role.warpgroups}, warp {role.warp}, {role.registers} registers")

for region in plan.tmem.regions:
    print(f"tmem {region.name}: columns {region.start} to {region.end - 1}")

# The last task of a head is the longest: its rows see the most keys.
blocks = [plan.tiles.key_blocks(m) for m in range(plan.tiles.m_blocks)]
print(f"key blocks of a head's {len(blocks)} tasks: {blocks[0]} to {blocks[-1]}")

for edge in protocol(plan).edges:
    producers = " and ".join(producer.role for producer in edge.producers)
    print(f"{edge.name:<19} {producers} -> {', '.join(edge.consumers)}: {edge.count} arrivals; {edge.protects}")

assert "tvm" not in sys.modules
