"""Draws src/pagemill/stages/known/line.png: python -m tests.stages.draw_known."""

from pathlib import Path
from typing import Final

from PIL import Image, ImageDraw, ImageFont

from pagemill.stages import known

FILE: Final = Path(known.__file__).with_name("line.png")


def main() -> None:
    """Draw the known text in Pillow's own font, black on white, 48 pixels high."""
    font = ImageFont.load_default(30)
    width = -(-round(font.getlength(known.TEXT) + 16) // 16) * 16
    image = Image.new("L", (width, 48), 255)
    ImageDraw.Draw(image).text((8, 24), known.TEXT, fill=0, font=font, anchor="lm")
    image.save(FILE, optimize=True)


if __name__ == "__main__":
    main()
