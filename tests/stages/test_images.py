"""Images become RGB on white, whole or not at all."""

import zlib

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from pagemill.errors import DamagedInput, TooManyPages, TooManyPixels
from pagemill.stages import images
from pagemill.stages.images import ImageDocument
from pagemill.stages.sniff import Type, sniff
from tests.stages import documents

LIMIT = 1_000_000


@pytest.fixture(autouse=True)
def _prepared() -> None:
    images.prepare()


def opened(content: bytes, *, max_pixels: int = LIMIT) -> ImageDocument:
    return ImageDocument(content, sniff(memoryview(content)), max_pixels=max_pixels)


def read(content: bytes, index: int = 0) -> NDArray[np.uint8]:
    page = opened(content).read(index, max_pixels=LIMIT)
    assert page.dtype == np.uint8
    assert page.flags.c_contiguous
    assert page.shape[2] == 3
    return page


def assert_near(page: NDArray[np.uint8], expected: NDArray[np.uint8], *, within: int) -> None:
    assert page.shape == expected.shape
    assert np.abs(page.astype(int) - expected).max() <= within


@pytest.mark.parametrize("kind", ["PNG", "BMP", "TIFF"])
def test_lossless_types_give_every_pixel(kind: str) -> None:
    page = documents.corners()
    assert np.array_equal(read(documents.encoded(page, kind)), page)


def test_webp_and_avif_without_loss_give_every_pixel() -> None:
    page = documents.corners()
    assert np.array_equal(read(documents.encoded(page, "WEBP", lossless=True)), page)
    assert_near(
        read(documents.encoded(page, "AVIF", quality=100, subsampling="4:4:4")), page, within=4
    )


def test_lossy_types_come_near() -> None:
    page = documents.corners()
    assert_near(read(documents.jpeg(page)), page, within=40)
    assert_near(read(documents.heic(page)), page, within=40)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(orientation: int) -> None:
    page = documents.corners(64, 32)  # corners of whole JPEG blocks
    shown = read(documents.jpeg(page, orientation=orientation))
    expected = {
        1: page,
        2: page[:, ::-1],
        3: page[::-1, ::-1],
        4: page[::-1],
        5: page.transpose(1, 0, 2),
        6: np.rot90(page, -1),
        7: np.rot90(page, 2).transpose(1, 0, 2),
        8: np.rot90(page, 1),
    }
    assert_near(shown, expected[orientation], within=40)


def test_a_png_and_a_tiff_are_turned_too() -> None:
    page = documents.corners()
    exif = Image.Exif()
    exif[0x0112] = 6
    for kind in ("PNG", "TIFF", "WEBP"):
        options = {"lossless": True} if kind == "WEBP" else {}
        content = documents.encoded(page, kind, exif=exif, **options)
        assert np.array_equal(read(content), np.rot90(page, -1)), kind


