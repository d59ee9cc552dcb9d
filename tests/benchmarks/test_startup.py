"""The costs of starting: what is measured, with a compiler that stands in."""

from __future__ import annotations

import json
import time

import pytest

from benchmarks import startup
from tests.runtime.artifacts import content


def test_cold_and_warm_cache():
    calls = []

    def build(config, arch, schedule, timeout):
        calls.append(config)
        time.sleep(0.2)
        return content(config=config, arch=arch, schedule=schedule)

    found = startup.compiling("sm_90a", build=build)
    assert found["cold cache, s"] >= 0.2
    assert found["warm cache, s"] > 0
    assert calls == [startup.CONFIG]  # the warm one compiled nothing
    size = len(content(config=startup.CONFIG))
    assert found["module, bytes"] == pytest.approx(size, abs=200)


def test_the_hosts_time_per_call():
    waits = []
    calls = {"slow": lambda: time.sleep(0.001), "fast": lambda: None}
    found = startup.host_microseconds(calls, lambda: waits.append(1), rounds=3)
    assert found["slow"] >= 1000
    assert found["fast"] < found["slow"]
    assert len(waits) == 7


@pytest.mark.slow
def test_the_command_prints_what_it_measured(capsys):
    assert startup.main(["--no-compile", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)["measured"]
    assert set(measured) == {"import tirx_attn, s", "import of load, s"}
    assert all(seconds >= 0 for seconds in measured.values())
