"""How a problem is run: Schedule (knobs), Plan (what follows), tiles, tuning table. Nothing here imports TVM."""

from tirx_attn.schedule.plan import Plan, make_plan
from tirx_attn.schedule.schedule import Schedule
from tirx_attn.schedule.tuning import tuned_schedule

__all__ = ["Plan", "Schedule", "make_plan", "tuned_schedule"]
