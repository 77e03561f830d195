"""Images as pages: JPEG through cv2, everything else through Pillow.

Measured on 79 JPEGs of receipts and forms: cv2 7.6 ms a megapixel, Pillow 10.6, and
every pixel equal. PNG would gain as much, but cv2 5.0 allocates what a chunk's length
claims: 4 GB for 1,500 bytes. An image that cannot be decoded whole is refused: neither
a grey rest nor a guess is handed on.
"""

import io
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import cv2
import numpy as np
import pillow_heif
from numpy.typing import NDArray
from PIL import AvifImagePlugin, Image

from pagemill.errors import DamagedInput, Defect, TooManyPixels
from pagemill.stages.frames import check_pages, check_pixels, count_tiff, measure_gif
from pagemill.stages.pixels import to_rgb, turned
from pagemill.stages.sniff import Type

_PILLOW: Final = {
    Type.JPEG: "JPEG",
    Type.PNG: "PNG",
    Type.GIF: "GIF",
    Type.WEBP: "WEBP",
    Type.BMP: "BMP",
    Type.TIFF: "TIFF",
    Type.HEIC: "HEIF",
    Type.AVIF: "AVIF",
}

# What Pillow and its plugins raise on bytes that are not as they should be.
_ERRORS: Final = (
    OSError,
    ValueError,
    SyntaxError,  # PNG and TIFF readers
    EOFError,
    struct.error,
    zlib.error,
    ArithmeticError,
    LookupError,
    TypeError,  # TIFF tags of the wrong type
    AttributeError,  # TIFF tags that are missing
    RuntimeError,  # libheif
)
_EXIF_ORIENTATION: Final = 0x0112


def prepare() -> None:
    """Set the decoders up for one thread, with our own limits; once a process."""
    cv2.setNumThreads(1)
    Image.MAX_IMAGE_PIXELS = None  # `check_pixels` is asked first, and names its limit
    AvifImagePlugin.DEFAULT_MAX_THREADS = 1
    pillow_heif.register_heif_opener(thumbnails=False, depth_images=False, aux_images=False)
    pillow_heif.options.DECODE_THREADS = 1


