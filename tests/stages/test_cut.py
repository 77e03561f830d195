"""Lines found on maps and cut out of pages."""

import numpy as np
from numpy.typing import NDArray

from pagemill.stages import cut
from pagemill.stages.wire import Cut, Lines, PageRead, Strip, Tile
from tests.stages.running import answers, item

WHOLE = (Tile(x=0, y=0, width=160, height=128),)


def page_read(
    scale: int = 1, tiles: tuple[Tile, ...] = WHOLE, scaled_height: int = 128
) -> PageRead:
    return PageRead(
        width=160 * scale,
        height=scaled_height * scale,
        det_width=160,
        det_height=128,
        scaled_width=160,
        scaled_height=scaled_height,
        tiles=tiles,
    )


def map_of(*areas: tuple[slice, slice]) -> NDArray[np.uint8]:
    probability = np.zeros((128, 160), np.uint8)
    for area in areas:
        probability[area] = 255
    return probability


def lines(
    page: PageRead, *maps: NDArray[np.uint8]
) -> tuple[tuple[Strip, ...], list[NDArray[np.uint8]]]:
    pixels = np.zeros((page.height, page.width, 3), np.uint8)
    ((found, buffers),) = answers(cut.load({}), Lines, item(Cut(page=page), pixels, *maps))
    return found.strips, buffers


def test_lines_come_in_reading_order_with_their_strips() -> None:
    found = map_of(np.s_[80:92, 20:140], np.s_[20:32, 90:140], np.s_[22:34, 20:70])
    strips, (buffer,) = lines(page_read(), found)
    starts = [strip.polygon[0] for strip in strips]
    assert [x < 60 for x, _ in starts] == [True, False, True]
    assert starts[2][1] > 60
    assert [strip.offset for strip in strips] == [
        sum(48 * each.width * 3 for each in strips[:i]) for i in range(3)
    ]
    assert buffer.size == sum(48 * strip.width * 3 for strip in strips)


def test_boxes_are_in_page_pixels() -> None:
    one, _ = lines(page_read(scale=1), map_of(np.s_[20:32, 20:140]))
    three, _ = lines(page_read(scale=3), map_of(np.s_[20:32, 20:140]))
    small, large = np.array(one[0].polygon), np.array(three[0].polygon)
    np.testing.assert_allclose(large, small * 3, atol=0.05)


def test_a_line_over_a_seam_is_found_whole() -> None:
    tiles = (Tile(x=0, y=0, width=96, height=128), Tile(x=64, y=0, width=96, height=128))
    found = map_of(np.s_[20:32, 20:140])
    whole, _ = lines(page_read(), found)
    parts = [np.ascontiguousarray(found[:, tile.x : tile.x + tile.width]) for tile in tiles]
    tiled, _ = lines(page_read(tiles=tiles), *parts)
    assert tiled == whole


def test_nothing_is_found_in_the_padding() -> None:
    strips, buffers = lines(page_read(scaled_height=64), map_of(np.s_[80:92, 20:140]))
    assert strips == ()
    assert buffers == []


def test_a_box_over_the_edge_is_kept_on_the_page() -> None:
    (strip,), _ = lines(page_read(), map_of(np.s_[0:12, 0:160]))
    xs, ys = np.array(strip.polygon).T
    assert (xs.min(), xs.max(), ys.min()) == (0, 160, 0)


def test_a_tall_line_starts_at_its_top_right() -> None:
    (strip,), _ = lines(page_read(), map_of(np.s_[10:110, 40:52]))
    assert strip.tall
    (x0, y0), (x1, y1), *_ = strip.polygon
    assert x0 == x1 > 46
    assert y0 < y1


def test_the_stage_knows_its_answer() -> None:
    cut.load({}).check()
