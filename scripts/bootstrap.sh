#!/bin/sh
# Makes or completes ./.venv:  scripts/bootstrap.sh [dev|simulator|full|python]
#
#   dev        generate, compile, lint, quick tests
#   simulator  generate, compile, simulate (what `make demo` needs)
#   full       all of it, with torch
#   python     make nothing, print the interpreter that would be used
#
# A level that is already there costs nothing. An environment whose set-up was interrupted is made again.
# The user's pip and uv settings decide where packages come from.
# PYTHON=... names the interpreter to use; otherwise one of version 3.12 or 3.13 that really runs is searched for.
set -eu
cd "$(dirname "$0")/.."

level=${1:-simulator}
venv=.venv
state=$venv/.tirx-attn # one file per finished level, holding the fingerprint it was made from
lock=.venv.lock

say() { printf '%s\n' "$*" >&2; }
die() {
    say "tirx-attn: $*"
    exit 1
}

case $level in
dev | simulator | full | python) ;;
*) die "unknown level '$level': use dev, simulator, full or python" ;;
esac
requirements=requirements/$level.txt

# --- tools -----------------------------------------------------------------------------------------------------

# 0: runs, is 3.12 or 3.13, can make environments.  3: right version without venv/ensurepip.  Else: unusable.
probe() {
    "$1" -c 'import sys
if sys.implementation.name != "cpython" or not (3, 12) <= sys.version_info[:2] <= (3, 13): sys.exit(4)
try: import ensurepip, venv
except ImportError: sys.exit(3)' </dev/null >/dev/null 2>&1
}

# Every place an interpreter may be, best first. A name on PATH may be a version manager's stand-in that refuses to
# run, so the managers' own folders are listed as well.
candidates() {
    if [ -n "${PYTHON:-}" ]; then
        printf '%s\n' "$PYTHON"
        return 0
    fi
    for name in python3.13 python3.12 python3 python; do
        command -v "$name" 2>/dev/null || true
    done
    pyenv_root=${PYENV_ROOT:-$(pyenv root 2>/dev/null || true)}
    for root in "$pyenv_root" "${HOME:-/nonexistent}/.pyenv"; do
        [ -d "$root/versions" ] || continue
        for minor in 3.13 3.12; do
            ls -d "$root/versions/$minor".*/bin/python 2>/dev/null | sort -rV 2>/dev/null || true
        done
    done
    for root in "${UV_PYTHON_INSTALL_DIR:-}" "${XDG_DATA_HOME:-${HOME:-/nonexistent}/.local/share}/uv/python"; do
        [ -d "$root" ] || continue
        for minor in 3.13 3.12; do
            ls -d "$root/cpython-$minor".*/bin/python3 2>/dev/null || true
        done
    done
    for prefix in /usr/local/bin /usr/bin /opt/homebrew/bin; do
        for minor in 3.13 3.12; do
            [ ! -x "$prefix/python$minor" ] || printf '%s\n' "$prefix/python$minor"
        done
    done
}

find_python() {
    without_venv=
    list=$(candidates)
    saved_ifs=$IFS
    IFS='
'
    for candidate in $list; do
        status=0
        probe "$candidate" || status=$?
        if [ "$status" = 0 ]; then
            IFS=$saved_ifs
            printf '%s\n' "$candidate"
            return 0
        fi
        [ "$status" != 3 ] || without_venv=${without_venv:-$candidate}
    done
    IFS=$saved_ifs
    [ -z "$without_venv" ] ||
        die "$without_venv cannot make virtual environments: install its venv package (on Debian: python3.12-venv)."
    [ -z "${PYTHON:-}" ] || die "PYTHON=$PYTHON does not run as Python 3.12 or 3.13: name one that does, or none."
    die "Python 3.12 or 3.13 was not found: install one of them, or name it with PYTHON=/path/to/python."
}

