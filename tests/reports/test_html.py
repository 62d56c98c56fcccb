from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plotly.colors import sample_colorscale

from shiftproof.errors import DataError
from shiftproof.reports import charts, formatting, glossary, heat
from shiftproof.reports import html as page_html
from shiftproof.reports.view import Action, Column, Figure, Gallery, Masthead, Picture, Sentence, Table, Tile, View
from tests.reports.sample_views import masthead, png, scene, views

HOSTILE = "<script>alert(1)</script>"
EMPTY = Table("Nothing", (Column("Name"), Column("Share", "percent")), ())


class Elements(HTMLParser):
    """The start tags of a page with their attributes, and the text of each script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.text = ""
        self._inside = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append("")

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            self.scripts[-1] += data
        elif self._inside != "style":
            self.text += data

    def values(self, attribute: str) -> list[str]:
        return [value for _, attributes in self.found if (value := attributes.get(attribute)) is not None]

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.found)


@pytest.fixture(scope="module")
def html() -> str:
    return page_html.render(masthead(), views())


@pytest.fixture(scope="module")
def page(html: str) -> Elements:
    return Elements(html)


class TestPage:
    def test_every_link_leads_somewhere(self, page: Elements) -> None:
        links = [link.removeprefix("#") for link in page.values("href") if link.startswith("#")]
        assert set(links) <= set(page.values("id"))
        assert {"clean", "corruptions", "worst-case", "measured"} <= set(links)

    def test_every_anchor_is_there_once(self, page: Elements) -> None:
        anchors = page.values("id")
        assert len(anchors) == len(set(anchors))

    def test_asks_for_nothing(self, page: Elements) -> None:
        assert all(link.startswith(("#", "data:")) for link in page.values("href") + page.values("src"))

    def test_a_table_is_behind_every_figure(self, page: Elements) -> None:
        figures = [block for view in views() for block in view.blocks if isinstance(block, Figure)]
        tags = [tag for tag, attributes in page.found if tag == "details" or attributes.get("class") == "chart"]
        assert tags == ["div", "details"] * len(figures)
        assert all("open" in attributes for tag, attributes in page.found if tag == "details")

    def test_says_everything_the_views_say(self, page: Elements) -> None:
        said = [
            text
            for view in views()
            for text in (view.title, view.question, *(part for note in view.notes for part in note.split("`")))
        ]
        said += [sentence.text for view in views() for sentence in view.verdict]
        said += [
            text
            for view in views()
            for tile in view.tiles
            for text in (tile.title, tile.value, tile.interval, tile.rule)
        ]
        said += [text for view in views() for block in view.blocks for text in (block.title, block.caption)]
        said += [
            text for view in views() for action in view.actions for text in (action.title, action.why, action.code)
        ]
        said += [
            picture.caption
            for view in views()
            for block in view.blocks
            if isinstance(block, Table)
            for picture in block.pictures.values()
        ]
        said += [*masthead().facts.values(), *masthead().method.values(), masthead().command, *masthead().failures]
        said += masthead().limits
        assert [text for text in said if text not in page.text] == []

    def test_stays_under_eight_megabytes(self, html: str) -> None:
        assert len(html.encode()) < 8e6

    def test_leaves_plotly_out_where_nothing_is_drawn(self) -> None:
        html = page_html.render(Masthead("model", "data"), [View("clean", "Clean", blocks=(EMPTY,))])
        assert "plotly.js" not in html
        assert len(html) < 50_000

    def test_renders_nothing_at_all(self) -> None:
        assert "<h1>model</h1>" in page_html.render(Masthead("model", "data"), [])

    def test_sections_with_one_name_get_two_anchors(self) -> None:
        twice = [View("a b", "First"), View("A-b", "Second"), View("top", "Third"), View("\u2603", "Fourth")]
        assert page_html.anchors(twice) == ["a-b", "a-b-2", "top-2", "section"]

    def test_is_written_whole(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "report.html"
        page_html.write(path, masthead(), views())
        assert path.read_text("utf-8") == page_html.render(masthead(), views())
        assert list(path.parent.iterdir()) == [path]


def test_code_in_a_note_is_set_as_code(html: str) -> None:
    assert "<code>shiftproof list shifts</code> names all corruptions" in html


class TestMeasures:
    def test_a_measure_carries_its_definition_wherever_it_is_named(self, html: str) -> None:
        assert '<abbr title="Mean corruption error (ImageNet-C)' in html
        assert re.search(r'<h3>Clean <abbr title="The share of inputs[^>]*>accuracy</abbr></h3>', html)

    def test_those_of_the_page_are_listed_once(self, html: str) -> None:
        listed = re.findall(r"<dt>([^<]+)</dt>", html.partition('<dl class="measures">')[2])
        assert listed == sorted(set(listed), key=str.lower)
        assert {"accuracy", "mCE", "worst case"} <= set(listed)
        assert "mIoU" not in listed

    def test_parts_of_words_and_markup_are_left_alone(self) -> None:
        assert (
            str(glossary.defined("inaccuracy, prelECEde, slices & <b>"))
            == "inaccuracy, prelECEde, slices &amp; &lt;b&gt;"
        )
        assert glossary.used("accuracy, mCE") == {}


def test_a_unit_is_set_apart_from_its_number_and_words_are_not() -> None:
    assert (
        str(formatting.unit_apart("\N{MINUS SIGN}2.4 points")) == '\N{MINUS SIGN}2.4 <span class="unit">points</span>'
    )
    assert str(formatting.unit_apart("91.5%")) == "91.5%"
    assert str(formatting.unit_apart("too few <to> say")) == "too few &lt;to&gt; say"


class TestNext:
    def test_actions_come_by_what_they_win_with_their_evidence(self, page: Elements) -> None:
        titles = re.findall(r"(Normalise with batch statistics|Train with AugMix|Watch it)\n", page.text)
        assert titles == 2 * ["Normalise with batch statistics", "Train with AugMix", "Watch it"]  # in short, in full
        assert "measured: +18.0 points on average\n" in page.text
        assert "at most 9.5 points on average under corruption\n" in page.text
        assert page.values("href").count("#stability") >= 4

    def test_there_is_no_section_without_actions(self) -> None:
        assert 'id="next"' not in page_html.render(Masthead("model", "data"), [View("clean", "Clean")])

    def test_times_are_beside_those_expected(self) -> None:
        table = formatting.time_table({"clean": (2.5, 3.1), "worst_case": (None, 38.0)})
        assert table.rows == (("clean", 2.5, 3.1), ("worst case", None, 38.0))
        assert formatting.time_table({"clean": (None, 3.1)}).rows == (("clean", 3.1),)


class TestHostileText:
    """What users name their classes, models and files is shown, and never obeyed."""

    def test_markup_is_text_everywhere(self) -> None:
        everywhere = View(
            HOSTILE,
            HOSTILE,
            HOSTILE,
            (Sentence(HOSTILE, "bad"),),
            (Tile(HOSTILE, HOSTILE, HOSTILE, "good", HOSTILE),),
            (
                Table(
                    HOSTILE,
                    (Column(HOSTILE),),
                    ((HOSTILE,),),
                    HOSTILE,
                    {(0, 0): Picture(png(scene(1)), HOSTILE, False)},
                ),
                Figure(HOSTILE, {"data": [{"name": HOSTILE, "x": [HOSTILE]}], "layout": {}}, EMPTY, HOSTILE),
                Gallery(HOSTILE, (Picture(png(scene(0)), HOSTILE, True),), HOSTILE),
            ),
            (HOSTILE,),
            actions=(Action(HOSTILE, HOSTILE, HOSTILE, 1.0, HOSTILE),),
        )
        head = Masthead(
            *(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}, HOSTILE, {HOSTILE: HOSTILE}, (HOSTILE,), {HOSTILE: (1.0, 2.0)}),
            limits=(HOSTILE,),
        )
        html = page_html.render(head, [everywhere])
        page = Elements(html)
        assert HOSTILE not in html
        assert page.text.count(HOSTILE) >= 30
        assert page.count("script") == 4  # the figure, the charts' template, the page's script and Plotly
        assert not any(script.startswith("alert") for script in page.scripts)

    def test_attributes_cannot_be_left(self) -> None:
        quote = '" onmouseover="alert(1)'
        page = Elements(page_html.render(masthead(), [View(quote, quote, blocks=(Table(quote, (Column("a"),), ()),))]))
        assert not any("onmouseover" in attributes for _, attributes in page.found)

    def test_plotly_sees_no_markup(self) -> None:
        name = "<b>cat</b> & <a href='x'>dog</a>"
        figure = Figure(
            "", {"data": [{"x": [name], "name": name, "hovertemplate": f"{name}<br>%{{x}}<extra></extra>"}]}, EMPTY
        )
        (trace,) = json.loads(charts.figure_json(figure))["data"]
        escaped = "&lt;b&gt;cat&lt;/b&gt; &amp; &lt;a href='x'&gt;dog&lt;/a&gt;"
        assert trace == {"x": [escaped], "name": escaped, "hovertemplate": f"{escaped}<br>%{{x}}<extra></extra>"}

    def test_json_cannot_end_its_script(self) -> None:
        assert "<" not in charts.to_json({"hovertemplate": "<extra></extra>", "text": "a\nb</script>"})

    @pytest.mark.parametrize(
        ("text", "shown"),
        [
            ("cat\x00\x07\x1b[31m", "cat[31m"),
            ("\u202egnp.exe\u2066", "gnp.exe"),
            ("a\tb\nc", "a\tb\nc"),
            ("caf\udce9", "caf\ufffd"),
            ("\u0646\u0645\u0631 naïve 虎", "\u0646\u0645\u0631 naïve 虎"),
        ],
    )
    def test_hidden_characters_are_left_out(self, text: str, shown: str) -> None:
        assert formatting.clean(text) == shown
        html = page_html.render(Masthead(text, "data"), [])
        assert f"<h1>{shown}</h1>" in html
        assert html.encode()

    def test_hidden_characters_are_left_out_of_charts(self) -> None:
        assert json.loads(charts.to_json({"x": ["\u202ea\x00\ud800"]})) == {"x": ["a\ufffd"]}


class TestCharts:
    def test_numbers_that_are_not_finite_are_gaps(self) -> None:
        assert json.loads(charts.to_json({"y": (1.5, math.nan, math.inf, 2, None, True)})) == {
            "y": [1.5, None, None, 2, None, True]
        }

    def test_the_page_owns_title_width_and_template(self) -> None:
        plot = {"data": [], "layout": {"title": "x", "width": 900, "template": {}, "height": 250, "bargap": 0.1}}
        figure = Figure("", plot, EMPTY)
        assert json.loads(charts.figure_json(figure))["layout"] == {"height": 250, "bargap": 0.1}
        assert charts.height(figure) == 250

    def test_every_colour_variable_is_in_the_style_sheet(self) -> None:
        used = set(re.findall(r"var\((--[\w-]+)\)", charts.to_json(charts.TEMPLATE)))
        assert "--series-7" in used
        assert used <= set(re.findall(r"(--[\w-]+):", _style()))

    def test_series_differ_in_more_than_colour(self) -> None:
        for kind, mark in (("scatter", "symbol"), ("bar", "pattern")):
            marks = [json.dumps(style["marker"][mark]) for style in charts.TEMPLATE["data"][kind]]
            assert len(set(marks)) == len(marks) == len(charts.TEMPLATE["layout"]["colorway"])


class TestTables:
    @pytest.mark.parametrize(
        ("kind", "values", "shown"),
        [
            ("percent", [0.9153, 0.0, 1.0, -0.0001], ["91.5%", "0.0%", "100.0%", "0.0%"]),
            ("number", [9000, 250], ["9,000", "250"]),
            ("number", [0.0, 0.25, 0.5], ["0.00", "0.25", "0.50"]),
            ("number", [36.14159, -7.2], ["36.1", "\N{MINUS SIGN}7.2"]),
            ("number", [1234.56, 2345.67], ["1,235", "2,346"]),
            ("number", [0.00123, 0.00456], ["0.00123", "0.00456"]),
            ("number", [1.5, None, "abstains", math.nan, math.inf], ["1.5", "", "abstains", "n/a", "\N{INFINITY}"]),
            ("text", ["fog", 3, None], ["fog", "3", ""]),
        ],
    )
    def test_numbers_are_written_to_be_read(self, kind: Any, values: list[Any], shown: list[str]) -> None:
        cells = formatting.rows(Table("", (Column("", kind),), tuple((value,) for value in values)))
        assert [cell.text for (cell,) in cells] == shown

    def test_cells_sort_by_their_number(self) -> None:
        cells = formatting.rows(Table("", (Column("", "percent"),), ((0.91534,), (None,), ("none",), (math.nan,))))
        assert [cell.value for (cell,) in cells] == [0.91534, None, None, None]

    def test_uneven_rows_are_refused(self) -> None:
        with pytest.raises(ValueError, match="shorter"):
            formatting.rows(Table("", (Column("a"), Column("b")), (("x",),)))

    def test_the_scale_of_the_shading_is_shown(self) -> None:
        shaded = Column("a", "percent", (0.0, 1.0))
        assert formatting.scale(Table("", (shaded, shaded), ())) == ("0%", "100%")
        assert formatting.scale(Table("", (Column("a", "number", (0.5, 2.0)),), ())) == ("0.5", "2.0")
        assert formatting.scale(Table("", (shaded, Column("a", "number", (0.5, 2.0))), ())) is None
        assert formatting.scale(EMPTY) is None

    def test_rows_are_named_and_numbers_stand_right(self, page: Elements) -> None:
        headers = [attributes for tag, attributes in page.found if tag == "th" and attributes.get("scope") == "row"]
        assert len(headers) >= 15
        shaded = [attributes for tag, attributes in page.found if tag == "td" and attributes.get("style")]
        assert len(shaded) == 15 * 5 - 1
        assert all(attributes["class"] == "number" and attributes["data-value"] for attributes in shaded)


class TestHeat:
    @pytest.mark.parametrize("share", [0.0, 0.05, 1 / 3, 0.5, 0.999, 1.0])
    def test_is_plotlys_cividis(self, share: float) -> None:
        (text,) = sample_colorscale("Cividis", share)
        expected = [float(level) for level in re.findall(r"[\d.]+", text)]
        assert heat.cividis(share) == pytest.approx(expected, abs=1)

    @given(st.floats(-1e6, 1e6), st.floats(-10, 10), st.floats(-10, 10))
    def test_text_reads_on_every_shade(self, value: float, low: float, high: float) -> None:
        found = re.fullmatch(r"background: (#\w{6}); color: (#\w{6})", heat.style(value, (low, high)))
        assert found
        assert heat.contrast(*map(heat.Colour.parse, found.groups())) >= 4.5

    def test_ends_may_be_turned_round(self) -> None:
        assert heat.style(0.2, (0, 1)) == heat.style(0.8, (1, 0))

    @pytest.mark.parametrize(("one", "other", "ratio"), [("#000000", "#ffffff", 21), ("#767676", "#ffffff", 4.54)])
    def test_contrast_is_that_of_wcag(self, one: str, other: str, ratio: float) -> None:
        colours = heat.Colour.parse(one), heat.Colour.parse(other)
        assert heat.contrast(*colours) == heat.contrast(*reversed(colours)) == pytest.approx(ratio, abs=0.005)


@pytest.mark.parametrize("name", ["ink", "muted", "link", "good", "watch", "bad"])
def test_words_read_in_light_and_dark(name: str) -> None:
    for colour, *grounds in zip(_pair(name), _pair("paper"), _pair("surface"), strict=True):
        assert min(heat.contrast(colour, ground) for ground in grounds) >= 4.5


class TestPictures:
    def test_a_picture_shown_twice_is_held_once(self) -> None:
        once, twice = (Picture(png(scene(kind)), f"kind {kind}") for kind in range(2))
        view = View("a", "A", blocks=(Gallery("x", (once, twice)), Gallery("y", (twice,))))
        html = page_html.render(masthead(), [view])
        page = Elements(html)
        assert html.count(once.png) == html.count(twice.png) == 1
        assert page.values("href").count("#picture-1") == 2
        assert page.count("img") == 1

    def test_right_and_wrong_are_said(self) -> None:
        pictures = tuple(Picture(png(scene(0, side)), "", right) for side, right in ((8, True), (9, False), (10, None)))
        text = Elements(page_html.render(masthead(), [View("a", "A", blocks=(Gallery("x", pictures),))])).text
        assert len(re.findall(r"\bright\b", text)) == len(re.findall(r"\bwrong\b", text)) == 1

    def test_only_small_ones_are_pixelated(self, page: Elements) -> None:
        for tag, attributes in page.found:
            if tag == "img":
                assert attributes["class"] == ("pixels" if int(attributes["width"] or 0) == 32 else "photograph")

    @pytest.mark.parametrize("data", ["", "not base64!", "aGVsbG8gd29ybGQsIHRoaXMgaXMgbm90IGEgUE5H"])
    def test_what_is_no_picture_is_refused(self, data: str) -> None:
        with pytest.raises(DataError, match="The picture 'cat' cannot be shown"):
            page_html.render(masthead(), [View("a", "A", blocks=(Gallery("x", (Picture(data, "cat"),)),))])


def _style() -> str:
    return Path(page_html.__file__).with_name("style.css").read_text("utf-8")


def _pair(name: str) -> Iterator[heat.Colour]:
    """Return the light and the dark value of a colour variable."""
    found = re.search(rf"--{name}: light-dark\((#\w+), (#\w+)\)", _style())
    assert found
    return map(heat.Colour.parse, found.groups())
