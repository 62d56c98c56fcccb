"""The sheet of pictures: the right pictures under the right names, as a PNG and as a page."""

from __future__ import annotations

import base64
import io
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from shiftproof import shifts
from shiftproof.errors import ConfigurationError, DataError
from shiftproof.exports.previews import make_sheet, preview


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Write an image of 20 x 16 pixels, with a name that HTML has to escape."""
    path = tmp_path / "<b>&co.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (16, 20, 3), dtype=np.uint8)).save(path)
    return path


def centre(path: Path) -> NDArray[np.uint8]:
    with Image.open(path) as opened:
        return np.array(opened)[:, 2:18]


class Page(HTMLParser):
    """What a page holds: pictures by their text, headings by their scope, and everything it would fetch."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pictures: dict[str, NDArray[np.uint8]] = {}
        self.headings: dict[str, list[str]] = {}
        self.text = ""
        self.outside: list[str] = []
        self._scope: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "img":
            content = str(found["src"]).removeprefix("data:image/png;base64,")
            self.pictures[str(found["alt"])] = np.array(Image.open(io.BytesIO(base64.b64decode(content))))
        fetched = (str(found[name]) for name in ("src", "href") if name in found)
        self.outside += [address for address in fetched if not address.startswith("data:")]
        self._scope = found.get("scope") if tag == "th" else None

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._scope is not None and data.strip():
            self.headings.setdefault(self._scope, []).append(data.strip())


def test_a_page_shows_every_shift_of_the_families_at_every_severity(image: Path, tmp_path: Path) -> None:
    text = preview(image, out=tmp_path / "sheet.html", families=["holdout"], severities=[2, 4.5], seed=3).read_text()
    page = Page(text)
    names = [name.replace("_", " ") for name in shifts.names("holdout")]
    assert page.headings["col"] == ["shift", "clean", "severity 2", "severity 4.5"]
    assert sorted(page.headings["row"]) == sorted(names)
    assert page.headings["rowgroup"] == ["noise", "blur", "weather", "digital"]
    assert page.pictures.keys() == {f"{name}, {column}" for name in names for column in page.headings["col"][1:]}
    clean = centre(image)
    assert np.array_equal(page.pictures["spatter, clean"], clean)
    assert np.array_equal(page.pictures["spatter, severity 4.5"], shifts.corrupt(clean, "spatter@4.5", seed=3))
    assert page.outside == []
    assert "<b>&co.png, 16 x 16 pixels, seed 3" in page.text
    assert "<b>" not in text


def test_a_png_holds_the_same_pictures_enlarged_pixel_by_pixel(image: Path, tmp_path: Path) -> None:
    path = preview(image, out=tmp_path / "sheet.png", families=["bar"], severities=[5])
    with Image.open(path) as opened:
        page = np.array(opened)
    sheet = make_sheet(image, families=["bar"], severities=[5])
    assert len(sheet.rows) == len(shifts.names("bar"))
    for row in sheet.rows:
        for picture in row.pictures:
            tile = picture.repeat(10, axis=0).repeat(10, axis=1)
            assert any(np.array_equal(found, tile) for found in lookalikes(page, tile))
    assert 0.5 < page.shape[1] / page.shape[0] < 3
    for edge in (page[0], page[-1], page[:, 0], page[:, -1]):
        assert (edge == 255).all()


def lookalikes(page: NDArray[np.uint8], tile: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    """Yield the parts of a page that agree with a tile in its most varied row."""
    row = int(tile.std(axis=(1, 2)).argmax())
    wanted = re.compile(re.escape(tile[row].tobytes()))
    for top, line in enumerate(page):
        for match in wanted.finditer(line.tobytes()):
            left = match.start() // 3
            yield page[top - row : top - row + len(tile), left : left + len(tile)]


def test_the_demo_stands_in_for_an_image() -> None:
    sheet = make_sheet(None, families=["common"], severities=[])
    assert [row.name for row in sheet.rows] == list(shifts.names("common"))
    assert len({row.pictures[0].tobytes() for row in sheet.rows}) == 10  # one image of each class, in turn
    assert (sheet.side, sheet.shown) == (32, 160)


def test_a_large_image_is_brought_to_224_pixels(tmp_path: Path) -> None:
    Image.new("L", (900, 600), 90).save(tmp_path / "large.jpg")
    sheet = make_sheet(tmp_path / "large.jpg", families=["holdout"], severities=[])
    assert sheet.rows[0].pictures[0].shape == (224, 224, 3)
    assert sheet.shown == 224


def test_mistakes(image: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"\.png or \.html"):
        preview(image, out=tmp_path / "sheet.pdf")
    with pytest.raises(ConfigurationError, match="'enhance' has no severities"):
        preview(image, out=tmp_path / "sheet.png", families=["enhance"])
    with pytest.raises(ConfigurationError, match="no family 'comon'"):
        preview(image, out=tmp_path / "sheet.png", families=["comon"])
    with pytest.raises(ConfigurationError, match="no severity 6"):
        preview(image, out=tmp_path / "sheet.png", severities=[6])
    with pytest.raises(DataError, match="no image"):
        preview(tmp_path / "none.png", out=tmp_path / "sheet.png")
    (tmp_path / "text.png").write_text("hello")
    with pytest.raises(DataError, match=r"text\.png"):
        preview(tmp_path / "text.png", out=tmp_path / "sheet.png")
    Image.new("RGB", (20, 4)).save(tmp_path / "tiny.png")
    with pytest.raises(DataError, match="too small"):
        preview(tmp_path / "tiny.png", out=tmp_path / "sheet.png")
    assert not list(tmp_path.glob("sheet.*"))