class ImageDocument:
    """An open image: JPEG, PNG, … of one page, GIF or TIFF of one a frame.

    Animated PNG, WebP and AVIF, and HEIC of several pictures, are their first or
    primary one.
    """

    def __init__(self, content: bytes, kind: Type, *, max_pixels: int) -> None:
        """Read the header of `content`, which is kept as long as the document is.

        Raises:
            TooManyPixels: the header claims more than `max_pixels`.
            DamagedInput: there is no header.

        """
        self._content = content
        self._type = kind
        self._gif_frames = 0
        if kind is Type.GIF:
            extent = measure_gif(content)
            check_pixels(extent.width, extent.height, max_pixels)
            self._gif_frames = extent.frames
        with self._damage():
            self._image = self._opened()
        check_pixels(*self._image.size, max_pixels)

    def count(self, *, max_pages: int, max_pixels: int) -> int:
        """Return the number of pages.

        Raises:
            TooManyPages, TooManyPixels: a limit is passed, by any frame.
            DamagedInput: the frames cannot be followed.

        """
        if self._type is Type.TIFF:
            with self._damage():
                return count_tiff(self._image, max_pages=max_pages, max_pixels=max_pixels)
        check_pages(self._gif_frames, max_pages)
        return max(1, self._gif_frames)

    def read(self, index: int, *, max_pixels: int) -> NDArray[np.uint8]:
        """Return a page, (height, width, 3) RGB on white, as EXIF wants it shown.

        It is C-contiguous, and may be read-only.

        Raises:
            TooManyPixels: the frame claims more than `max_pixels`.
            DamagedInput: it cannot be decoded whole.

        """
        with self._damage():
            self._seek(index)
            check_pixels(*self._image.size, max_pixels)
            page = self._by_cv2()
            if page is None:
                self._image.load()
                _check_decoded(self._image)
                page = to_rgb(self._image)
            return turned(page, _orientation(self._image))

    def close(self) -> None:
        """Free what Pillow holds."""
        self._image.close()

    def _opened(self) -> Image.Image:
        return Image.open(io.BytesIO(self._content), formats=(_PILLOW[self._type],))

    def _seek(self, index: int) -> None:
        if self._type not in (Type.GIF, Type.TIFF) or index == self._image.tell():
            return
        if self._type is Type.GIF and index < self._image.tell():
            # Rewound, Pillow keeps a canvas that later frames have grown.
            self._image = self._opened()
        self._image.seek(index)
        if self._type is Type.TIFF:
            # A frame that libtiff refuses must not show the one before it.
            self._image.im = None  # type: ignore[assignment]  # Pillow itself begins so

    def _by_cv2(self) -> NDArray[np.uint8] | None:
        """Decode a plain JPEG; None: it is not plain, or not whole, so ask Pillow."""
        # Of four colours, Pillow alone knows Adobe's inversion.
        if self._type is not Type.JPEG or self._image.mode not in ("RGB", "L"):
            return None
        encoded = np.frombuffer(self._content, np.uint8)
        # The orientation is applied after either decoder, by one rule.
        flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
        try:
            page = cv2.imdecode(encoded, flags)
        except cv2.error:
            return None
        width, height = self._image.size
        if page is None or page.shape != (height, width, 3) or page.dtype != np.uint8:
            return None
        return page.astype(np.uint8, copy=False)

    @contextmanager
    def _damage(self) -> Iterator[None]:
        # The sentence is fixed: some of Pillow's name an address in memory.
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        except Image.DecompressionBombError as error:
            raise TooManyPixels(str(error)) from error
        except _ERRORS as error:
            message = f"The {self._type} is truncated or corrupt; it cannot be decoded whole."
            raise DamagedInput(message) from error


def check() -> None:
    """Decode a known PNG and a known JPEG, so each decoder once.

    Raises:
        Defect: the pixels are not those.

    """
    red_blue = np.array([[[255, 0, 0], [0, 0, 255]]], np.uint8)
    grey = np.full((8, 8, 3), 128, np.uint8)  # JPEG keeps a grey block exactly
    _check_known(_known_png(red_blue), Type.PNG, red_blue)
    _check_known(cv2.imencode(".jpg", grey)[1].tobytes(), Type.JPEG, grey)


def _check_known(content: bytes, kind: Type, expected: NDArray[np.uint8]) -> None:
    document = ImageDocument(content, kind, max_pixels=64)
    page = document.read(0, max_pixels=64)
    document.close()
    if not np.array_equal(page, expected):
        message = f"a known {kind} is decoded wrong"
        raise Defect(message)


def _known_png(page: NDArray[np.uint8]) -> bytes:
    height, width, _ = page.shape
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = b"".join(b"\0" + row.tobytes() for row in page)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
        for name, body in chunks
    )


def _check_decoded(image: Image.Image) -> None:
    """Raise ValueError for a compressed TIFF frame without a pixel.

    Pillow 13 takes no notice when libtiff cannot find a frame's directory, and hands on
    zeros; a frame that is black from edge to edge is taken for one of those.
    """
    suspect = (
        image.format == "TIFF"
        and image.info.get("compression") != "raw"
        and image.mode in ("1", "L", "RGB", "RGBA", "I;16", "I;16B")  # of which zeros are black
    )
    if suspect and image.getbbox(alpha_only=False) is None:
        message = "no pixel was decoded"
        raise ValueError(message)


def _orientation(image: Image.Image) -> int:
    """Return EXIF's orientation; 1 where there is none, or none that can be read."""
    try:
        value = image.getexif().get(_EXIF_ORIENTATION, 1)
    except _ERRORS:
        return 1
    return value if isinstance(value, int) else 1
