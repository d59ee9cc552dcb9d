"""The synchronisation protocol: its table, its TIRx objects, and the check that a kernel does what the table says."""

PROTOCOL_ATTRIBUTE = "tirx_attn.protocol"
"""Attribute of the PrimFunc that carries the declared roles and edges, as JSON."""