def test_broken_exif_is_no_reason_to_refuse() -> None:
    page = documents.text_page("fine")
    content = documents.encoded(page, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert read(content).shape == page.shape


def test_adobe_cmyk_is_not_inverted() -> None:
    page = documents.corners()
    assert_near(read(documents.jpeg(page, mode="CMYK")), page, within=48)


def test_grey_jpeg_and_cmyk_tiff() -> None:
    page = documents.corners()
    grey = np.asarray(Image.fromarray(page).convert("L").convert("RGB"))
    assert_near(read(documents.jpeg(page, mode="L")), grey, within=24)
    cmyk = documents.encoded(Image.fromarray(page).convert("CMYK"), "TIFF")
    assert np.array_equal(read(cmyk), page)


@pytest.mark.parametrize("mode", ["1", "P", "L"])
def test_few_colours_stay_themselves(mode: str) -> None:
    page = documents.text_page("Few")
    black_and_white = np.where(page > 127, np.uint8(255), np.uint8(0))
    content = documents.encoded(Image.fromarray(black_and_white).convert(mode), "PNG")
    assert np.array_equal(read(content), black_and_white)


def test_sixteen_bits_are_divided_not_cut_off() -> None:
    samples = [0, 255, 256, 32_768, 65_535]
    row = b"".join(sample.to_bytes(2, "big") for sample in samples)
    grey = read(documents.raw_png([row], 5, depth=16, colour=0))
    assert grey[0, :, 0].tolist() == [0, 0, 1, 128, 255]
    colour = read(documents.raw_png([row[:6]], 1, depth=16, colour=2))
    assert colour.tolist() == [[[0, 0, 1]]]
    tiff = documents.encoded(Image.fromarray(np.array([samples], np.uint16)), "TIFF")
    assert read(tiff)[0, :, 1].tolist() == [0, 0, 1, 128, 255]


def test_floats_are_stretched_to_what_occurs() -> None:
    values = np.array([[-1.0, 0.0, 1.0]], np.float32)
    assert read(documents.encoded(Image.fromarray(values), "TIFF"))[0, :, 0].tolist() == [
        0,
        128,
        255,
    ]
    blank = documents.encoded(Image.fromarray(np.zeros((2, 2), np.float32)), "TIFF")
    assert read(blank).min() == 255


def test_what_is_transparent_shows_white() -> None:
    image = Image.new("RGBA", (3, 1), (0, 0, 0, 0))
    image.putpixel((1, 0), (255, 0, 0, 255))
    image.putpixel((2, 0), (0, 0, 0, 51))
    assert read(documents.encoded(image, "PNG")).tolist() == [[[255] * 3, [255, 0, 0], [204] * 3]]
    grey = documents.encoded(image.convert("LA"), "PNG")
    assert read(grey)[0, 0].tolist() == [255] * 3
    palette = Image.new("P", (2, 1), 1)
    palette.putpalette([0, 0, 0, 9, 9, 9])
    palette.putpixel((0, 0), 0)
    content = documents.encoded(palette, "PNG", transparency=0)
    assert read(content).tolist() == [[[255] * 3, [9] * 3]]


def test_white_ink_on_nothing_is_shown_on_black() -> None:
    image = Image.new("RGBA", (2, 1), (255, 255, 255, 0))
    image.putpixel((1, 0), (255, 255, 255, 255))
    assert read(documents.encoded(image, "PNG")).tolist() == [[[0] * 3, [255] * 3]]


@pytest.mark.parametrize(
    ("kind", "options"), [("GIF", {}), ("TIFF", {}), ("TIFF", {"compression": "tiff_lzw"})]
)
def test_each_frame_is_a_page_in_any_order(kind: str, options: dict[str, str]) -> None:
    pages = [documents.text_page(text) for text in ("one", "two", "three")]
    pages = [np.where(page > 127, np.uint8(255), np.uint8(0)) for page in pages]
    document = opened(documents.frames(pages, kind, **options))
    assert document.count(max_pages=3, max_pixels=LIMIT) == 3
    for index in (2, 0, 1, 1, 0):
        assert np.array_equal(document.read(index, max_pixels=LIMIT), pages[index])


@pytest.mark.parametrize("compression", ["group4", "jpeg", "tiff_deflate", "packbits"])
def test_compressed_tiffs(compression: str) -> None:
    page = np.where(documents.text_page("TIFF") > 127, np.uint8(255), np.uint8(0))
    image = Image.fromarray(page).convert("1" if compression == "group4" else "RGB")
    decoded = read(documents.encoded(image, "TIFF", compression=compression))
    assert_near(decoded, page, within=120 if compression == "jpeg" else 0)


@pytest.mark.parametrize("kind", ["GIF", "TIFF"])
def test_too_many_frames_are_refused(kind: str) -> None:
    document = opened(documents.frames([documents.text_page(str(i)) for i in range(3)], kind))
    with pytest.raises(TooManyPages, match=r"3 pages; .* allows 2"):
        document.count(max_pages=2, max_pixels=LIMIT)


def test_a_tiffs_later_frame_is_measured_as_well() -> None:
    small, large = documents.corners(), documents.corners(100, 100)
    document = opened(documents.frames([small, large], "TIFF"), max_pixels=5000)
    with pytest.raises(TooManyPixels, match="100 x 100 pixels, more than the 5000"):
        document.count(max_pages=9, max_pixels=5000)
    with pytest.raises(TooManyPixels):
        document.read(1, max_pixels=5000)


def test_a_frame_that_stands_out_of_a_gifs_screen_is_measured() -> None:
    content = bytearray(documents.frames([documents.corners()], "GIF"))
    at = content.index(b"\x2c\0\0\0\0")
    content[at + 1 : at + 5] = b"\xff\xff\xff\xff"
    with pytest.raises(TooManyPixels, match="65583 x 65567"):
        opened(bytes(content))


def test_a_header_alone_is_enough_to_refuse() -> None:
    bomb = documents.raw_png([], 30_000, depth=1, colour=0).replace(
        (30_000).to_bytes(4, "big") + b"\0\0\0\0", (30_000).to_bytes(4, "big") * 2
    )
    header = bomb[12:29]
    bomb = bomb[:29] + zlib.crc32(header).to_bytes(4, "big") + bomb[33:]
    with pytest.raises(TooManyPixels, match="30000 x 30000 pixels, more than the 1000000"):
        opened(bomb)


@pytest.mark.parametrize("name", [name for name in documents.one_of_each() if "pdf" not in name])
@pytest.mark.parametrize("share", [0.3, 0.6, 0.8])
def test_a_truncated_image_is_damaged(name: str, share: float) -> None:
    content = documents.one_of_each()[name]
    cut = content[: int(len(content) * share)]
    last = 1 if name in ("gif", "tiff") else 0
    with pytest.raises(DamagedInput, match="truncated or corrupt"):
        opened(cut).read(last, max_pixels=LIMIT)


def test_a_compressed_tiff_frame_that_is_not_there_is_damaged() -> None:
    pages = [documents.text_page("one"), documents.text_page("two")]
    content = bytearray(documents.frames(pages, "TIFF", compression="tiff_lzw"))
    planar = content.rindex(b"\x1c\x01\x03\x00")  # PlanarConfiguration, the last frame's
    content[planar + 2 : planar + 4] = b"\x02\x00"  # is now text, which libtiff refuses
    document = opened(bytes(content))
    document.read(0, max_pixels=LIMIT)
    with pytest.raises(DamagedInput):
        document.read(1, max_pixels=LIMIT)


def test_the_message_is_the_same_each_time() -> None:
    messages = set()
    for _ in range(2):
        with pytest.raises(DamagedInput) as raised:
            opened(b"\x89PNG\r\n\x1a\nnothing")
        messages.add(str(raised.value))
    assert messages == {"The PNG is truncated or corrupt; it cannot be decoded whole."}


def test_the_known_images_are_known() -> None:
    images.check()


def test_type_names_are_those_of_pillow() -> None:
    assert set(images._PILLOW) == set(Type) - {Type.PDF}
