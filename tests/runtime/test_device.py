"""The GPU's architecture, asked of a driver that stands in for the real one."""

from __future__ import annotations

import ctypes

import pytest

from tirx_attn.runtime import device


class Driver:
    """Devices by their compute capability, as the CUDA driver would answer; `init` is what cuInit returns."""

    def __init__(self, *capabilities, init=0):
        self.capabilities, self.init = capabilities, init

    def cuInit(self, flags):
        return self.init

    def cuDeviceGet(self, found, index):
        if index >= len(self.capabilities):
            return 101
        found._obj.value = index
        return 0

    def cuDeviceGetAttribute(self, value, attribute, index):
        value._obj.value = self.capabilities[index.value][{75: 0, 76: 1}[attribute]]
        return 0


@pytest.fixture
def driver(monkeypatch):
    def use(found):
        def load(name):
            assert name == "libcuda.so.1"
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(ctypes, "CDLL", load)

    return use


def test_each_device_has_its_own(driver):
    driver(Driver((9, 0), (10, 0), (10, 3)))
    assert [device.arch_of(index) for index in range(4)] == ["sm_90a", "sm_100a", "sm_103a", None]
    assert device.arch_of() == "sm_90a"


@pytest.mark.parametrize("found", [OSError("no such file"), Driver((9, 0), init=100), object()])
def test_none(driver, found):
    """No driver, one that does not start, and something else of its name."""
    driver(found)
    assert device.arch_of() is None
