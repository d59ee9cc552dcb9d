"""The shipped variants: what the list covers, that all are legal, and how one is found."""

from __future__ import annotations

import pytest

import tirx_attn
from tirx_attn import VARIANTS, AttentionConfig, variant
from tirx_attn.barriers.protocol import protocol
from tirx_attn.schedule import make_plan, tuned_schedule
from tirx_attn.targets import B200, B300

MASKS = pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
EACH = pytest.mark.parametrize("each", VARIANTS, ids=lambda each: each.name)


def config(causal: bool, d: int = 128) -> AttentionConfig:
    return AttentionConfig(1, 512, 512, 2, 2, d, causal)


def test_every_item_of_the_list_is_there():
    values = {knob: {each.changes[knob] for each in VARIANTS if knob in each.changes} for knob in
              ("statistics", "stagger", "pv_split", "epilogue_owner", "kv_stages", "rescale", "mma_order")}  # fmt: skip
    assert values == {
        "statistics": {"pairwise", "collective", "tmem"},
        "stagger": {True},
        "pv_split": {(64, 64), (96, 32), (32, 96), (32, 32, 32, 32)},
        "epilogue_owner": {"correction", "softmax"},
        "kv_stages": {2, 3, 4},
        "rescale": {"voted", "always"},
        "mma_order": {"by_tile", "by_product"},
    }
    assert variant("ring-4-one-o-stage").changes == {"kv_stages": 4, "o_stages": 1}


def test_names_are_unique_and_reasons_are_sentences():
    assert len({each.name for each in VARIANTS}) == len(VARIANTS) == 17
    for each in VARIANTS:
        assert each.why[0].isupper()
        assert each.why.endswith(".")
        assert each.changes


@EACH
@MASKS
def test_each_is_legal_on_what_it_is_for(each, causal):
    for d in each.head_sizes:
        for target in (B200, B300):
            plan = make_plan(config(causal, d), each.schedule(config(causal, d), target), target)
            assert protocol(plan).named_barriers <= 15
            for knob, value in each.changes.items():
                assert getattr(plan.schedule, knob) == value


@MASKS
def test_the_tuned_values_stand_among_the_others(causal):
    tuned = {each.name for each in VARIANTS if each.is_tuned(config(causal))}
    common = {"statistics-pairwise", "ring-3", "rescale-voted", "mma-by-tile"}
    assert tuned == common | ({"pv-64-64", "epilogue-softmax"} if causal else {"pv-96-32", "epilogue-correction"})
    for name in tuned:
        assert variant(name).schedule(config(causal)) == tuned_schedule(config(causal), B200)


def test_a_variant_is_found_by_name():
    assert variant("stagger").changes == {"stagger": True}
    assert tirx_attn.variant is variant
    with pytest.raises(ValueError, match=r"'staggered': allowed values are statistics-pairwise, .*, mma-by-product"):
        variant("staggered")


def test_a_head_size_that_it_is_not_for_is_refused():
    with pytest.raises(ValueError, match="D=64: allowed head sizes of the variant ring-2 are 128"):
        variant("ring-2").schedule(config(False, 64))


def test_changes_cannot_be_changed():
    with pytest.raises(TypeError):
        variant("stagger").changes["stagger"] = False
