"""README and docs say what the code says."""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from pathlib import Path

import pytest

from scripts import machine_code_page
from tirx_attn.barriers import page
from tirx_attn.commands.arguments import parse_changes, parse_problem
from tirx_attn.config import AttentionConfig
from tirx_attn.hopper.plan import make_hopper_plan
from tirx_attn.hopper.protocol import hopper_protocol
from tirx_attn.hopper.tuning import HOPPER_TUNING_TABLE
from tirx_attn.schedule.tuning import TUNING_TABLE, tuning_row
from tirx_attn.targets import TARGETS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_barrier_page_is_what_the_protocol_renders():
    written = (ROOT / "docs" / "barriers.md").read_text()
    assert written == page.page(), "run: python -m tirx_attn.barriers.page > docs/barriers.md"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", path.read_text()):
        assert (path.parent / target).resolve().exists() or (path.parent / "tirx_attn" / target).exists(), target


def test_the_tuning_page_has_the_rows_of_the_table():
    page = (ROOT / "docs" / "tuning.md").read_text()
    header, *lines = re.findall(r"^\| (?:row|T\d+) \|.*\|$", page[: page.index("## sm_90a")], re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *lines)]
    knobs = cells[0][3:]
    assert cells[0][:3] == ["row", "regime", "target"]
    first = TUNING_TABLE[0].schedule
    differing = {
        f.name for f in fields(first) for r in TUNING_TABLE if getattr(r.schedule, f.name) != getattr(first, f.name)
    }
    assert set(knobs) == differing
    for row, (name, regime, arch, *values) in zip(TUNING_TABLE, cells[1:], strict=True):
        assert (name, regime) == (row.id, row.regime)
        assert tuning_row(AttentionConfig(1, 128, 128, 1, 1, 128, not regime.startswith("non")), TARGETS[arch]) is row
        items = [f"{knob}={value}" for knob, value in zip(knobs, values, strict=True)]
        assert parse_changes(items) == {knob: getattr(row.schedule, knob) for knob in knobs}


def test_every_edge_and_role_is_in_the_story():
    from tirx_attn.barriers.protocol import protocol
    from tirx_attn.schedule import make_plan

    story = (ROOT / "docs" / "dataflow.md").read_text()
    plan = make_plan(AttentionConfig(1, 256, 256, 1, 1, 128))
    for edge in protocol(plan).edges:
        if not edge.name.startswith("q_load"):
            assert f"`{edge.name}`" in story
    for role in plan.warps.roles:
        assert re.search(rf"^### .*{role.name}", story, re.MULTILINE), role.name
    for file in (ROOT / "tirx_attn" / "roles").glob("[a-z]*.py"):
        assert f"roles/{file.name}" in story


def test_the_tuning_page_has_the_rows_of_the_sm_90a_table():
    page = (ROOT / "docs" / "tuning.md").read_text()
    header, *lines = re.findall(r"^\| (?:row|H\d+) \|.*\|$", page[page.index("## sm_90a") :], re.MULTILINE)
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in (header, *lines)]
    for row, (name, regime, *values) in zip(HOPPER_TUNING_TABLE, cells[1:], strict=True):
        assert (name, regime) == (row.id, row.regime)
        assert values == [str(getattr(row.schedule, knob)) for knob in cells[0][2:]]


def test_every_edge_and_role_of_the_sm_90a_kernel_is_in_its_story():
    story = (ROOT / "docs" / "hopper.md").read_text()
    plan = make_hopper_plan(AttentionConfig(1, 256, 256, 1, 1, 128))
    for edge in hopper_protocol(plan).edges:
        assert f"`{edge.name}`" in story
    for role in plan.warps.roles:
        assert f"**{role.name}**" in story
    for file in ("transfer", "consumer", "fragment"):
        assert f"hopper/{file}.py" in story


def test_first_screen():
    lines = (ROOT / "README.md").read_text().splitlines()
    assert "    make demo" in "\n".join(lines[:8])
    assert "    make test" in "\n".join(lines[:8])
    assert len(lines[lines.index("```python") + 1 : lines.index("```")]) <= 13
    assert lines.index("```") < 25
    assert max(map(len, lines[: lines.index("```")])) <= 120


def test_commands_of_the_pages_can_be_read(tirx_attn_commands):
    commands = tirx_attn_commands
    assert len(commands) >= 5
    for command in commands:
        words = shlex.split(command)[1:]
        if "--shape" in words:
            value = {option: words[i + 1] for i, option in enumerate(words[:-1]) if option.startswith("--")}
            changes = [value["--schedule"]] if "--schedule" in value else []
            parse_problem(value["--shape"], "--causal" in words, value.get("--arch", "sm_100a"), changes)


@pytest.fixture
def tirx_attn_commands() -> list[str]:
    text = "\n".join(path.read_text() for path in PAGES)
    return [found.strip("`") for found in re.findall(r"`tirx-attn [a-z][^`]*`|(?<=    )tirx-attn [a-z].*", text)]


@pytest.mark.slow
def test_the_machine_code_page_has_what_its_commands_print():
    page = (ROOT / "docs" / "machine_code.md").read_text()
    sections = list(machine_code_page.TABLES.finditer(page))
    assert len(sections) == page.count("--markdown\n") == 4
    for section in sections:
        assert section["tables"].strip() == machine_code_page.printed(section["command"]).strip(), "run: make figures"


@pytest.mark.slow
def test_the_counterexample_of_the_page_is_what_the_check_prints(capsys):
    page = (ROOT / "docs" / "protocol_check.md").read_text()
    program, output = re.findall(r"^```(?:python)?\n(.*?)^```", page[page.index("## How to read") :], re.M | re.S)[:2]
    exec(compile(program, "protocol_check.md", "exec"), {"__name__": "page"})
    assert output == capsys.readouterr().out, "write what the program prints into the page"


def readmes_program() -> str:
    (program,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    return program


@pytest.mark.slow
@pytest.mark.simulator
@pytest.mark.recorded(readmes_program, "tirx_attn/verify/attention.py")
def test_the_readmes_program_runs(capsys):
    program = readmes_program()
    exec(compile(program, "README.md", "exec"), {"__name__": "readme"})
    assert "ErrorVerdict(error=" in capsys.readouterr().out
