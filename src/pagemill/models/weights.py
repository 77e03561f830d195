"""Where the weights of the bundled models are, and that they are the right ones.

They come inside the `rapidocr` wheel; its files are read, its code never imported.
"""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pagemill.errors import NotInstalled


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """One model file of an installed package."""

    package: str
    path: str
    sha256: str


# sha256 of rapidocr 3.10.0's files, PP-OCRv6 and PP-OCRv2 of PaddleOCR (Apache-2.0).
DETECTOR: Final = Weights(
    package="rapidocr",
    path="models/PP-OCRv6_det_small.onnx",
    sha256="090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f",
)
RECOGNIZER: Final = Weights(
    package="rapidocr",
    path="models/PP-OCRv6_rec_small.onnx",
    sha256="6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884",
)
LINE_ANGLE: Final = Weights(
    package="rapidocr",
    path="models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
    sha256="e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
)


def read(weights: Weights) -> bytes:
    """Return a model file's bytes, checked.

    Raises:
        NotInstalled: the package or the file is missing, or it is another file.

    """
    path = _folder(weights.package) / weights.path
    try:
        content = path.read_bytes()
    except OSError as error:
        message = (
            f"The model file {weights.path} cannot be read from package {weights.package}: "
            f"{error}. Reinstall it: pip install --force-reinstall 'rapidocr>=3.10,<4'."
        )
        raise NotInstalled(message) from error
    if hashlib.sha256(content).hexdigest() != weights.sha256:
        message = (
            f"The model file {path} is not the one that this release was made for "
            "(sha256 differs). Reinstall it: pip install --force-reinstall 'rapidocr==3.10.*'."
        )
        raise NotInstalled(message)
    return content


def _folder(package: str) -> Path:
    spec = find_spec(package)  # finds a top-level package without importing it
    if spec is None or not spec.submodule_search_locations:
        message = (
            f"The models come with package {package}, which is not installed. "
            "Install it: pip install 'rapidocr>=3.10,<4'."
        )
        raise NotInstalled(message)
    return Path(spec.submodule_search_locations[0])
