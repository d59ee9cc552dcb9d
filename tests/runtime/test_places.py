"""Where the compile cache lies: no variable makes it depend on the current folder, each error names what to set."""

from __future__ import annotations

import pwd
import re
from pathlib import Path

import pytest

from tests.runtime.artifacts import CONFIG
from tirx_attn.runtime import KernelCache
from tirx_attn.runtime.places import cache_folder

VARIABLES = ("TIRX_ATTN_CACHE", "XDG_CACHE_HOME", "HOME")


@pytest.fixture
def place(monkeypatch, tmp_path):
    """Gives the folder by some variables, for a user without an entry in passwd."""

    def unknown(*_):
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    monkeypatch.chdir(tmp_path)

    def found(**values):
        for name in VARIABLES:
            monkeypatch.delenv(name, raising=False)
        for name, value in values.items():
            monkeypatch.setenv(name, value)
        return str(cache_folder()[0])

    return found


@pytest.mark.parametrize(
    ("values", "folder"),
    [
        ({"HOME": "/h"}, "/h/.cache/tirx_attn/kernels"),
        ({"HOME": "/"}, "/.cache/tirx_attn/kernels"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/x/tirx_attn/kernels"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/tirx_attn/kernels"),
        ({"HOME": "/h", "XDG_CACHE_HOME": ""}, "/h/.cache/tirx_attn/kernels"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "x"}, "/h/.cache/tirx_attn/kernels"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "~/x"}, "/h/.cache/tirx_attn/kernels"),
        ({"HOME": "/h", "XDG_CACHE_HOME": "/x", "TIRX_ATTN_CACHE": "/t"}, "/t"),
        ({"HOME": "/h", "TIRX_ATTN_CACHE": "~/kernels"}, "/h/kernels"),
        ({"HOME": "/h", "TIRX_ATTN_CACHE": ""}, "/h/.cache/tirx_attn/kernels"),
        ({"TIRX_ATTN_CACHE": "/t"}, "/t"),
    ],
)
def test_the_folder(place, values, folder):
    assert place(**values) == folder


@pytest.mark.parametrize("value", ["kernels", "./kernels", ".", "~nobody-has-this-name/kernels", "$HOME/kernels"])
def test_a_relative_folder_is_refused(place, value):
    with pytest.raises(ValueError, match=rf"^TIRX_ATTN_CACHE={re.escape(repr(value))}: allowed are absolute folders"):
        place(HOME="/h", TIRX_ATTN_CACHE=value)


@pytest.mark.parametrize("values", [{}, {"HOME": ""}, {"HOME": "home"}, {"XDG_CACHE_HOME": "x"}])
def test_no_home(place, values):
    with pytest.raises(FileNotFoundError, match=r"^there is no home folder .*: set TIRX_ATTN_CACHE to a folder$"):
        place(**values)


def test_a_home_of_tilde_without_a_home(place):
    with pytest.raises(ValueError, match=r"TIRX_ATTN_CACHE='~/kernels': allowed are absolute folders"):
        place(TIRX_ATTN_CACHE="~/kernels")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"TIRX_ATTN_CACHE": "/dev/null"}, r"TIRX_ATTN_CACHE=/dev/null: .*it is no folder.*; set TIRX_ATTN_CACHE"),
        ({"TIRX_ATTN_CACHE": "/dev/null/x"}, r"TIRX_ATTN_CACHE=/dev/null/x: .*Not a directory.*; set TIRX_ATTN_CACHE"),
        ({"XDG_CACHE_HOME": "/dev/null"}, r"XDG_CACHE_HOME=/dev/null: .*Not a directory.*; set TIRX_ATTN_CACHE"),
        ({"HOME": "/proc"}, r"HOME=/proc: .*No such file or directory.*; set TIRX_ATTN_CACHE to a folder"),
    ],
)
def test_a_folder_that_cannot_be_is_told_before_a_build(place, values, message):
    place(**values)
    with pytest.raises(OSError, match=message):
        KernelCache(build=lambda *_: pytest.fail("compiled")).get(CONFIG, "sm_90a")


def test_a_folder_that_was_given_does_not_follow_the_current_one(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    kernels = KernelCache("kernels")
    monkeypatch.chdir("/")
    assert kernels.folder == tmp_path / "kernels"
    with pytest.raises(OSError, match=r"folder=/dev/null: .*\(it is no folder\)$"):
        KernelCache(Path("/dev/null"), build=lambda *_: pytest.fail("compiled")).get(CONFIG, "sm_90a")
