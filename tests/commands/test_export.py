"""`tirx-attn export` and `tirx-attn cache`: what they write and show; the compiler is a stand-in."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module

import pytest

from tests.runtime.artifacts import CONFIG, content
from tirx_attn.family import plan_for
from tirx_attn.runtime import KernelCache
from tirx_attn.runtime.artifact import unseal

SHAPE = "_,_,_,4,2,128"
CONFIG_FULL = replace(CONFIG, is_causal=False)


@pytest.fixture
def calls(monkeypatch):
    """Calls of the compiler."""
    made = []

    def library(config, arch, schedule, timeout):
        made.append((config, arch, schedule, timeout))
        return content(config=config, arch=arch, schedule=plan_for(config, schedule, arch).schedule)

    monkeypatch.setattr(import_module("tirx_attn.runtime.export"), "library", library)
    return made


class TestExport:
    def test_one_architecture(self, tirx_attn, calls, tmp_path):
        result = tirx_attn("export", "--shape", SHAPE, "--causal", "-o", str(tmp_path / "a.so"), "--json")
        assert result.exit_code == 0, result.stderr
        document = json.loads(result.stdout)
        (file,) = document["files"]
        assert (file["path"], file["arch"], file["config"]["Hq"]) == (str(tmp_path / "a.so"), "sm_100a", 4)
        assert file["bytes"] == (tmp_path / "a.so").stat().st_size
        assert unseal((tmp_path / "a.so").read_bytes(), "a.so").config == CONFIG

    def test_several(self, tirx_attn, calls, tmp_path):
        result = tirx_attn(
            "export", "--shape", SHAPE, "--arch", "sm_100a", "--arch", "sm_90a", "-o", str(tmp_path / "a.so"),
            "--dtype", "bf16", "--lse", "--scale", "runtime", "--timeout", "77",
        )  # fmt: skip
        assert result.exit_code == 0, result.stderr
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.sm_100a.so", "a.sm_90a.so"]
        assert [arch for _, arch, _, _ in calls] == ["sm_100a", "sm_90a"]
        config, _, schedule, timeout = calls[0]
        assert (config.dtype, config.return_lse, config.scale) == ("bfloat16", True, "runtime")
        assert (schedule, timeout) == (plan_for(config, arch="sm_100a").schedule, 77)
        assert "a.sm_90a.so" in result.stdout
        assert "apache-tvm 0.27." in result.stdout

    def test_a_knob(self, tirx_attn, calls, tmp_path):
        result = tirx_attn(
            "export", "--shape", SHAPE, "--schedule", "stagger=true", "-o", str(tmp_path / "a.so"), "--json"
        )
        assert result.exit_code == 0, result.stderr
        assert calls[0][2].stagger is True

    def test_a_knob_leaves_what_is_tuned_for_each_architecture(self, tirx_attn, calls, tmp_path):
        archs = ("sm_100a", "sm_103a")
        options = [word for arch in archs for word in ("--arch", arch)]
        path = str(tmp_path / "a.so")
        result = tirx_attn("export", "--shape", SHAPE, *options, "--schedule", "stagger=true", "-o", path)
        assert result.exit_code == 0, result.stderr
        tuned = [replace(plan_for(CONFIG_FULL, arch=arch).schedule, stagger=True) for arch in archs]
        assert [schedule for _, _, schedule, _ in calls] == tuned
        assert tuned[0] != tuned[1]


class TestCache:
    @pytest.fixture
    def folder(self, tmp_path):
        KernelCache(tmp_path, build=lambda config, arch, *_: content(config=config, arch=arch)).get(CONFIG, "sm_90a")
        return tmp_path

    def test_what_is_there(self, tirx_attn, folder):
        result = tirx_attn("cache", "--folder", str(folder))
        assert result.exit_code == 0, result.stderr
        assert "1 kernels" in result.stdout
        assert "causal Hq=4 Hkv=2 D=128 fp16" in result.stdout
        document = json.loads(tirx_attn("cache", "--folder", str(folder), "--json").stdout)
        (entry,) = document["entries"]
        assert entry["description"]["arch"] == "sm_90a"
        assert (document["limit_bytes"], document["removed"]) == (1 << 30, 0)

    def test_a_damaged_one_is_shown_as_such(self, tirx_attn, folder):
        (path,) = folder.glob("*.so")
        path.write_bytes(b"half")
        assert "damaged" in tirx_attn("cache", "--folder", str(folder)).stdout
        assert (
            json.loads(tirx_attn("cache", "--folder", str(folder), "--json").stdout)["entries"][0]["description"]
            is None
        )

    @pytest.mark.parametrize(
        ("values", "status", "message"),
        [
            ({"TIRX_ATTN_CACHE": "/dev/null"}, 2, "tirx-attn cache: TIRX_ATTN_CACHE=/dev/null: allowed are folders"),
            ({"TIRX_ATTN_CACHE": "kernels"}, 2, "tirx-attn cache: TIRX_ATTN_CACHE='kernels': allowed are absolute"),
            ({}, 1, "tirx-attn cache: there is no home folder to keep kernels in: set TIRX_ATTN_CACHE to a folder"),
        ],
    )
    def test_variables_that_name_no_folder(self, tirx_attn, monkeypatch, values, status, message):
        def unknown(_):
            raise KeyError("getpwuid(): uid not found")

        monkeypatch.setattr("pwd.getpwuid", unknown)
        for name in ("HOME", "XDG_CACHE_HOME", "TIRX_ATTN_CACHE"):
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        result = tirx_attn("cache")
        assert (result.exit_code, result.stdout) == (status, "")
        assert result.stderr.startswith(message)
        assert len(result.stderr.splitlines()) == 1

    def test_clearing(self, tirx_attn, folder):
        document = json.loads(tirx_attn("cache", "--folder", str(folder), "--clear", "--json").stdout)
        assert (document["removed"], document["entries"]) == (1, [])
        assert list(folder.glob("*.so")) == []

    def test_none_yet(self, tirx_attn, tmp_path):
        result = tirx_attn("cache", "--folder", str(tmp_path / "none"), "--json")
        assert json.loads(result.stdout)["entries"] == []
        assert not (tmp_path / "none").exists()
