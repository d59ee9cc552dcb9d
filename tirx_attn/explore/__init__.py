"""One page that shows a kernel's protocol, its memory maps and where the time of a task goes; a trace beside it."""

from __future__ import annotations

from tirx_attn.explore.facts import Study, document, facts
from tirx_attn.explore.trace import trace_events

__all__ = ["Study", "document", "facts", "trace_events"]
