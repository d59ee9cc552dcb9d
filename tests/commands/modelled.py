"""Predictions that stand for the model's where a test is about the commands alone."""

from __future__ import annotations

from tirx_attn.analysis.timeline.model import Prediction, StallRow


def prediction(time_us: float, block_cycles: float = 2700.0, tensor: float = 0.4) -> Prediction:
    return Prediction(
        time_us=time_us,
        tflops=1e6 / time_us,
        cycles=1850 * time_us,
        clock_ghz=1.85,
        task_cycles=180000.0,
        block_cycles=block_cycles,
        use={"tensor pipe": 2048 / block_cycles, "MUFU": 0.6},
        path={"softmax 0: instructions": 0.9 - tensor, "tensor pipe": tensor, "edge s_ready": 0.1},
        critical="softmax instructions",
        first_stall="mma on p_o_rescale",
        stalls=(StallRow("mma", "p_o_rescale", 1600.0, 0.6), StallRow("mma", "p_ready_2", 1.0, 0.0004)),
        figures="a test",
        constants="a test",
    )
