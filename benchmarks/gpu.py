"""The GPU that is measured on: its clocks and power (NVML), its events (torch), and what is installed."""

from __future__ import annotations

import importlib.metadata
import platform
import threading
import time
from statistics import median
from types import TracebackType
from typing import Any

PACKAGES = ("torch", "triton", "jax", "jaxlib", "nvidia-cudnn-cu13", "apache-tvm-ffi", "tirx-attn")
KEYS = ("sm_mhz", "watts", "celsius")


class CudaClock:
    """Events on torch's current stream."""

    spin_cycles = 2_000_000
    """Cycles of one idle thread in front of a sample from cool: about 1 ms."""

    def __init__(self) -> None:
        import torch

        self.cuda = torch.cuda

    def mark(self) -> Any:
        event = self.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self, mark: Any) -> None:
        mark.synchronize()

    def milliseconds(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end)

    def delay(self) -> None:
        self.cuda._sleep(self.spin_cycles)

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class Sampler:
    """Reads SM clock, power and temperature in a thread while the block runs.

    Args:
        uuid: the GPU, as NVML writes it (`GPU-...`).
        period: seconds between two readings.
    """

    def __init__(self, uuid: str, period: float = 0.02) -> None:
        import pynvml

        self.nvml = pynvml
        pynvml.nvmlInit()
        self.handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self.period = period
        self.samples: list[tuple[float, dict[str, float]]] = []
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop.set()
        self.thread.join(timeout=5)

    def read(self) -> dict[str, float]:
        """SM clock in MHz, power in watts (of the moment where the driver gives it), temperature in °C."""
        n = self.nvml
        return {
            "sm_mhz": float(n.nvmlDeviceGetClockInfo(self.handle, n.NVML_CLOCK_SM)),
            "watts": self._watts(),
            "celsius": float(n.nvmlDeviceGetTemperature(self.handle, n.NVML_TEMPERATURE_GPU)),
        }

    def window(self, start: float, end: float) -> dict[str, float]:
        """Medians of the readings between two times of `time.monotonic()`; one reading now if there was none."""
        found = [values for at, values in list(self.samples) if start <= at <= end]
        if not found:
            return {**self.read(), "samples": 0}
        return {**{key: median([values[key] for values in found]) for key in KEYS}, "samples": len(found)}

    def facts(self) -> dict[str, Any]:
        """Name, UUID, driver and power limit of the GPU."""
        n = self.nvml
        return {
            "name": _text(n.nvmlDeviceGetName(self.handle)),
            "uuid": _text(n.nvmlDeviceGetUUID(self.handle)),
            "driver": _text(n.nvmlSystemGetDriverVersion()),
            "power_limit_watts": n.nvmlDeviceGetEnforcedPowerLimit(self.handle) / 1e3,
            "max_sm_mhz": n.nvmlDeviceGetMaxClockInfo(self.handle, n.NVML_CLOCK_SM),
        }

    def _watts(self) -> float:
        n = self.nvml
        value = n.nvmlDeviceGetFieldValues(self.handle, [n.NVML_FI_DEV_POWER_INSTANT])[0]
        if value.nvmlReturn == n.NVML_SUCCESS:
            return value.value.uiVal / 1e3
        return n.nvmlDeviceGetPowerUsage(self.handle) / 1e3  # an average over up to a second

    def _run(self) -> None:
        while not self.stop.wait(self.period):
            self.samples.append((time.monotonic(), self.read()))


def torch_uuid() -> str:
    """UUID of torch's current device, as NVML writes it."""
    import torch

    uuid = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    return uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that the results depend on; absent ones are left out."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
