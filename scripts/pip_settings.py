"""Print pip's package-source settings as shell assignments for uv, where uv has none of its own.

Run by scripts/bootstrap.sh with the environment's Python; the output is evaluated by sh.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

# pip's option -> the environment variables by which uv would already know it (the first one is set)
TO_UV = {
    "index-url": ("UV_DEFAULT_INDEX", "UV_INDEX_URL"),
    "extra-index-url": ("UV_INDEX", "UV_EXTRA_INDEX_URL"),
    "find-links": ("UV_FIND_LINKS",),
    "cert": ("SSL_CERT_FILE",),
    "default-timeout": ("UV_HTTP_TIMEOUT",),
    "timeout": ("UV_HTTP_TIMEOUT",),
}


def pip_settings() -> dict[str, str]:
    """Option name -> value, later sources winning as in pip: files, then PIP_* variables."""
    listing = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list", "--disable-pip-version-check"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    found: dict[str, str] = {}
    for wanted in ("global", "install", ":env:"):
        for line in listing.splitlines():
            key, separator, quoted = line.partition("=")
            section, _, name = key.rpartition(".")
            if separator and section == wanted and name in TO_UV:
                found[name] = " ".join(shlex.split(quoted)).strip()
    return found


def main() -> None:
    """Print one ``export NAME=value`` line per setting that uv lacks."""
    for name, value in pip_settings().items():
        variables = TO_UV[name]
        if value and not any(os.environ.get(variable) for variable in variables):
            if name == "find-links":  # pip passes over folders that do not exist, uv stops at them
                value = ",".join(place for place in value.split() if "://" in place or os.path.exists(place))
            print(f"export {variables[0]}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
