"""What can go wrong between a PrimFunc and its machine code."""

from __future__ import annotations


class CompileError(RuntimeError):
    """A kernel could not be lowered, compiled or read back.

    Attributes:
        log: what the failing tool printed; empty where it printed nothing.
    """

    def __init__(self, message: str, log: str = "") -> None:
        self.log = log.strip()
        super().__init__(f"{message}\n{self.log}" if self.log else message)


class ToolchainError(CompileError):
    """A tool of the environment is missing or unusable; the message says which package brings it."""


class ArtifactError(ValueError):
    """A file is no exported kernel that this process can run; the message names the file and says why."""
