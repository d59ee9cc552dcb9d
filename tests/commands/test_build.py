"""`tirx-attn build`: files, figures, and what an interrupt leaves behind."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
SHAPE = "1,256,384,2,1,128"
STEM = "flash_attention4_b1_sq256_skv384_hq2_hkv1_d128"


def test_everything_for_both_architectures(tirx_attn, tmp_path):
    folder = tmp_path / "new" / "folder"
    arguments = ["--shape", SHAPE, "--arch", "sm_100a", "--arch", "sm_103a", "--emit", "cubin,cuda,tir,sass"]
    result = tirx_attn("build", *arguments, "-o", str(folder), "--json")
    assert result.exit_code == 0, result.stderr
    builds = json.loads(result.stdout)["builds"]
    assert [build["arch"] for build in builds] == ["sm_100a", "sm_103a"]
    expected = {f"{STEM}.{arch}.{kind}" for arch in ("sm_100a", "sm_103a") for kind in ("cubin", "cu", "tir", "sass")}
    assert {path.name for path in folder.iterdir()} == expected
    assert {Path(name).name for build in builds for name in build["files"]} == expected
    for build in builds:
        assert set(build["seconds"]) == {"trace", "lower", "nvrtc"}
        assert build["nvrtc_version"].startswith("13.")
        resources = build["resources"]
        # 65536 registers over the 512 threads of a launch
        assert resources["registers"] == 128
        assert resources["register_requests"] == [192, 80, 48]
        assert resources["spill_instructions"] == 0
        assert resources["dynamic_smem"] == 232448
    assert (folder / f"{STEM}.sm_100a.cubin").read_bytes()[:4] == b"\x7fELF"
    assert "setmaxnreg" in (folder / f"{STEM}.sm_100a.cu").read_text()
    assert "USETMAXREG" in (folder / f"{STEM}.sm_103a.sass").read_text()
    assert "def flash_attention4[" in (folder / f"{STEM}.sm_103a.tir").read_text()  # [the strides]


def test_a_kernel_for_all_lengths(tirx_attn, tmp_path):
    options = ["--causal", "--dtype", "bf16", "--lse", "--scale", "runtime", "--emit", "cubin,cuda"]
    result = tirx_attn("build", "--shape", "_,_,_,14,2,64", *options, "-o", str(tmp_path), "--json")
    assert result.exit_code == 0, result.stderr
    (build,) = json.loads(result.stdout)["builds"]
    config = {"B": None, "Sq": None, "Skv": None, "dtype": "bfloat16", "scale": "runtime", "return_lse": True}
    assert build["config"] | config == build["config"]
    assert [parameter["name"] for parameter in build["parameters"]] == ["Q", "K", "V", "O", "LSE", "scale"]
    assert build["parameters"][4] == {"name": "LSE", "dtype": "float32", "shape": "[B, 14, Sq]"}
    assert build["resources"]["registers"] == 128
    assert build["resources"]["register_requests"] == [192, 80, 48]
    # Q and O have two tiles each, of 128 x 64 x 2 bytes; acc_scale and barriers take 1024 bytes each
    tiles = 4 + build["schedule"]["kv_stages"]
    assert build["resources"]["dynamic_smem"] == tiles * 128 * 64 * 2 + 2 * 1024
    stem = "flash_attention4_b_sq_skv_hq14_hkv2_d64_causal_bf16_lse_scale_runtime.sm_100a"
    assert {path.name for path in tmp_path.iterdir()} == {f"{stem}.cubin", f"{stem}.cu"}
    assert (tmp_path / f"{stem}.cubin").read_bytes()[:4] == b"\x7fELF"
    source = (tmp_path / f"{stem}.cu").read_text()
    assert "nv_bfloat16" in source
    assert "float scale" in source


def test_readable(tirx_attn, tmp_path):
    result = tirx_attn("build", "--shape", SHAPE, "-o", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    assert "192, 80, 48" in result.stdout
    assert result.stdout.splitlines()[-1] == str(tmp_path / f"{STEM}.sm_100a.cubin")
    assert [path.name for path in tmp_path.iterdir()] == [f"{STEM}.sm_100a.cubin"]


@pytest.mark.parametrize("delay", [0.5, 2.0])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_leaves_nothing(tmp_path, delay, number, status):
    """Wherever it falls, in Python or in TVM. A shell that starts this in the background has SIGINT ignored."""
    folder = tmp_path / "out"
    command = [sys.executable, "-m", "tirx_attn", "build", "--shape", SHAPE, "-o", str(folder), "--json"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    ) as process:
        assert process.stderr is not None
        assert "to machine code" in process.stderr.readline()
        time.sleep(delay)
        process.send_signal(number)
        out, err = process.communicate(timeout=600)
    assert (process.returncode, out) == (status, "")
    assert "Traceback" not in err
    assert not folder.exists() or not list(folder.iterdir())
