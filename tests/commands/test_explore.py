"""`tirx-attn explore`: what it writes, and what it refuses before it builds anything."""

from __future__ import annotations

import json

import pytest

from tests.explore.studied import study
from tirx_attn.commands import explore
from tirx_attn.explore import page

SHAPE = ("--shape", "1,1024,1024,4,4,128")


@pytest.fixture
def studied(monkeypatch):
    """No kernel is built, and no chart is drawn."""
    monkeypatch.setattr(explore, "_study", lambda problem, reporter: study(**problem.changes))
    monkeypatch.setattr(page, "page", lambda document: f"<p>{document['title']}</p>")


@pytest.mark.usefixtures("studied")
def test_files_and_json(tirx_attn, tmp_path):
    folder = tmp_path / "new" / "folder"
    result = tirx_attn("explore", *SHAPE, "--against", "kv_stages=2", "-o", str(folder), "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "trace.json"]
    assert (folder / "index.html").read_text() == "<p>full B=1 Sq=1024 Skv=1024 Hq=4 Hkv=4 D=128</p>"
    assert len(json.loads((folder / "trace.json").read_text())["traceEvents"]) > 100
    assert found["files"] == [
        {"path": str(folder / name), "bytes": (folder / name).stat().st_size} for name in ("trace.json", "index.html")
    ]
    assert [side["changes"] for side in found["sides"]] == [{}, {"kv_stages": 2}]
    assert [side["schedule"]["kv_stages"] for side in found["sides"]] == [3, 2]
    assert [side["block_cycles"] for side in found["sides"]] == [study().prediction.block_cycles] * 2
    assert found["differences"]["knobs"] == [{"name": "kv_stages", "a": "3", "b": "2"}]


@pytest.mark.usefixtures("studied")
def test_table(tirx_attn, tmp_path):
    result = tirx_attn("explore", *SHAPE, "--schedule", "stagger=true", "--against", "tuned", "-o", str(tmp_path))
    assert result.exit_code == 0, result.stderr
    text = " ".join(result.stdout.split())
    assert "A: tuned, stagger=True │ B: tuned" in text.replace("┃", "│")
    assert "Time of the launch │ 500.0 µs at 1.85 GHz │ 500.0 µs at 1.85 GHz" in text
    assert str(tmp_path / "index.html") in result.stdout.replace("\n", "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shape", "1,_,1024,4,4,128"), "Sq='_': allowed values are positive integers"),
        ((*SHAPE, "--against", "kv_stages=9"), "--against: kv_stages=9"),
        ((*SHAPE, "--against", "x=1"), "--against 'x=1': KEY='x': allowed values are pv_split"),
        ((*SHAPE, "--against", "kv_stages=3"), "--against kv_stages=3: is the same schedule, allowed are others"),
        ((*SHAPE, "--against", "tuned"), "--against tuned: is the same schedule"),
        ((*SHAPE, "--against", "tuned", "--against", "kv_stages=2"), "--against tuned: allowed is tuned by itself"),
        ((*SHAPE, "--arch", "sm_80"), "arch='sm_80'"),
    ],
)
def test_refusals(tirx_attn, tmp_path, arguments, message):
    result = tirx_attn("explore", *arguments, "-o", str(tmp_path / "x"))
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert not (tmp_path / "x").exists()


def test_a_folder_that_is_a_file_is_refused(tirx_attn, tmp_path):
    (tmp_path / "x").write_text("")
    result = tirx_attn("explore", *SHAPE, "-o", str(tmp_path / "x"))
    assert result.exit_code == 2
    assert "is not a folder, allowed are folders" in result.stderr


@pytest.mark.usefixtures("studied")
def test_without_altair_it_says_what_to_install(tirx_attn, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "NEEDED", ("altair", "no_such_package"))
    result = tirx_attn("explore", *SHAPE, "-o", str(tmp_path / "x"))
    assert result.exit_code == 1
    assert "the page needs no_such_package: pip install 'tirx_attn[explore]'" in result.stderr
    assert not (tmp_path / "x").exists()
