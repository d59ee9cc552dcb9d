"""Change a knob, prove that the protocol still holds, and see what the machine code costs."""

from dataclasses import replace

from tirx_attn import AttentionConfig, variant
from tirx_attn.barriers.check import check
from tirx_attn.runtime import build
from tirx_attn.schedule import tuned_schedule
from tirx_attn.targets import B200

config = AttentionConfig(B=1, Sq=8192, Skv=8192, Hq=32, Hkv=32, D=128)
tuned = tuned_schedule(config, B200)
schedules = {
    "tuned": tuned,
    "staggered": replace(tuned, stagger=True),
    "collective statistics": replace(tuned, statistics="collective"),
    "statistics in TMEM": variant("statistics-tmem").schedule(config),  # one of tirx_attn.VARIANTS
}

for name, schedule in schedules.items():
    built = build(config, schedule=schedule)
    report = check(built.func)  # plays every role's waits and arrivals to the end: no simulator, no GPU
    needs = built.cubin.resources()
    print(
        f"{name:<22} protocol {report.verdict}, {needs.instructions} instructions, "
        f"{needs.spill_instructions} spill instructions"
    )
    assert report.verdict == "clean", report.findings

try:
    replace(tuned, pv_split=(80, 48))
except ValueError as error:
    print("refused:", error)
