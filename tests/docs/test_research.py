"""The how-tos of docs/research.md do what they say: their diffs apply, and their commands print what the page has."""

from __future__ import annotations

import pytest

from tests.docs import research

TEXT = research.PAGE.read_text()
BLOCKS = list(research.BLOCK.finditer(TEXT))


def commands() -> list[str]:
    return [found["line"] for block in BLOCKS for found in research.COMMAND.finditer(block["body"])]


def test_the_page_has_both_how_tos():
    assert sum(block["kind"] == "diff" for block in BLOCKS) == 6
    text = "\n".join(commands())
    for command in ("check", "mutants", "code", "model"):
        assert f"tirx-attn {command} " in text
    assert TEXT.count("```diff") + TEXT.count("```console") == len(BLOCKS)


def test_the_diffs_apply_one_after_the_other(tmp_path):
    research.copy_package(tmp_path)
    before = (tmp_path / "tirx_attn" / "roles" / "softmax.py").read_text()
    for block in BLOCKS:
        if block["kind"] == "diff":
            research.apply(block["body"], tmp_path)
    after = (tmp_path / "tirx_attn" / "roles" / "softmax.py").read_text()
    assert "acc_scale_empty.wait" in after
    assert after != before


def test_a_diff_that_does_not_fit_is_refused(tmp_path):
    research.copy_package(tmp_path)
    diff = "--- a/tirx_attn/cli.py\n+++ b/tirx_attn/cli.py\n@@ -1 +1 @@\n-no such line\n+another\n"
    with pytest.raises(RuntimeError, match="does not apply"):
        research.apply(diff, tmp_path)


def test_commands_run_in_the_copy(tmp_path):
    research.copy_package(tmp_path)
    assert research.output_of("python -c 'import tirx_attn; print(tirx_attn.__file__)'", tmp_path) == (
        f"{tmp_path}/tirx_attn/__init__.py\n"
    )


@pytest.mark.slow
@pytest.mark.simulator
@pytest.mark.recorded(
    "docs/research.md",
    "tests/docs/research.py",
    *(f"tirx_attn/{name}" for name in ("roles", "barriers", "analysis", "verify/mutate.py", "commands/check.py")),
)
def test_the_commands_print_what_the_page_has(tmp_path):
    played = list(research.play(TEXT, tmp_path))
    assert [one.command for one in played] == commands()
    for one in played:
        assert one.printed == one.written, f"{one.command}: run: python -m tests.docs.research --write"
