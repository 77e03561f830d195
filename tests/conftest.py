"""What all tests share."""

from collections.abc import Iterator

import pytest
from blockbuster import blockbuster_ctx


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def _nothing_blocks_the_event_loop(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which code of pagemill makes a blocking call on the event loop."""
    if request.node.get_closest_marker("blocks"):
        yield
        return
    with blockbuster_ctx("pagemill") as guard:
        # Buffers are files of memory: writing to one copies, and waits for nobody.
        guard.functions["os.write"].can_block_in("pagemill/engine/buffers.py", "write")
        # Once, at the start: the control group's files are the kernel's memory.
        guard.functions["io.TextIOWrapper.read"].can_block_in(
            "pagemill/engine/group.py", "usable_cores"
        )
        # A traceback on a terminal looks for the lines of its source.
        guard.functions["os.stat"].can_block_in("rich/traceback.py", "_render_stack")
        yield
