"""Proof without a GPU: an fp64 reference, probes with closed-form answers, simulator runs and checkers.

Importing this package imports no TVM; the functions that take a PrimFunc do so when called.
"""

from __future__ import annotations

from tirx_attn.verify.attention import simulate, simulated_plan
from tirx_attn.verify.probe import Probe
from tirx_attn.verify.probes import PROBES
from tirx_attn.verify.process import SimulatorError, SimulatorUnavailable, require_simulator
from tirx_attn.verify.reference import (
    ErrorVerdict,
    attention_reference,
    error_rule,
    judge,
    same_dtype_attention,
)
from tirx_attn.verify.rescale import RESCALE_PROBES, expected_rescales, rescale_opportunities
from tirx_attn.verify.simulator import Check, Run, build, close, racecheck, run, synccheck

__all__ = [
    "PROBES",
    "RESCALE_PROBES",
    "Check",
    "ErrorVerdict",
    "Probe",
    "Run",
    "SimulatorError",
    "SimulatorUnavailable",
    "attention_reference",
    "build",
    "close",
    "error_rule",
    "expected_rescales",
    "judge",
    "racecheck",
    "require_simulator",
    "rescale_opportunities",
    "run",
    "same_dtype_attention",
    "simulate",
    "simulated_plan",
    "synccheck",
]
