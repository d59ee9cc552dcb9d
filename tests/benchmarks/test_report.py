"""Tables, ratios and pictures from made-up results; documents that are written, read and joined."""

from __future__ import annotations

import json

import pytest

from benchmarks import document as results
from benchmarks import report
from benchmarks.plot import bars, figure, write_plots
from benchmarks.shapes import all_shapes, select
from tests.benchmarks.fakes import document_of, measured

FULL, CAUSAL = select(all_shapes(), ["mha_d64"], ["*_s512_*"])
DECODE = select(all_shapes(), ["information"])[0]


@pytest.fixture
def made():
    """Two shapes of a group and one for information; fa2 fails on one, ours is missing in one."""
    return document_of(
        {
            FULL: {"ours": measured(600.0), "cudnn": measured(500.0), "fa2": {"error": "RuntimeError: no\nsuch"}},
            CAUSAL: {"ours": measured(300.0), "cudnn": measured(400.0), "fa2": measured(99.51, note="hot")},
            DECODE: {"cudnn": measured(5.0)},
        }
    )


def test_ratio_is_ours_over_the_fastest_peer(made):
    first, second, third = made["shapes"]
    assert report.ratio(first, "steady") == (1.2, "cudnn")
    assert report.ratio(second, "cool") == (0.75, "cudnn")
    assert report.ratio(third, "steady") is None
    assert report.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)
    first["results"]["repeated"] = measured(750.0)  # our own kernel, no peer
    assert report.ratio(first, "steady") == (1.2, "cudnn")
    del first["results"]["cudnn"]
    assert report.ratio(first, "steady") == (0.8, "repeated")


def test_rows_have_clock_and_power_beside_every_number(made):
    assert report.rows(made, "mha_d64", "steady") == [
        ["shape", "ours", "cudnn", "fa2", "ours / best peer"],
        [FULL.name, "600 @1755 650W", "500 @1755 650W", "failed", "1.200 (cudnn)"],
        [CAUSAL.name, "300 @1755 650W", "400 @1755 650W", "99.5 @1755 650W", "0.750 (cudnn)"],
    ]
    assert report.rows(made, "information", "cool")[1][1:] == ["—", "6.25 (500.0 µs) @1755 650W", "—", "—"]
    assert report.summary(made, "mha_d64", "steady") == (
        "ours / best peer: geometric mean 0.949, lowest 0.750, highest 1.200, over 2 of 2 shapes"
    )


def test_text_and_markdown_say_the_same(made):
    text, markdown = report.text(made), report.markdown(made)
    for part in (
        "fa2: hot",
        f"failed: {FULL.name}, fa2: RuntimeError: no such",
        "cudnn: largest difference from fp32 attention 0.0005",
        "2026-01-02, commit abc, GPU of tests (GPU-1), driver 1.2, torch 9.9; run it",
        "mha_d64, from cool: two calls after an idle time",
    ):
        assert part in text
        assert part in markdown
    assert f"| {FULL.name} | 600 @1755 650W | 500 @1755 650W | failed | 1.200 (cudnn) |" in markdown
    lines = [line for line in text.splitlines() if line.startswith((FULL.name, CAUSAL.name))]
    assert len({line.index(" @1755") for line in lines}) == 1


def test_report_of_nothing_is_only_the_legend():
    assert report.text(results.new()) == report.LEGEND + "\n"


def test_document_survives_writing_and_reading(made, tmp_path):
    path = results.write(made, tmp_path)
    assert results.read(path) == json.loads(json.dumps(made))
    assert [file.name for file in tmp_path.iterdir()] == ["results.json"]
    path.write_text('{"format": 2}')
    with pytest.raises(ValueError, match=r"results\.json: allowed is a results file of format 1"):
        results.read(path)


def test_joined_documents_keep_the_later_result_and_its_run(made):
    later = document_of({FULL: {"ours": measured(700.0)}})
    joined = results.merge([made, later])
    assert [entry["name"] for entry in joined["shapes"]] == [FULL.name, CAUSAL.name, DECODE.name]
    assert [entry["run"] for entry in joined["shapes"]] == [1, 0, 0]
    assert joined["shapes"][0]["results"] == {"ours": measured(700.0)}
    assert len(joined["runs"]) == 2
    assert results.groups_in(joined) == ["mha_d64", "information"]


def test_bars_are_the_rates(made):
    assert bars(made, "mha_d64", "steady") == {"ours": [600.0, 300.0], "cudnn": [500.0, 400.0], "fa2": [0.0, 99.51]}


def test_picture_shows_rates_and_ratios(made, tmp_path):
    pytest.importorskip("matplotlib")
    above, below = figure(made, "mha_d64").axes
    heights = {group.get_label(): [bar.get_height() for bar in group] for group in above.containers}
    assert heights["tirx_attn"] == [600.0, 300.0]
    assert heights["cuDNN (torch)"] == [500.0, 400.0]
    assert [bar.get_height() for bar in below.containers[0]] == pytest.approx([1.2, 0.75])
    assert [label.get_text() for label in below.get_xticklabels()] == ["full", "causal"]
    assert [text.get_text() for text in below.texts] == ["1.20", "0.75"]
    written = write_plots(made, tmp_path)
    assert [path.name for path in written] == ["mha_d64.png", "information.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
