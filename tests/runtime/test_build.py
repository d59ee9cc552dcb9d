"""build(): the attention kernel from problem to machine code."""

from __future__ import annotations

import os

import pytest

from tirx_attn import AttentionConfig
from tirx_attn.runtime import Build, build, compile_cubin, generate_cuda

CONFIG = AttentionConfig(1, 256, 128, 1, 1, 128)


@pytest.fixture(scope="module")
def built() -> Build:
    phases: list[str] = []
    result = build(CONFIG, progress=phases.append)
    assert phases == ["trace", "lower", "nvrtc"]
    return result


@pytest.mark.slow
def test_every_phase_is_timed(built):
    assert list(built.seconds) == ["trace", "lower", "nvrtc"]
    assert all(seconds > 0 for seconds in built.seconds.values())
    assert built.cubin.seconds <= built.seconds["nvrtc"]


@pytest.mark.slow
def test_parts_belong_together(built):
    assert built.source == generate_cuda(built.func, "sm_100a")
    assert built.cubin.image == compile_cubin(built.source, "sm_100a").image
    assert built.plan.config == built.config == CONFIG


@pytest.mark.slow
def test_the_kernel_fits_one_sm(built):
    resources = built.cubin.resources()
    assert resources.registers * 512 <= 64 * 1024
    assert (resources.spill_instructions, resources.spill_bytes, resources.local_bytes) == (0, 0, 0)
    assert resources.static_smem + resources.dynamic_smem <= 227 * 1024
    assert resources.barriers <= 16


@pytest.mark.slow
def test_ptxas_keeps_every_setmaxnreg_of_the_source(built):
    assert built.cubin.resources().register_requests, "ptxas dropped setmaxnreg"
    assert "setmaxnreg' ignored" not in built.cubin.log


@pytest.mark.slow
def test_forms_are_saved_under_the_agreed_names(built, tmp_path):
    folder = tmp_path / "new" / "folder"
    paths = built.save(folder, "fa4", ("cubin", "cuda", "tir", "sass"))
    assert [path.name for path in paths] == ["fa4.sm_100a.cubin", "fa4.sm_100a.cu", "fa4.tir", "fa4.sm_100a.sass"]
    assert sorted(os.listdir(folder)) == sorted(path.name for path in paths)
    assert paths[0].read_bytes() == built.cubin.image
    assert paths[1].read_text() == built.source
    assert "@T.prim_func" in paths[2].read_text()
    assert "UTCHMMA" in paths[3].read_text()


@pytest.mark.slow
def test_an_unknown_form_is_refused_before_anything_is_written(built, tmp_path):
    with pytest.raises(ValueError, match=r"emit='ptx': allowed values are cubin, cuda, tir, sass"):
        built.save(tmp_path / "out", "fa4", ("cubin", "ptx"))
    assert not (tmp_path / "out").exists()


def test_unknown_architecture_is_refused():
    with pytest.raises(ValueError, match="arch='sm_80'"):
        build(CONFIG, arch="sm_80")


@pytest.mark.slow
def test_the_other_architecture_builds_too():
    other = build(CONFIG, arch="sm_103a")
    assert other.cubin.arch == other.arch == "sm_103a"
    assert other.cubin.resources().spill_instructions == 0
