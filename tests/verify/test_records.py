"""Records of proofs: what is kept, when it counts, what contradicts it, and which of them a tree draws."""

from __future__ import annotations

import json

import pytest

from tirx_attn.verify.records import SHARES, Record, RecordFile, Records, code_hash, is_drawn, key_of, tree_hash

ONE = Record("run random 1,1,1", "k1", "clean", {"error": 1e-3, "bound": 2e-3, "seconds": 0.5})
TWO = Record("racecheck random 1,1,1", "k2", "error", {"seconds": 2.5})


@pytest.fixture
def kept(tmp_path):
    made = Records(tmp_path)
    for record in (ONE, TWO):
        made.put("sm_100a/small", {"kernel": "small"}, record)
    made.write()
    return Records(tmp_path)


class TestFiles:
    def test_one_line_a_record_sorted_by_name(self, kept):
        lines = kept.path("sm_100a/small").read_text().splitlines()
        assert [json.loads(line).get("name") for line in lines] == [None, TWO.name, ONE.name]
        assert json.loads(lines[0]) == {"kernel": "small"}

    def test_what_was_put_is_found_by_its_key_alone(self, kept):
        assert kept.names() == ["sm_100a/small"]
        assert kept.find("sm_100a/small", ONE.name, "k1") == ONE
        assert kept.find("sm_100a/small", ONE.name, "k2") is None
        assert kept.find("sm_100a/other", ONE.name, "k1") is None

    def test_a_record_takes_the_place_of_the_one_before(self, kept):
        kept.put("sm_100a/small", {"kernel": "small", "source": "new"}, Record(ONE.name, "k3", "clean"))
        (path,) = kept.write()
        assert path.read_text().count(ONE.name) == 1
        assert RecordFile.read(path).subject == {"kernel": "small", "source": "new"}
        assert kept.write() == []  # nothing changed

    def test_what_is_no_more_can_be_dropped(self, kept):
        kept.keep_only("sm_100a/small", {TWO.name})
        kept.write()
        assert list(Records(kept.folder).file("sm_100a/small").records) == [TWO.name]

    @pytest.mark.parametrize("text", ["", "{}\nno record\n", '{}\n{"name": "x"}\n', "[1]\n", "{}\n[]\n"])
    def test_another_file_is_refused_by_its_line(self, tmp_path, text):
        (tmp_path / "x.jsonl").write_text(text)
        with pytest.raises(ValueError, match=r"x\.jsonl.* must"):
            Records(tmp_path).file("x")


class TestContradiction:
    def test_times_may_differ(self):
        assert Record(ONE.name, "k1", "clean", {**ONE.figures, "seconds": 9.0}).contradicts(ONE) == ""

    @pytest.mark.parametrize(
        ("record", "text"),
        [
            (Record(ONE.name, "k1", "error", ONE.figures), "verdict error, recorded clean"),
            (Record(ONE.name, "k1", "clean", {**ONE.figures, "error": 1.1e-3}), "error 1.100000e-03, recorded 1.0"),
            (Record(ONE.name, "k1", "clean", {**ONE.figures, "bound": 2.1e-3}), "bound 2.100000e-03, recorded 2.0"),
            (Record(ONE.name, "k1", "clean", {}), "error None, recorded 0.001"),
        ],
    )
    def test_results_may_not(self, record, text):
        assert text in record.contradicts(ONE)


class TestKeys:
    def test_every_part_counts_and_their_order_does_not(self):
        assert key_of(a=1, b=[2]) == key_of(b=[2], a=1)
        assert len({key_of(a=1), key_of(a=2), key_of(b=1), key_of(a=1, b=None)}) == 4
        assert len(key_of(a=1)) == 32

    def test_comments_and_docstrings_are_no_code(self, tmp_path):
        def hashed(text: str) -> str:
            (tmp_path / "a.py").write_text(text)
            return code_hash(tmp_path)

        plain = hashed('def f(x):\n    """One."""\n    return x + 1\n')
        assert plain == hashed('# why\n\ndef f(x):\n    """Two\n    lines."""\n\n    return x + 1  # so\n')
        assert plain != hashed("def f(x):\n    return x + 2\n")
        assert plain != hashed('def f(x):\n    return x + "1"\n')
        assert hashed("def f():\n  if 1:\n    a()\n    b()\n") != hashed("def f():\n  if 1:\n    a()\n  b()\n")

    def test_the_tree_is_paths_and_contents(self, tmp_path):
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "x.py").write_text("1")
        first = tree_hash(tmp_path / "a")
        assert first != tree_hash(tmp_path / "b")
        (tmp_path / "a" / "notes.txt").write_text("no Python")
        assert tree_hash(tmp_path / "a") == first
        (tmp_path / "a" / "x.py").write_text("1 ")
        assert tree_hash(tmp_path / "a") != first


UNITS = [f"kernel {number}" for number in range(70)]


class TestSample:
    def test_a_tree_draws_a_seventh(self):
        for seed in ("a", "b", "c"):
            assert 3 <= sum(is_drawn(unit, seed) for unit in UNITS) <= 20

    def test_forty_trees_draw_every_unit(self):
        """18 on average; a miss of one of seven parts in 40 draws has a probability of 1.5 % for each."""
        drawn = {unit for tree in range(40) for unit in UNITS if is_drawn(unit, f"tree {tree}")}
        assert drawn == set(UNITS)
        assert round(SHARES * sum(1 / n for n in range(1, SHARES + 1))) == 18

    def test_the_same_tree_draws_the_same(self):
        assert [is_drawn(unit, "x") for unit in UNITS] == [is_drawn(unit, "x") for unit in UNITS]
