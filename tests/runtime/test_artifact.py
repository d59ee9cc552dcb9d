"""What stands behind the library in an exported file, and two hundred files that were damaged or do not fit."""

from __future__ import annotations

import hashlib
import json
import random

import pytest

from tests.runtime.artifacts import LIBRARY, LOADER, content, description
from tirx_attn import HopperSchedule, Schedule
from tirx_attn.runtime import ArtifactError, load
from tirx_attn.runtime.artifact import seal, unseal


@pytest.fixture
def hopper(monkeypatch):
    """An H200 as far as the driver is asked."""
    monkeypatch.setattr(LOADER, "arch_of", lambda index: "sm_90a" if index == 0 else None)


@pytest.mark.parametrize(("arch", "schedule"), [("sm_90a", HopperSchedule), ("sm_100a", Schedule)])
def test_the_description_comes_back(arch, schedule):
    whole = content(arch=arch, schedule=description(arch).schedule)
    assert whole.startswith(LIBRARY)
    found = unseal(whole, "a.so")
    assert found == description(arch)
    assert isinstance(found.schedule, schedule)
    assert found.versions["apache-tvm"].startswith("0.27.")


def damaged():
    """(name, content, part of the message) of two hundred files."""
    whole, chance = content(), random.Random(7)
    mark = len(whole) - 8
    for _ in range(100):
        place, bit = chance.randrange(len(whole)), 1 << chance.randrange(8)
        flipped = bytearray(whole)
        flipped[place] ^= bit
        allowed = "no file that `export` wrote" if place >= mark else "hash does not fit"
        yield f"bit {bit} of byte {place}", bytes(flipped), allowed
    for _ in range(60):
        end = chance.randrange(len(whole))
        yield f"first {end} bytes", whole[:end], "no file that `export` wrote"
    for arch in ("sm_100a", "sm_103a"):
        for heads in range(10):
            other = content(arch=arch, schedule=description(arch).schedule, cubin_sha256=str(heads) * 64)
            yield f"{arch}, {heads}", other, f"the kernel is for {arch}, but GPU 0 is sm_90a"
    for package in ("apache-tvm", "apache-tvm-ffi"):
        for version in ("0.0.1", "0.26.0", "1.0", "", "99.1"):
            older = content(versions={**description().versions, package: version})
            yield f"{package} {version}", older, f"exported with {package} {version}, here is "
    for number in (1, *range(3, 12)):
        yield f"format {number}", seal(LIBRARY, {**description().to_dict(), "format": number}), f"has format {number}"


def test_there_are_two_hundred():
    assert len(list(damaged())) == 200
    assert len({name for name, _, _ in damaged()}) > 190


def test_each_is_one_clear_error_at_load(hopper, tmp_path):
    file = tmp_path / "kernel.so"
    for name, data, message in damaged():
        file.write_bytes(data)
        with pytest.raises(ArtifactError, match=message) as raised:
            load(file)
        assert str(file) in str(raised.value), name
        assert len(str(raised.value)) < 400, name


def test_a_missing_field_is_told():
    data = description().to_dict()
    del data["arch"]
    with pytest.raises(ArtifactError, match=r"x.so: the description cannot be read \(KeyError\('arch'\)\)"):
        unseal(seal(LIBRARY, data), "x.so")


def test_the_tail_is_what_the_format_says():
    whole = content()
    assert whole[-8:] == b"TIRXATTN"
    assert whole[-40:-8] == hashlib.sha256(whole[:-40]).digest()
    length = int.from_bytes(whole[-48:-40], "little")
    assert json.loads(whole[-48 - length : -48])["config"]["Hq"] == 4
