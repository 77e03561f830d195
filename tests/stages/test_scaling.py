"""The detector's view of a page, in numbers."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagemill.stages.scaling import MAX_PIXELS, OVERLAP_PX, UNIT_PX, Plan, plan
from pagemill.stages.wire import Tile


def scaled(plan: Plan) -> tuple[int, int]:
    return plan.scaled_width, plan.scaled_height


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ((640, 480), (640, 480)),  # never enlarged
        ((2480, 3508), (905, 1280)),  # A4 at 300 dpi
        ((600, 5669), (480, 4535)),  # a strip keeps its width legible
        ((600, 30_000), (480, 24_000)),
        ((10_000, 8_000), (3_000, 2_400)),  # and a huge page its text
        ((20_000, 20_000), (3464, 3464)),  # within 12 million pixels
        ((5_000, 2), (5_000, 2)),
        ((1, 1), (1, 1)),
    ],
)
def test_the_default_scale(page: tuple[int, int], expected: tuple[int, int]) -> None:
    assert scaled(plan(*page)) == expected


def test_a_side_of_ones_own_replaces_1280() -> None:
    assert scaled(plan(2480, 3508, side_px=1754)) == (1240, 1754)


def test_max_bounds_the_long_side_whatever_becomes_of_the_short_one() -> None:
    assert scaled(plan(600, 6000, side_px=960, side_type="max")) == (96, 960)
    assert scaled(plan(300, 200, side_px=960, side_type="max")) == (300, 200)


def test_min_enlarges_up_to_4000() -> None:
    assert scaled(plan(400, 600, side_px=736, side_type="min")) == (736, 1104)
    assert scaled(plan(208, 1618, side_px=736, side_type="min")) == (514, 4000)
    assert scaled(plan(2000, 3000, side_px=736, side_type="min")) == (2000, 3000)


def test_a_small_page_is_one_tile_padded_to_whole_units() -> None:
    assert plan(33, 20) == Plan(
        scaled_width=33,
        scaled_height=20,
        det_width=64,
        det_height=32,
        tiles=(Tile(x=0, y=0, width=64, height=32),),
    )


def test_a_page_is_halved_along_its_long_side_for_two_cores() -> None:
    assert plan(2480, 3508).tiles == (
        Tile(x=0, y=0, width=928, height=704),
        Tile(x=0, y=576, width=928, height=704),
    )


def test_a_huge_page_is_cut_across_as_well() -> None:
    tiles = plan(20_000, 20_000).tiles
    assert len(tiles) == 14
    assert max(tile.width for tile in tiles) < 2000


@given(
    width=st.integers(1, 200_000),
    height=st.integers(1, 200_000),
    side_px=st.none() | st.integers(32, 8000),
    side_type=st.sampled_from([None, "min", "max"]),
)
def test_tiles_cover_the_padded_page_and_overlap(
    width: int, height: int, side_px: int | None, side_type: object
) -> None:
    planned = plan(width, height, side_px=side_px, side_type=side_type)  # type: ignore[arg-type]  # drawn
    assert planned.scaled_width * planned.scaled_height <= MAX_PIXELS * 1.01
    assert planned.det_width * planned.det_height <= MAX_PIXELS * 2  # padding of a thin strip
    for sides in (
        [(tile.x, tile.width) for tile in planned.tiles],
        [(tile.y, tile.height) for tile in planned.tiles],
    ):
        spans = sorted(set(sides))
        assert all(start % UNIT_PX == 0 and length % UNIT_PX == 0 for start, length in spans)
        assert spans[0][0] == 0
        for (start, length), (following, _) in itertools.pairwise(spans):
            assert start + length - following >= OVERLAP_PX
    last = planned.tiles[-1]
    assert (last.x + last.width, last.y + last.height) == (planned.det_width, planned.det_height)
