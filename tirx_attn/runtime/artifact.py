"""The file of an exported kernel: a shared library, and behind it a description under a hash of the whole file.

Layout: the bytes of the library; the description (JSON, UTF-8); its length (8 bytes, little-endian); SHA-256 of all
that; the mark of the format. A loader of shared libraries looks at the first part only.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from tirx_attn.config import AttentionConfig
from tirx_attn.family import AnySchedule, family_of
from tirx_attn.runtime.errors import ArtifactError
from tirx_attn.runtime.origin import PACKAGES, Origin
from tirx_attn.targets import target_for

FORMAT = 2
"""Goes up with any change of the layout, of the description, or of how a kernel is called."""

MARK = b"TIRXATTN"
LENGTH = struct.Struct("<Q")
TAIL_SIZE = LENGTH.size + hashlib.sha256().digest_size + len(MARK)


@dataclass(frozen=True)
class Description:
    """What an exported kernel is.

    Attributes:
        config: the problem; sizes that are None are read from the tensors of each call.
        schedule: how it runs.
        arch: architecture of its machine code.
        function: its name in the library.
        versions: package -> version that made it: tirx-attn, and those of `PACKAGES` that were there.
        generator_sha256: `source_hash` of the package that generated it.
        cubin_sha256, source_sha256: of the machine code, and of the CUDA source that it was compiled from.
    """

    config: AttentionConfig
    schedule: AnySchedule
    arch: str
    function: str
    versions: Mapping[str, str]
    generator_sha256: str
    cubin_sha256: str
    source_sha256: str

    @property
    def origin(self) -> Origin:
        """What made it, as the process that compiled it says."""
        return Origin({name: self.versions[name] for name in PACKAGES if name in self.versions}, self.generator_sha256)

    def to_dict(self) -> dict[str, Any]:
        """The description as JSON-able data."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Description:
        """The description that `to_dict` made `data` of.

        Raises:
            KeyError, TypeError, ValueError: it made no such data.
        """
        values = {field.name: data[field.name] for field in fields(cls)}
        schedule = family_of(target_for(values["arch"])).schedule
        lists = {name: tuple(value) for name, value in values["schedule"].items() if isinstance(value, list)}
        values["schedule"] = schedule(**{**values["schedule"], **lists})
        values["config"] = AttentionConfig(**values["config"])
        return cls(**values)


def seal(library: bytes, description: Mapping[str, Any]) -> bytes:
    """The file's content. `description` is what `Description.to_dict` gives."""
    text = json.dumps(description, sort_keys=True).encode()
    hashed = library + text + LENGTH.pack(len(text))
    return hashed + hashlib.sha256(hashed).digest() + MARK


def unseal(content: bytes, name: str) -> Description:
    """The description in a file's content, which is whole and as it was written.

    Args:
        content: all bytes of the file.
        name: the file, for messages.

    Raises:
        ArtifactError: it is no exported kernel, was cut off or altered, or is of another format.
    """
    body = len(content) - TAIL_SIZE
    if body < 0 or not content.endswith(MARK):
        raise ArtifactError(f"{name}: this is no file that `export` wrote, or its end is missing")
    end = body + LENGTH.size
    (length,) = LENGTH.unpack_from(content, body)
    if hashlib.sha256(memoryview(content)[:end]).digest() != content[end : -len(MARK)]:
        raise ArtifactError(f"{name}: the file was altered after `export` wrote it, its hash does not fit")
    try:
        data = json.loads(content[body - length : body])
        if data["format"] != FORMAT:
            raise ArtifactError(f"{name}: the file has format {data['format']}, allowed is {FORMAT}: export it again")
        return Description.of(data)
    except ArtifactError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(f"{name}: the description cannot be read ({error!r:.200}): export it again") from error