need_cargo() {
    version=$(cargo --version 2>/dev/null) ||
        die "cargo was not found: install Rust 1.85 or newer (the simulator translates kernels to Rust)."
    minor=$(printf '%s\n' "$version" | sed -n 's/^cargo 1\.\([0-9]*\).*/\1/p')
    [ -z "$minor" ] || [ "$minor" -ge 85 ] ||
        die "$version is too old: install Rust 1.85 or newer (the simulator translates kernels to Rust)."
}

need_linker() {
    probe_dir=$(mktemp -d)
    printf 'int main(void) { return 0; }\n' >"$probe_dir/probe.c"
    linked=0
    cc "$probe_dir/probe.c" -o "$probe_dir/probe" >/dev/null 2>&1 || linked=1
    rm -rf "$probe_dir"
    [ "$linked" = 0 ] ||
        die "cc cannot link a C program: install a C compiler and the C library's headers (on Debian: build-essential)."
}

# --- state -----------------------------------------------------------------------------------------------------

fingerprint() { # of everything that decides what a level holds
    cat "$requirements" requirements/uv.txt pyproject.toml scripts/bootstrap.sh | cksum
    pwd
}

ready() {
    [ -f "$state/$level" ] && [ ! -f "$state/unfinished" ] &&
        [ "$(cat "$state/$level")" = "$(fingerprint)" ] && "$venv/bin/python" -c '' 2>/dev/null
}

unlock() {
    rm -f "$lock/pid"
    rmdir "$lock" 2>/dev/null || true
}

take_lock() {
    waited=0
    until mkdir "$lock" 2>/dev/null; do
        holder=$(cat "$lock/pid" 2>/dev/null || true)
        if [ "$waited" -ge 2 ] && { [ -z "$holder" ] || ! kill -0 "$holder" 2>/dev/null; }; then
            unlock # its owner is gone
        else
            [ "$waited" != 2 ] || say "tirx-attn: waiting for another set-up of $venv (process $holder) ..."
            sleep 1
            waited=$((waited + 1))
        fi
    done
    printf '%s\n' "$$" >"$lock/pid"
    trap unlock EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
}

# --- work ------------------------------------------------------------------------------------------------------

make_venv() {
    python=$(find_python)
    rm -rf "$venv"
    mkdir -p "$state"
    : >"$state/unfinished"
    say "tirx-attn: making $venv with $python"
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements/uv.txt
}

fill_venv() {
    say "tirx-attn: installing $requirements into $venv"
    # uv reads its own settings only: hand it pip's where it has none.
    settings=$("$venv/bin/python" scripts/pip_settings.py)
    eval "$settings"
    UV_PROJECT_ENVIRONMENT=$venv VIRTUAL_ENV=$venv
    export UV_PROJECT_ENVIRONMENT VIRTUAL_ENV
    # --no-deps: the list is complete, and two packages in it pin different patch releases of NVRTC.
    "$venv/bin/uv" pip install --python "$venv/bin/python" --no-deps --require-hashes -r "$requirements"
    "$venv/bin/uv" pip install --python "$venv/bin/python" --no-deps --no-build-isolation --quiet -e .
}

if [ "$level" = python ]; then
    find_python
    exit 0
fi
if [ "$level" != dev ]; then
    need_cargo
fi
if ready; then
    exit 0
fi
if [ "$level" != dev ]; then
    need_linker
fi
if [ -e "$venv" ] && [ ! -d "$state" ]; then
    die "$venv exists and was not made by this script: move it away, then run this again."
fi
take_lock
if ready; then
    exit 0
fi
if [ ! -d "$state" ] || [ -f "$state/unfinished" ] || ! "$venv/bin/python" -c 'import pip' 2>/dev/null ||
    [ "$(cat "$state/place" 2>/dev/null)" != "$(pwd)" ]; then
    make_venv
fi
: >"$state/unfinished"
fill_venv
pwd >"$state/place"
fingerprint >"$state/$level.new"
mv "$state/$level.new" "$state/$level"
rm -f "$state/unfinished"
