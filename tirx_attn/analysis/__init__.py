"""What can be said of a kernel without running it: machine code, timeline, roofline and traffic, arithmetic.

`code_report` reads one cubin: the loop of each role, its instructions by kind, its issue stalls.
"""

from __future__ import annotations

from tirx_attn.analysis.code import CodeReport, code_report
from tirx_attn.analysis.loop import RoleLoop

__all__ = ["CodeReport", "RoleLoop", "code_report"]
