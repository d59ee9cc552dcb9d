"""What is said where there is nothing to load, and which file is taken."""

from __future__ import annotations

import pytest

from tests.runtime.artifacts import LOADER, content, description
from tirx_attn.runtime import ArtifactError, ToolchainError, load


@pytest.fixture
def gpu(monkeypatch):
    """Sets the architecture that the driver would name."""

    def of(arch):
        monkeypatch.setattr(LOADER, "arch_of", lambda index: arch)

    of("sm_90a")
    return of


def test_nothing(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"path='.*none.so': allowed are files that `export` wrote"):
        load(tmp_path / "none.so")


def test_no_gpu(gpu, tmp_path):
    gpu(None)
    file = tmp_path / "kernel.so"
    file.write_bytes(content())
    with pytest.raises(ArtifactError, match=r"kernel.so: the kernel is for sm_90a, but no GPU is found here"):
        load(file)


def test_a_bare_name_is_a_file_of_the_folder(gpu, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "kernel.so").write_bytes(content())
    (tmp_path / "libtvm_runtime.so").touch()
    with pytest.raises(ToolchainError, match=rf"libtvm_runtime.so cannot be loaded: {tmp_path}/libtvm_runtime.so"):
        load("kernel.so", libraries=".")


def test_without_the_runtime_libraries(gpu, tmp_path):
    (tmp_path / "kernel.so").write_bytes(content())
    with pytest.raises(ToolchainError, match=r"libtvm_runtime.so cannot be loaded"):
        load(tmp_path / "kernel.so", libraries=tmp_path)


class TestSeveralArchitectures:
    @pytest.fixture
    def path(self, tmp_path):
        for arch in ("sm_90a", "sm_100a"):
            file = tmp_path / f"kernel.{arch}.so"
            file.write_bytes(content(arch=arch, schedule=description(arch).schedule))
        return tmp_path / "kernel.so"

    @pytest.mark.parametrize("arch", ["sm_90a", "sm_100a"])
    def test_that_of_the_gpu_is_taken(self, gpu, path, arch):
        gpu(arch)
        with pytest.raises(ToolchainError):  # the file was found to be right; its library comes last
            load(path, libraries=path.parent)
        path.with_name(f"kernel.{arch}.so").write_bytes(b"other")
        with pytest.raises(ArtifactError, match=r"no file that `export` wrote"):
            load(path)

    def test_none_for_the_gpu(self, gpu, path):
        gpu("sm_103a")
        with pytest.raises(ArtifactError, match=r"there are kernel.sm_100a.so, kernel.sm_90a.so, but GPU 0 is sm_103a"):
            load(path)
