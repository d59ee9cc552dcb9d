"""Which GPU this machine has, asked of the driver: no framework is loaded, and no context is made."""

from __future__ import annotations

import ctypes

DRIVER = "libcuda.so.1"

CAPABILITY = (75, 76)
"""cuDeviceGetAttribute's numbers for the major and the minor compute capability."""


def arch_of(index: int = 0) -> str | None:
    """Architecture of a GPU, such as "sm_90a"; None where there is no driver or no such GPU.

    Args:
        index: the driver's number of the device.
    """
    try:
        return _asked(ctypes.CDLL(DRIVER), index)
    except (OSError, AttributeError):  # no library, or one of this name that stands in for it
        return None


def _asked(driver: ctypes.CDLL, index: int) -> str | None:
    device, number = ctypes.c_int(), ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGet(ctypes.byref(device), index) != 0:
        return None
    found = []
    for attribute in CAPABILITY:
        if driver.cuDeviceGetAttribute(ctypes.byref(number), attribute, device) != 0:
            return None
        found.append(number.value)
    return arch_name(*found)


def arch_name(major: int, minor: int) -> str:
    """The name under which code for a compute capability is generated: with "a", since kernels use all it has."""
    return f"sm_{major}{minor}a"
