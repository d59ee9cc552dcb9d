"""scripts/bootstrap.sh: which interpreter it takes, what it says, what it repairs. Nothing is downloaded.

A stand-in interpreter answers the questions of the script and writes every installation into a journal.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = [
    "sh",
    "cat",
    "cksum",
    "cp",
    "dirname",
    "env",
    "grep",
    "kill",
    "ls",
    "mkdir",
    "mktemp",
    "mv",
    "printf",
    "pwd",
    "rm",
    "rmdir",
    "sed",
    "sleep",
    "sort",
    "chmod",
]

STAND_IN = """#!/bin/sh
case "$1" in
-c) exit 0 ;;
-m)
    if [ "$2" = venv ]; then
        mkdir -p "$3/bin"
        cp "$0" "$3/bin/python"
        cp "$0" "$3/bin/uv"
        echo venv >>"$JOURNAL"
    else
        echo "pip $*" >>"$JOURNAL"
    fi ;;
pip)
    echo "uv $*" >>"$JOURNAL"
    [ -z "${BREAK:-}" ] || exit 1 ;;
esac
"""

REFUSING = "#!/bin/sh\necho 'this version is not installed' >&2\nexit 127\n"


class Machine:
    """A copy of the project's set-up files and a PATH that holds what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        self.bin = folder / "bin"
        self.journal = folder / "journal"
        self.bin.mkdir(parents=True)
        for tool in TOOLS:
            if place := shutil.which(tool):
                (self.bin / tool).symlink_to(place)
        for name in ("scripts", "requirements"):
            shutil.copytree(ROOT / name, self.project / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", self.project)

    def put(self, name: str, text: str, folder: Path | None = None) -> Path:
        """An executable script; on PATH unless `folder` is given."""
        path = (folder or self.bin) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def run(self, level: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["sh", "scripts/bootstrap.sh", level],
            cwd=self.project,
            env={
                "PATH": str(self.bin),
                "HOME": str(self.project.parent / "home"),
                "JOURNAL": str(self.journal),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def installed(self) -> list[str]:
        """The lists that uv was told to install, and `venv` for each environment made, since the last call."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        self.journal.unlink(missing_ok=True)
        found = []
        for line in lines:
            if line == "venv":
                found.append(line)
            elif line.startswith("uv ") and " -r requirements/" in line:
                found.append(line.partition(" -r requirements/")[2])
        return found


@pytest.fixture
def machine(tmp_path):
    # /usr/bin and /usr/local/bin are searched by the script whatever PATH says.
    return Machine(tmp_path)


def system_has_python() -> bool:
    return any(
        Path(f"{prefix}/python{minor}").exists()
        for prefix in ("/usr/local/bin", "/usr/bin", "/opt/homebrew/bin")
        for minor in ("3.12", "3.13")
    )


def test_a_name_that_refuses_to_run_is_passed_over(machine):
    machine.put("python3.13", REFUSING)
    right = machine.put("python3.12", STAND_IN)
    done = machine.run("python")
    assert (done.returncode, done.stdout.strip()) == (0, str(right))


def test_version_managers_folder_is_searched_newest_first(machine, tmp_path):
    machine.put("python3.13", REFUSING)
    machine.put("python3.12", REFUSING)
    for version in ("3.11.9", "3.12.9", "3.12.11"):
        machine.put("python", STAND_IN, tmp_path / "pyenv" / "versions" / version / "bin")
    done = machine.run("python", PYENV_ROOT=str(tmp_path / "pyenv"))
    assert done.stdout.strip() == str(tmp_path / "pyenv" / "versions" / "3.12.11" / "bin" / "python")


@pytest.mark.skipif(not (3, 12) <= sys.version_info[:2] <= (3, 13), reason="needs Python 3.12 or 3.13")
def test_a_real_interpreter_passes_the_probe(machine):
    real = os.path.realpath(sys.executable)
    assert machine.run("python", PYTHON=real).stdout.strip() == real


@pytest.mark.skipif(system_has_python(), reason="needs a machine whose system folders hold no Python 3.12 or 3.13")
def test_no_python_is_said_in_one_sentence(machine):
    machine.put("python3.13", REFUSING)
    done = machine.run("dev")
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "tirx-attn: Python 3.12 or 3.13 was not found: install one of them, or name it with PYTHON=/path/to/python."
    ]


def test_an_interpreter_that_was_named_and_is_wrong_is_not_replaced_by_another(machine):
    machine.put("python3.12", STAND_IN)
    done = machine.run("python", PYTHON=str(machine.put("old", REFUSING)))
    assert done.returncode == 1
    assert "does not run as Python 3.12 or 3.13" in done.stderr


def test_no_cargo_is_said_in_one_sentence(machine):
    machine.put("python3.12", STAND_IN)
    done = machine.run("simulator")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("tirx-attn: cargo was not found: install Rust 1.85 or newer")
    assert machine.installed() == []


def test_an_old_cargo_is_said_in_one_sentence(machine):
    machine.put("python3.12", STAND_IN)
    machine.put("cargo", "#!/bin/sh\necho 'cargo 1.70.0 (ec8a8a0ca 2023-04-25)'\n")
    done = machine.run("simulator")
    assert done.returncode == 1
    assert "cargo 1.70.0 (ec8a8a0ca 2023-04-25) is too old: install Rust 1.85 or newer" in done.stderr


def test_no_linker_is_said_in_one_sentence(machine):
    machine.put("python3.12", STAND_IN)
    machine.put("cargo", "#!/bin/sh\necho 'cargo 1.90.0 (abc 2025-09-01)'\n")
    done = machine.run("simulator")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("tirx-attn: cc cannot link a C program: install a C compiler")


def test_the_second_run_does_nothing(machine):
    machine.put("python3.12", STAND_IN)
    assert machine.run("dev").returncode == 0
    assert machine.installed() == ["venv", "dev.txt"]
    again = machine.run("dev")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert machine.installed() == []


def test_a_larger_level_is_added_to_the_same_environment(machine):
    machine.put("python3.12", STAND_IN)
    machine.put("cargo", "#!/bin/sh\necho 'cargo 1.90.0 (abc 2025-09-01)'\n")
    machine.put("cc", "#!/bin/sh\nexit 0\n")
    machine.run("simulator")
    machine.run("full")
    assert machine.installed() == ["venv", "simulator.txt", "full.txt"]


def test_a_changed_list_is_installed_again(machine):
    machine.put("python3.12", STAND_IN)
    machine.run("dev")
    machine.installed()
    pins = machine.project / "requirements" / "dev.txt"
    pins.write_text(pins.read_text() + "extra==1.0\n")
    machine.run("dev")
    assert machine.installed() == ["dev.txt"]


def test_an_interrupted_set_up_is_made_again(machine):
    machine.put("python3.12", STAND_IN)
    assert machine.run("dev", BREAK="1").returncode != 0
    assert machine.installed() == ["venv", "dev.txt"]
    assert machine.run("dev").returncode == 0
    assert machine.installed() == ["venv", "dev.txt"]


def test_a_moved_project_gets_a_new_environment(machine, tmp_path):
    machine.put("python3.12", STAND_IN)
    machine.run("dev")
    machine.installed()
    machine.project = machine.project.rename(tmp_path / "elsewhere")
    assert machine.run("dev").returncode == 0
    assert machine.installed() == ["venv", "dev.txt"]


def test_a_foreign_environment_is_not_touched(machine):
    machine.put("python3.12", STAND_IN)
    keep = machine.project / ".venv" / "keep"
    keep.parent.mkdir()
    keep.write_text("mine")
    done = machine.run("dev")
    assert done.returncode == 1
    assert "was not made by this script" in done.stderr
    assert keep.read_text() == "mine"


def test_a_lock_whose_owner_is_gone_is_taken_over(machine):
    machine.put("python3.12", STAND_IN)
    lock = machine.project / ".venv.lock"
    lock.mkdir()
    (lock / "pid").write_text("999999999\n")
    assert machine.run("dev").returncode == 0
    assert machine.installed() == ["venv", "dev.txt"]
    assert not lock.exists()


def test_unknown_level_is_refused(machine):
    done = machine.run("everything")
    assert done.returncode == 1
    assert "unknown level 'everything'" in done.stderr


def test_pips_sources_are_handed_to_uv_where_it_has_none(tmp_path):
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PIP_", "UV_")) and key != "SSL_CERT_FILE"
    }
    environment |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "https://index.example/a b",
        "PIP_EXTRA_INDEX_URL": "https://one.example https://two.example",
        "PIP_FIND_LINKS": f"{tmp_path} {tmp_path}/absent {ROOT}",
        "UV_INDEX": "https://uv.example",
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "pip_settings.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    assert sorted(done.stdout.splitlines()) == [
        "export UV_DEFAULT_INDEX='https://index.example/a b'",
        f"export UV_FIND_LINKS={tmp_path},{ROOT}",
    ]
