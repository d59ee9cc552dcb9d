"""Inputs that broke other kernels, those of one short launch: built without optimisation, which is quicker here."""

from __future__ import annotations

import pytest

from tests.cases import SHORT_ROWS
from tests.launches import launch, launches
from tirx_attn import verify

pytestmark = [pytest.mark.simulator, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(autouse=True, scope="module")
def simulator():
    """A child process of its own. The optimiser takes 13 s of a build and gives back 2 s a launch."""
    pytest.importorskip("tirx_harness", reason="needs the simulator: pip install 'tirx-attn[simulator]'")
    verify.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NUMSIM_GENERATED_OPT_LEVEL", "0")
        yield
        verify.close()


@pytest.mark.parametrize(("case", "kind", "name"), launches(SHORT_ROWS))
def test_launch(case, kind, name, record_property):
    launch(case, kind, name, record_property)
