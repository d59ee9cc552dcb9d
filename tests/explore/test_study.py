"""Studies of kernels that were built: the replay of a real task leaves no gap."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tirx_attn.commands import explore, model, output
from tirx_attn.explore import facts

SHAPE = "1,1024,1024,4,4,128"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_100a", "sm_90a"])
def test_spans_and_waits_are_all_of_a_roles_time(arch):
    study = explore._study(model.fixed_problem(SHAPE, True, arch, None, "fp16"), output.Reporter())
    time = facts(study)["time"]
    roles = {role.name: len(role.warpgroups) for role in study.plan.warps.roles}
    assert len(time["roles"]) == sum(roles.values())
    ends = []
    for role in time["roles"]:
        spans = [span for span in time["spans"] if span["lane"] == role]
        assert spans[0]["start"] == 0
        assert all(a["end"] == pytest.approx(b["start"]) for a, b in pairwise(spans)), role
        assert sum(time["cycles"][role]) <= study.prediction.block_cycles + 1e-6
        ends.append(spans[-1]["end"])
    assert max(ends) == pytest.approx(time["end"])
    tensor = [span for span in time["spans"] if span["lane"] == "tensor pipe"]
    assert {span["what"] for span in tensor} == {"QKᵀ", "PV"}
    waited = {row["edge"] for row in time["waits"]} & {edge.name for edge in study.table.edges}
    assert "kv_load.empty" in waited
    assert all(sum(row["by"].values()) == pytest.approx(1.0) for row in time["waits"])
