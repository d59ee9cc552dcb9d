"""`tirx-attn check` and `tirx-attn demo` on real kernels."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tests.barriers.edited import edited
from tests.barriers.faults import FAULTS, LATE, Fault
from tirx_attn.barriers import PROTOCOL_ATTRIBUTE
from tirx_attn.commands import proof
from tirx_attn.commands.demo import KERNELS
from tirx_attn.verify.process import SimulatorUnavailable

pytestmark = pytest.mark.slow

SHAPE = "1,256,128,1,1,128"
PROVED_BY = ("tirx_attn/commands/proof.py", "tirx_attn/verify/simulator.py", "tirx_attn/verify/process.py")


@pytest.mark.simulator
@pytest.mark.recorded(*PROVED_BY, "tirx_attn/commands/check.py")
def test_a_kernel_passes(tirx_attn):
    result = tirx_attn("check", "--shape", SHAPE, "--time-limit", "1500", "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    document = json.loads(result.stdout)
    assert document["verdict"] == "passed"
    assert [step["status"] for step in document["steps"]] == ["passed"] * 10
    assert all(step["error"] <= step["bound"] for step in document["steps"] if step["step"] == "numbers")
    assert len(result.stderr.splitlines()) >= 11


@pytest.mark.simulator
@pytest.mark.recorded(*PROVED_BY, "tirx_attn/commands/demo.py")
def test_the_demo_passes(tirx_attn):
    result = tirx_attn("demo", "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    document = json.loads(result.stdout)
    assert document["verdict"] == "passed"
    assert [kernel["name"] for kernel in document["kernels"]] == list(KERNELS)
    for kernel in document["kernels"]:
        assert kernel["machine_code"]["resources"]["spill_instructions"] == 0
        assert [step["status"] for step in kernel["steps"]] == ["passed"] * 10


def test_the_data_type_is_the_kernels(tirx_attn, monkeypatch):
    from tirx_attn import kernel

    monkeypatch.setattr(kernel, "build_kernel", lambda plan: plan.config)
    proved = []
    monkeypatch.setattr(proof, "prove", lambda config, problem, *_: proved.append((config, problem.config)) or [])
    result = tirx_attn("check", "--shape", SHAPE, "--dtype", "bf16", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["config"]["dtype"] == "bfloat16"
    (configs,) = proved
    assert [config.dtype for config in configs] == ["bfloat16", "bfloat16"]


def test_without_the_simulator_the_rest_is_skipped_and_that_is_no_success(tirx_attn, monkeypatch):
    def missing():
        raise SimulatorUnavailable("cargo is missing: install it")

    monkeypatch.setattr(proof, "require_simulator", missing)
    result = tirx_attn("check", "--shape", SHAPE)
    assert result.exit_code == 1
    assert "structure" in result.stdout
    assert "cargo is missing: install it" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("skipped in")


def test_a_count_that_is_wrong_stops_at_the_structural_check(tirx_attn, monkeypatch):
    from tirx_attn import kernel

    build_kernel = kernel.build_kernel

    def miscounted(plan):
        func = build_kernel(plan)
        declared = json.loads(str(func.attrs[PROTOCOL_ATTRIBUTE]))
        (edge,) = [edge for edge in declared["protocol"]["edges"] if edge["name"] == "p_o_rescale"]
        edge["count"] = 128
        return func.with_attr(PROTOCOL_ATTRIBUTE, json.dumps(declared))

    monkeypatch.setattr(kernel, "build_kernel", miscounted)
    monkeypatch.setattr(proof, "require_simulator", lambda: pytest.fail("the simulator was asked for"))
    result = tirx_attn("check", "--shape", SHAPE, "--json")
    assert result.exit_code == 1
    steps = json.loads(result.stdout)["steps"]
    assert steps[0]["status"] == "failed"
    assert any("p_o_rescale" in finding["message"] for finding in steps[0]["findings"])
    assert {step["status"] for step in steps[1:]} == {"skipped"}


def test_runs_can_be_left_out(tirx_attn, monkeypatch):
    monkeypatch.setattr(proof, "simulated_step", lambda *_: pytest.fail("the simulator was asked for"))
    result = tirx_attn("check", "--shape", SHAPE, "--simulate", "none", "--json")
    assert result.exit_code == 0, result.stderr
    assert [step["step"] for step in json.loads(result.stdout)["steps"]] == ["structure"]


@pytest.mark.parametrize("text", ["", "synch", "all,numbers", "numbers,none"])
def test_runs_that_do_not_exist_are_refused(tirx_attn, text):
    result = tirx_attn("check", "--shape", SHAPE, "--simulate", text)
    assert result.exit_code == 2
    assert "--simulate" in result.stderr
    assert "numbers, synccheck, racecheck" in result.stderr


def test_the_markdown_has_no_times(tirx_attn, monkeypatch):
    finding = {"kind": "deadlock", "message": "s_ready: deadlock, softmax 0 waits\n  in CTA 0"}
    failed = proof.Step("structure", None, proof.FAILED, "error, 1 finding: s_ready: deadlock", [finding], seconds=1.5)
    monkeypatch.setattr(proof, "check_structure", lambda func, plan: failed)
    result = tirx_attn("check", "--shape", SHAPE, "--simulate", "none", "--markdown")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "| step | input | status | result |",
        "|---|---|---|---|",
        "| structure | - | failed | error, 1 finding |",
        "structure deadlock: s_ready: deadlock, softmax 0 waits",
        "  in CTA 0",
        "failed",
    ]


def command_on(folder, fault, *options: str):
    """The command on the short launch of a fault, in a copy of the package that has it."""
    shape = ",".join(map(str, fault.short))
    mask = ["--causal"] if fault.is_causal else []
    with edited(folder, fault.edits):
        from tirx_attn.cli import app

        return CliRunner().invoke(
            app, ["check", "--shape", shape, *mask, "--arch", fault.arch, "--simulate", "none", *options]
        )


@pytest.mark.parametrize("name", ["V released a query tile early", "phase of the staging memory stands still"])
def test_a_fault_that_the_shape_has_no_use_of_is_found_in_another_launch(tmp_path, name):
    result = command_on(tmp_path, FAULTS[name], "--json")
    assert result.exit_code == 1, result.output
    (structure,) = json.loads(result.stdout)["steps"]
    assert (structure["status"], structure["findings"][0]["kind"]) == ("failed", FAULTS[name].kind)
    launch = structure["exercised"]["launches"][-1]
    assert structure["findings"][0]["message"].endswith(f"\n  in a launch of {launch}")
    assert launch.startswith("B=")


def test_a_store_that_nobody_waits_for_after_the_last_one(tmp_path):
    result = command_on(tmp_path, Fault(LATE, "sm_90a", False, (1, 256, 384, 2, 1, 128), (), "", "", ""))
    assert result.exit_code == 1
    message = "TMA store from ctx_o_rows by store, then the end of the CTA, not ordered"
    assert f"structure in flight: {message}" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("failed in")


def test_what_was_not_exercised_is_listed_and_no_failure(tirx_attn):
    """A CTA of a causal launch takes one task, so it waits for no Q slot again."""
    options = ["--shape", "1,256,256,2,1,128", "--causal", "--simulate", "none"]
    result = tirx_attn("check", *options, "--json")
    assert result.exit_code == 0, result.stderr
    (structure,) = json.loads(result.stdout)["steps"]
    found = structure["exercised"]
    assert "q_load.empty[0, 1]: phase 0 never, phase 1 never" in found["unseen"]
    assert len(found["launches"]) == 2
    waits = {(each["edge"], each["slot"]): each["waits"] for each in found["edges"]}
    assert waits["q_load.full", 0] == [1, 0]
    assert min(n for slot in range(3) for n in waits["kv_load.empty", slot]) >= 2
    assert {each["branch"].split()[0] for each in found["branches"]} == {"branch", "loop"}
    table = " ".join(tirx_attn("check", *options).stdout.split())
    assert "│ exercised │ - │ │ not twice: q_load.full[0, 1]: phase 0 once, phase 1 never;" in table


def test_a_kernel_for_hopper_is_proved_by_structure(tirx_attn):
    """Its other steps do not apply here, which is no failure; on a machine with such a GPU the numbers do."""
    result = tirx_attn("check", "--shape", "1,300,384,2,1,128", "--causal", "--arch", "sm_90a", "--json")
    assert result.exit_code == 0, result.stdout + result.stderr
    document = json.loads(result.stdout)
    assert (document["verdict"], document["schedule"]["ping_pong"]) == ("passed", True)
    structure, *others = document["steps"]
    assert (structure["step"], structure["status"], structure["verdict"]) == ("structure", "passed", "clean")
    on_gpu = {step["status"] for step in others if step["step"] == "numbers"}
    assert on_gpu in ({"not applicable"}, {"passed"})
    rest = [step for step in others if step["step"] != "numbers"]
    assert {(step["status"], step["detail"]) for step in rest} == {
        ("not applicable", "the simulator does not model sm_90a")
    }


def test_mutants_of_an_architecture(tirx_attn, monkeypatch):
    from tirx_attn.verify import mutation_hopper

    names = ("base/1", "drop wait", "kv_load.full", "consumer", "kv_load.full")
    outcome = mutation_hopper.Outcome(*names, "structural", None, 0.0, "")
    monkeypatch.setattr(mutation_hopper, "run_hopper_mutants", lambda notes: iter([outcome]))
    result = tirx_attn("mutants", "--arch", "sm_90a", "--json")
    assert result.exit_code == 0, result.stderr
    assert [mutant["caught_by"] for mutant in json.loads(result.stdout)["mutants"]] == ["structural"]
