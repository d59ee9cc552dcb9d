"""What a kernel is proved on, and by whom."""

from __future__ import annotations

from tirx_attn.verify.probes import PROBES
from tirx_attn.verify.rescale import RESCALE_PROBES

INPUTS = {
    "ordinary data": PROBES["random"],
    "rescale in every block": RESCALE_PROBES["rescale_every"],
    "rescale in no block": RESCALE_PROBES["rescale_never"],
}
"""The checkers see the paths that an input takes, so both outcomes of the rescale are among them."""

CHECKERS = ("synccheck", "racecheck")
