"""The command line where no GPU is needed."""

from __future__ import annotations

import pytest

from benchmarks import document as results
from benchmarks.hopper import main, opened
from benchmarks.shapes import all_shapes, select
from tests.benchmarks.fakes import document_of, measured

SHAPES = select(all_shapes(), ["mha_d64"])


def test_list_shows_shapes_and_libraries(capsys):
    assert main(["--list", "--group", "mha_d64", "--shapes", "*causal*_s512_*,*full*_s512_*"]) == 0
    out = capsys.readouterr().out
    assert [line.split()[1] for line in out.splitlines()[:2]] == [SHAPES[0].name, SHAPES[6].name]
    assert "34.4 GFLOP" in out
    assert "attention_fp16_full_h16x16_d64.so  AttentionConfig(B=None," in out


def test_merge_writes_one_report(tmp_path, capsys):
    paths = []
    for index in range(2):
        folder = tmp_path / str(index)
        folder.mkdir()
        paths.append(str(results.write(document_of({SHAPES[index]: {"ours": measured(100.0 + index)}}), folder)))
    assert main(["--merge", *paths, "-o", str(tmp_path / "both")]) == 0
    joined = results.read(tmp_path / "both" / "results.json")
    assert [entry["name"] for entry in joined["shapes"]] == [shape.name for shape in SHAPES[:2]]
    assert "101 @1755 650W" in (tmp_path / "both" / "table.txt").read_text()
    assert "| 101 @1755 650W |" in (tmp_path / "both" / "table.md").read_text()


def test_results_are_neither_overwritten_nor_mixed(tmp_path):
    assert opened(tmp_path, False, "abc") == results.new()
    document = document_of({SHAPES[0]: {"ours": measured(1.0)}})
    results.write(document, tmp_path)
    with pytest.raises(ValueError, match="has results already; take --resume"):
        opened(tmp_path, False, "abc")
    with pytest.raises(ValueError, match=r"--commit def: the results in .* are of commit abc"):
        opened(tmp_path, True, "def")
    assert opened(tmp_path, True, "abc")["runs"] == document["runs"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--shapes", "nothing*", "-o", "x"], "shapes 'nothing*': no shape has such a name"),
        (["--passes", "0", "-o", "x"], "passes=0: allowed are numbers from 1"),
        (["--merge", "missing.json", "-o", "x"], "missing.json"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "cudnn,fa4"], "'cudnn,fa4': allowed are ours, repeated, cudnn, fa2, triton, pallas"),
        (["--group", "mha"], "invalid choice: 'mha'"),
        ([], "-o FOLDER: needed"),
    ],
)
def test_unknown_choices_end_the_program(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
