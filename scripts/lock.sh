#!/bin/sh
# Rewrites the pinned lists requirements/{dev,simulator,full}.txt from pyproject.toml.
# Needs the environment made by `make quick` (for uv). The lists name versions and hashes, never a place to fetch from.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
python=.venv/bin/python

compile() { # compile NAME [uv arguments]: writes requirements/NAME.txt
    name=$1
    shift
    "$uv" pip compile pyproject.toml requirements/build.in "$@" --python "$python" --python-version 3.12 --universal \
        --constraint requirements/constraints.txt --override requirements/overrides.txt \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links --generate-hashes \
        --quiet --output-file "requirements/$name.txt"
}

compile full --extra simulator --extra torch --extra transformers --extra benchmark --extra explore --extra docs \
    --extra browser --extra dev
# The smaller lists are subsets of the full one, so that growing an environment never changes a version.
compile simulator --extra simulator --extra explore --constraint requirements/full.txt
compile dev --extra dev --constraint requirements/full.txt
