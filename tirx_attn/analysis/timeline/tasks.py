"""The tasks of a problem, the order in which SMs take them, and short launches that stand for a task of each length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tirx_attn.analysis.waves import cta_tasks
from tirx_attn.config import TILE_KEYS
from tirx_attn.family import AnyPlan, family_of
from tirx_attn.schedule.tiles import TaskTiles, ceil_div

LENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24)
"""Key blocks of the tasks that are played. What lies between is interpolated, longer ones go on at the last slope."""


@dataclass(frozen=True)
class Task:
    """What decides how long a task takes.

    Attributes:
        keys: keys that the last query of its tiles may see.
        tokens: query tokens of its tiles.
    """

    keys: int
    tokens: int

    @property
    def blocks(self) -> int:
        return ceil_div(self.keys, TILE_KEYS)


@dataclass(frozen=True)
class Tasks:
    """Tasks of a plan whose lengths are known."""

    plan: AnyPlan

    @property
    def _tiles(self) -> TaskTiles:
        return self.plan.tiles

    @property
    def tokens(self) -> int:
        """Query tokens of a task."""
        return self._tiles.tiles_per_task * self._tiles.tokens_per_tile

    @cached_property
    def by_m_block(self) -> tuple[Task, ...]:
        """The task at each place along the query tokens."""
        _, queries, all_keys = self.plan.config.lengths
        made = []
        for m in range(int(self._tiles.m_blocks)):
            end = min((m + 1) * self.tokens, queries)
            keys = max(0, end + all_keys - queries) if self.plan.config.is_causal else all_keys
            made.append(Task(keys, self.tokens))
        return tuple(made)

    @property
    def heads(self) -> int:
        """(batch, K/V head) pairs."""
        return self.plan.config.lengths[0] * self.plan.config.Hkv

    def order(self) -> list[list[Task]]:
        """Tasks of each CTA, in its order; CTAs in the order in which they are dispatched."""
        return [[self.by_m_block[m] for _, m in cta] for cta in cta_tasks(self.plan)]

    # -- short launches ----------------------------------------------------------------------------------------------

    def samples(self) -> list[Task]:
        """Tasks to play: of the lengths that occur, as many as an interpolation needs, shortest first."""
        present = sorted({task.blocks: task for task in self.by_m_block if task.keys}.items())
        if not present:
            return []
        longest, mask = present[-1][0], present[-1][1]
        wanted = [n for n in LENGTHS if present[0][0] <= n <= longest] or [longest]
        if longest <= LENGTHS[-1]:
            wanted.append(longest)
        if not self.plan.config.is_causal:
            wanted = [longest] if longest <= LENGTHS[-1] else [12, LENGTHS[-1]]
        elif present[0][0] not in wanted:
            wanted.append(present[0][0])
        known = dict(present)
        return [known.get(n, Task(mask.keys - (longest - n) * TILE_KEYS, mask.tokens)) for n in sorted(set(wanted))]

    def open_plan(self) -> AnyPlan:
        """The plan of the same kernel for all lengths: its launches can be as short as need be."""
        config = replace(self.plan.config, B=None, Sq=None, Skv=None)
        return family_of(self.plan.target).make_plan(config, self.plan.schedule, self.plan.target)

    def sizes(self, task: Task, count: int = 1) -> dict[str, int]:
        """Run-time lengths of `open_plan` with which CTA 0 takes the task `count` times, or oftener where it must."""
        ctas = self.open_plan().grid or 1
        return {"B": ctas * (count - 1) // self.plan.config.Hkv + 1, "Sq": task.tokens, "Skv": task.keys}

    def repeats(self, count: int = 1) -> int:
        """How often CTA 0 takes the task in a launch of `sizes`."""
        ctas = self.open_plan().grid
        batches = (ctas or 1) * (count - 1) // self.plan.config.Hkv + 1
        return ceil_div(batches * self.plan.config.Hkv, ctas) if ctas else 1

    def careful(self, task: Task, stage: int) -> int:
        """Key blocks of a task that go through the careful code on a query tile: the first one and the masked ones."""
        config = replace(self.plan.config, B=1, Sq=task.tokens, Skv=task.keys)
        tiles = replace(self._tiles, config=config, sq=task.tokens, skv=task.keys)
        return max(1, task.blocks - int(tiles.unmasked_blocks(0, stage)))
