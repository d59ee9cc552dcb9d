"""What a kernel was made by: the process that compiles it says so, and it is filed under no other name."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.runtime.artifacts import CONFIG, content, description
from tests.runtime.packages import copied_package, run_script
from tirx_attn import HopperSchedule
from tirx_attn.runtime import CompileError, KernelCache, export_child
from tirx_attn.runtime.artifact import unseal
from tirx_attn.runtime.origin import PACKAGES, copy_source, installed, origin, source_hash

ARCH = "sm_90a"
OURS = description()

EDITED = """
import sys
sys.path.insert(0, {checkout!r})
from pathlib import Path
from tirx_attn import AttentionConfig
from tirx_attn.family import plan_for
from tirx_attn.runtime import KernelCache
from tirx_attn.runtime.artifact import unseal
config = AttentionConfig(None, None, None, 2, 1, 64)
kernels = KernelCache("kernels")
kernels.path(config, "sm_90a", plan_for(config, None, "sm_90a").schedule)   # the source's hash is known from here on
file = Path({checkout!r}, "tirx_attn", {edited!r})
before = file.read_text()
file.write_text(before + "# edited\\n")
try:
    kernels.get(config, "sm_90a", timeout=1500)
except Exception as error:
    print(type(error).__name__, error)
print([one.path.name for one in kernels.entries()])
file.write_text(before)
if {again}:
    path = kernels.get(config, "sm_90a", timeout=1500)
    print(unseal(path.read_bytes(), "it").config == config)
"""

CHANGED = "CompileError the files of tirx_attn changed while this process ran: start it again\n[]\n"


class TestSource:
    @pytest.mark.slow
    def test_an_edited_role_is_not_filed_under_the_name_of_the_old_source(self, tmp_path):
        package, cwd = copied_package(tmp_path / "checkout"), tmp_path / "cwd"
        cwd.mkdir()
        code = EDITED.format(checkout=str(package.parent), edited="roles/correction.py", again=True)
        assert run_script(code, cwd) == CHANGED + "True\n"

    def test_nor_is_any_other_file(self, tmp_path):
        package, cwd = copied_package(tmp_path / "checkout"), tmp_path / "cwd"
        cwd.mkdir()
        code = EDITED.format(checkout=str(package.parent), edited="hopper/new_role.py", again=False)
        code = code.replace("before = file.read_text()", "before = ''")
        assert run_script(code, cwd) == CHANGED

    def test_bytecode_of_an_earlier_edit_is_not_what_the_child_imports(self, tmp_path):
        """An edit of equal size within the resolution of the file's time: Python takes the old bytecode."""
        package, cwd = copied_package(tmp_path / "checkout"), tmp_path / "cwd"
        cwd.mkdir()
        start = f"import sys\nsys.path.insert(0, {str(package.parent)!r})\n"
        keeps = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": ""}
        run_script(f"{start}import tirx_attn.runtime.export_child", cwd, **keeps)
        file = package / "runtime" / "toolchain.py"
        times = file.stat().st_atime_ns, file.stat().st_mtime_ns
        file.write_text(file.read_text().replace("libcudart.so.13", "libcudart.so.98"))
        os.utime(file, ns=times)
        ask = f"{start}from tirx_attn.runtime import toolchain\nprint(toolchain.CUDA_RUNTIME)\n"
        assert run_script(ask, cwd, **keeps) == "libcudart.so.13\n"  # the old bytecode
        get = (
            f"{start}from tirx_attn import AttentionConfig\nfrom tirx_attn.runtime import KernelCache\n"
            "try:\n    KernelCache('kernels').get(AttentionConfig(None, None, None, 2, 1, 64), 'sm_90a')\n"
            "except Exception as error:\n    print(error)\n"
        )
        assert run_script(get, cwd, **keeps) == "libcudart.so.98 is not installed: install nvidia-cuda-runtime\n"

    def test_the_copy_is_what_its_hash_says(self, tmp_path):
        copy_source(tmp_path)
        assert source_hash(tmp_path / "tirx_attn") == source_hash() == origin().source
        assert not list(tmp_path.rglob("__pycache__"))

    def test_files_that_vanish_while_they_are_copied(self, tmp_path, monkeypatch):
        def gone(self):
            raise FileNotFoundError(str(self))

        origin()
        monkeypatch.setattr("pathlib.Path.read_bytes", gone)
        with pytest.raises(CompileError, match=r"^the files of tirx_attn changed while this process ran"):
            copy_source(tmp_path)


class TestNames:
    """A compiler that made another kernel than was asked for, and files that are not what their name says."""

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"versions": {**OURS.versions, "apache-tvm": "0.99"}}, r"made by apache-tvm 0\.99 in place of 0\.2"),
            ({"versions": {**OURS.versions, "apache-tvm-ffi": "0.99"}}, r"made by apache-tvm-ffi 0\.99 in place of 0"),
            ({"versions": {**OURS.versions, "nvidia-cuda-nvrtc": "12.9"}}, r"made by nvidia-cuda-nvrtc 12\.9 in place"),
            ({"versions": {**OURS.versions, "nvidia-cuda-cccl": "1"}}, r"made by nvidia-cuda-cccl 1 in place of"),
            ({"versions": {"apache-tvm": OURS.versions["apache-tvm"]}}, r"nvidia-cuda-crt missing in place of 1"),
            ({"generator_sha256": "0" * 64}, r"made by source of tirx-attn 0+ in place of [0-9a-f]{64}: start"),
            ({"config": replace(CONFIG, Hq=8)}, r"another kernel than was asked for: .*Hq=8"),
            ({"schedule": HopperSchedule(ping_pong=False)}, r"another kernel than was asked for: .*ping_pong=False"),
        ],
    )
    def test_another_kernel_is_refused(self, tmp_path, changes, message):
        kernels = KernelCache(tmp_path, build=lambda *_: content(**changes))
        with pytest.raises(CompileError, match=message):
            kernels.get(CONFIG, ARCH)
        assert kernels.entries() == []

    def test_a_file_with_the_name_of_another_is_built_again(self, tmp_path, caplog):
        kernels = KernelCache(tmp_path, build=lambda config, *_: content(config=config))
        other = replace(CONFIG, Hq=8)
        path = kernels.get(CONFIG, ARCH)
        shutil.copy(path, kernels.path(other, ARCH, OURS.schedule))
        with caplog.at_level(logging.WARNING, "tirx_attn"):
            found = kernels.get(other, ARCH)
        assert unseal(found.read_bytes(), "it").config == other
        assert "another kernel than its name says" in caplog.text


class TestVersions:
    cubin = SimpleNamespace(nvrtc_version="13.1")

    def test_they_are_those_of_what_was_loaded(self):
        before = installed(*PACKAGES)
        found = export_child.loaded(before, {"apache-tvm": "0.28.dev1"}, self.cubin)
        assert found["apache-tvm"] == "0.28.dev1"
        assert found["nvidia-cuda-nvrtc"] == "13.1"  # a CUDA toolkit's, say
        assert found["nvidia-cuda-cccl"] == before["nvidia-cuda-cccl"]

    def test_an_upgrade_while_it_compiles(self):
        before = {**installed(*PACKAGES), "nvidia-cuda-cccl": "13.0"}
        with pytest.raises(CompileError, match=r"packages were installed while the kernel was compiled"):
            export_child.loaded(before, {}, self.cubin)
