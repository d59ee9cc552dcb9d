"""One input of a kernel, and how its output is judged."""

from __future__ import annotations

from dataclasses import dataclass

from tirx_attn.verify.reference import (
    Array,
    ErrorVerdict,
    attention_reference,
    error_rule,
    largest_error,
    same_dtype_attention,
)


@dataclass(frozen=True)
class Probe:
    """One input with what must come out.

    Attributes:
        name: the function that made it.
        q, k, v: the inputs.
        is_causal: the mask that `expected` assumes.
        expected: the answer, fp64; None where only the fp64 reference can say it.
        exact: the output must equal `expected` bit for bit (up to the sign of zero); otherwise `error_rule`
        judges.
    """

    name: str
    q: Array
    k: Array
    v: Array
    is_causal: bool
    expected: Array | None
    exact: bool

    @property
    def arrays(self) -> dict[str, Array]:
        """The inputs by the names of the kernel's parameters."""
        return {"Q": self.q, "K": self.k, "V": self.v}

    def judge(self, o: Array, *, scale: float | None = None) -> ErrorVerdict:
        """Hold an output against the answer; a NaN anywhere, or a wrong shape, fails.

        Args:
            scale: factor on the logits where it is not 1/sqrt(D).
        """
        if self.exact and self.expected is not None:
            if o.shape != self.expected.shape:
                raise ValueError(f"o has shape {o.shape}: allowed is the shape of q, {self.expected.shape}")
            return ErrorVerdict(largest_error(o, self.expected.astype(o.dtype)), 0.0)
        reference = self.expected
        if reference is None:
            reference, _ = attention_reference(self.q, self.k, self.v, causal=self.is_causal, scale=scale)
        plain = same_dtype_attention(self.q, self.k, self.v, causal=self.is_causal, scale=scale)
        return error_rule(o, reference, plain)
