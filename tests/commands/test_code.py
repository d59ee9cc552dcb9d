"""`tirx-attn code`: figures of a recorded cubin in each form of output, and of a kernel that is built."""

from __future__ import annotations

import json

import pytest

from tests.analysis import recorded


@pytest.fixture
def cubin(tmp_path):
    file = tmp_path / "attention.cubin"
    file.write_bytes(recorded.image())
    return str(file)


def test_json(tirx_attn, cubin):
    result = tirx_attn("code", "--cubin", cubin, "--json")
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    assert (document["command"], document["file"]) == ("code", cubin)
    assert document["report"] == json.loads(json.dumps(recorded.report().to_dict()))


def test_readable(tirx_attn, cubin):
    result = tirx_attn("code", "--cubin", cubin)
    assert result.exit_code == 0, result.stderr
    text = result.stdout
    report = recorded.report()
    softmax, mma = report.role("softmax"), report.role("mma")
    assert text.startswith(f"flash_attention4_kernel of {cubin} (sm_100a)\n")
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    for row in (
        ["registers by setmaxnreg", "200, 64, 48"],
        ["assembler", "13.2.78"],
        ["from", f"{softmax.start:#x}"],
        ["around", f"{softmax.start:#x} to {softmax.end:#x}"],
        ["stall cycles", f"{softmax.stalls:,}"],
        ["exponentials emulated", "24 (18.75%)"],
        ["cycles to the P arrivals", ", ".join(map(str, softmax.p_arrivals))],
        ["MUFU.EX2", "105"],
        ["instructions", str(mma.instructions)],
        ["UTC*MMA", "16"],
    ):
        assert row in cells
    for role in ("softmax", "masked", "correction", "mma", "load"):
        assert f"\n{role} loop" in text
    for unit in ("per thread, query tile and key tile", "per warp, query tile and key tile", "per warp and iteration"):
        assert unit in text


def test_figures_are_for_a_tile(tirx_attn, cubin):
    """An iteration of the correction loop serves both query tiles."""
    lines = tirx_attn("code", "--cubin", cubin, "--markdown").stdout.splitlines()
    header = next(line for line in lines if line.startswith("| loop |"))
    column = [cell.strip() for cell in header.split("|")].index("correction")
    values = {row[1]: row[column] for row in ([cell.strip() for cell in line.split("|")] for line in lines) if row[1:]
              and len(row) > column}  # fmt: skip
    correction = recorded.report().role("correction")
    assert values["tiles an iteration"] == "2"
    assert values["stall cycles"] == f"{correction.stalls / 2:g}"
    assert values["LDTM"] == f"{correction.kinds['LDTM'] / 2:g}"


def test_the_head_size_counts_the_tiles(tirx_attn, cubin):
    """As if the same code belonged to a head size of 64: O has half of the columns."""
    document = json.loads(tirx_attn("code", "--cubin", cubin, "--head-size", "64", "--json").stdout)
    correction = document["report"]["loops"][document["report"]["roles"]["correction"]]
    assert correction["tiles"] == correction["ldtm_columns"] / 64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--shape is missing: allowed is either --shape or --cubin"),
        (["--cubin", "no/such.cubin"], "--cubin no/such.cubin: No such file or directory; allowed are cubins"),
        (["--cubin", __file__], "the machine code is not a 64-bit ELF file; allowed are cubins of one kernel"),
        (["--cubin", "a", "--shape", "1,256,256,2,1,128"], "--cubin a with --shape: allowed are --head-size"),
        (["--cubin", "a", "--causal"], "--cubin a with --causal: allowed are --head-size"),
        (["--cubin", "a", "--arch", "sm_90a"], "--cubin a with --arch: allowed are --head-size"),
        (["--cubin", "a", "--head-size", "96"], "--head-size 96: allowed values are 64, 128"),
        (["--shape", "1,2,3"], "--shape '1,2,3' has 3 values: allowed are six integers"),
        (["--shape", "1,256,256,2,1,128", "--head-size", "64"], "--head-size 64: allowed with --cubin only"),
        (["--shape", "1,256,256,2,1,128", "--schedule", "x=1"], "KEY='x': allowed values are pv_split"),
    ],
)
@pytest.mark.parametrize("json_option", [[], ["--json"]], ids=["text", "json"])
def test_bad_values_are_named_on_stderr(tirx_attn, arguments, message, json_option):
    result = tirx_attn("code", *arguments, *json_option)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


def test_one_form_of_output(tirx_attn, cubin):
    result = tirx_attn("code", "--cubin", cubin, "--markdown", "--json")
    assert result.exit_code == 2
    assert "--markdown with --json: allowed is one of them" in result.stderr


@pytest.mark.slow
def test_a_kernel_that_is_built(tirx_attn):
    options = ["--causal", "--schedule", "emulated_pairs=0,0,0,0", "--json"]
    result = tirx_attn("code", "--shape", "_,_,_,2,1,64", *options)
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    report = document["report"]
    assert document["config"]["D"] == report["head_size"] == 64
    loops = {role: report["loops"][index] for role, index in report["roles"].items()}
    assert loops["softmax"]["emulated"] == 0
    assert loops["softmax"]["kinds"]["MUFU.EX2"] == 128
    assert loops["mma"]["tiles"] == 1
