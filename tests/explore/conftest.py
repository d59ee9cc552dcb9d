"""A browser, and the pages that it opens; tests that ask for them are skipped where there is none."""

from __future__ import annotations

import pytest

from tests.explore import browser as web
from tests.explore.pages import made


@pytest.fixture(scope="session")
def browser():
    if reason := web.no_browser():
        pytest.skip(reason)
    with web.started() as made:
        yield made


@pytest.fixture(scope="session")
def page_of(tmp_path_factory):
    """Path of a page by its name; all processes of a run share them."""
    folder = tmp_path_factory.getbasetemp()
    if folder.name.startswith("popen-"):  # of one worker among several
        folder = folder.parent
    return lambda name: made(name, folder)


@pytest.fixture
def opened(browser, page_of):
    with web.Opened(browser, page_of("one")) as found:
        yield found


@pytest.fixture
def compared(browser, page_of):
    with web.Opened(browser, page_of("two")) as found:
        yield found
