"""What all tests share."""

from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_blocks_the_event_loop() -> Iterator[None]:
    """Fail a test in which code of pagemill makes a blocking call on the event loop."""
    with blockbuster_ctx("pagemill"):
        yield
