"""The page of what a search found: pictures, marks, what is left out, and items that are not there any more."""

import re
import zipfile
from html import unescape

import numpy as np
import pytest

pytest.importorskip("jinja2")
Image = pytest.importorskip("PIL.Image")

from nearfar.data import images_from
from nearfar.data.dataset import DataError
from nearfar.data.items import NamedReader, names_from, open_items
from nearfar.evaluation import PlaceMatches
from nearfar.report import Items, search_page
from nearfar.report import page as pages
from nearfar.report.matching import outline
from nearfar.report.search_page import Line, Near, write_search_page


def lines(n=3, each=2):
    return [Line(Near(q, ""), [Near(k, f"0.{k}") for k in range(each)]) for q in range(n)]


def items(n, read=None, classes=("cat", "dog & co", "")):
    return Items(np.zeros((n, 2)), np.arange(n) % len(classes), classes, [f"<item {k}>" for k in range(n)], read)


CATS = ("cat",)


def picture(i):
    return np.full((8, 6, 3), 40 * i, dtype=np.uint8)


def test_pictures_marks_and_text(tmp_path):
    page = write_search_page(
        tmp_path / "a.html", lines(3, 3), items(3, picture), title="<T>", note="n", queries=items(3, picture, CATS)
    ).read_text()
    assert page.count("<img ") == 3 * 4
    assert page.count('<li class="right"') == page.count('<li class="wrong"') == page.count('<li class=""') == 3
    assert "<title>&lt;T&gt;</title>" in page
    assert "&lt;item 0&gt;" in page
    assert "dog &amp; co" in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)


def whole(width, height):
    return 0, 0, width, height


def test_outlines_are_the_border_of_the_places():
    rng = np.random.default_rng(0)
    for shape in ((1, 1), (3, 4), (7, 7)):
        cells = rng.random(shape) < 0.5
        cells[0, 0] = True
        path = outline(cells, whole, (10 * shape[1], 10 * shape[0]))
        drawn = set()  # sides as (column, row, direction), each once
        for x, y, direction, end in re.findall(r"M(\d+) (\d+)([HV])(\d+)", path):
            start = int(x if direction == "H" else y)
            for at in range(start, int(end), 10):
                side = (at, int(y), "H") if direction == "H" else (int(x), at, "V")
                assert side not in drawn
                drawn.add(side)
        expected = set()
        for row, column in np.argwhere(cells).tolist():
            sides = {(column, row, "H"), (column, row + 1, "H"), (column, row, "V"), (column + 1, row, "V")}
            expected ^= {(10 * a, 10 * b, way) for a, b, way in sides}  # what two places share is inside
        assert drawn == expected
    assert outline(np.zeros((2, 2), bool), whole, (8, 8)) == outline(np.ones((2, 2), bool), whole, (0, 0)) == ""


def test_matching_places_are_outlined_and_told_in_words(tmp_path):
    matches = PlaceMatches((4, 4), np.array([[0, 1], [0, 2]]), np.array([[3, 0], [2, 1]]))
    none = PlaceMatches((4, 4), np.zeros((0, 2), int), np.zeros((0, 2), int))
    line = [Line(Near(0, ""), [Near(1, "0.1", matches), Near(2, "0.2", none), Near(1, "0.3")])]

    def center(width, height):  # of which the places are quarters
        return 0, (height - width) / 2, width, (height + width) / 2

    how = {"title": "t", "note": "n", "seen": center}
    page = write_search_page(tmp_path / "a.html", line, items(3, picture), **how).read_text()
    assert 'aria-label="Query: 2 of 16 places match, in row 1 and columns 2 to 3 of 4 x 4"' in page
    assert 'aria-label="2 of 16 places match, in rows 3 to 4 and columns 1 to 2 of 4 x 4"' in page
    assert page.count('aria-label="0 of 16 places match"') == 1
    assert page.count('<span class="remark">2 of 16 places match</span>') == 1
    assert page.count('<span class="remark">0 of 16 places match</span>') == 1
    # the picture is 6 x 8, the query's places begin at row 1 of it, and each has a side of 1.5
    assert 'd="M1.5 1H4.5M1.5 2.5H4.5M1.5 1V2.5M4.5 1V2.5"' in page
    gone = write_search_page(tmp_path / "b.html", line, items(3), **how).read_text()
    assert "<path" not in gone.partition("<main>")[2].replace('<path d="M3.5', "").replace('<path d="M4 4', "")
    assert "2 of 16 places match" in gone


def test_what_has_no_class_is_called_by_its_name(tmp_path):
    without = items(3, picture, ("",))
    page = write_search_page(tmp_path / "a.html", lines(1, 3), without, title="t", note="n").read_text()
    called = [f'<span class="leaf">&lt;item {k}&gt;</span>' for k in range(3)]
    assert [page.count(name) for name in called] == [2, 1, 1]  # item 0 asks, too


def test_what_cannot_be_read_is_shown_by_its_name(tmp_path):
    def read(i):
        if i == 1:
            raise DataError("gone")
        return np.array([1.0, -2.0 * i])

    page = write_search_page(tmp_path / "a.html", lines(1, 3), items(3, read), title="t", note="n").read_text()
    assert page.count("<img ") == 3
    assert '<span class="nameonly">&lt;item 1&gt;, class dog &amp; co</span>' in page
    page = write_search_page(tmp_path / "b.html", lines(1, 3), items(3), title="t", note="n").read_text()
    assert '<span class="nameonly">&lt;item 2&gt;</span>' in page


def test_a_query_looks_like_an_equal_row_of_the_collection(tmp_path):
    rows = np.random.default_rng(0).normal(size=(40, 3)) * [1.0, 100.0, 10.0]
    asked = items(1, lambda i: rows[7])
    line = [Line(Near(0, ""), [Near(7, "0"), Near(8, "1")])]
    page = write_search_page(tmp_path / "a.html", line, items(40, rows.__getitem__), title="t", note="n", queries=asked)
    glyphs = re.findall(r'src="(data:[^"]*)"', page.read_text())
    assert glyphs[0] == glyphs[1] != glyphs[2]
    unread = write_search_page(tmp_path / "b.html", line, items(40), title="t", note="n", queries=asked).read_text()
    assert "<img " in unread  # on its own scales


def test_long_pages_say_what_they_leave_out(tmp_path, monkeypatch):
    monkeypatch.setattr(search_page, "SHOWN_LINES", 2)
    monkeypatch.setattr(search_page, "PICTURES_PER_LINE", 4)
    page = write_search_page(tmp_path / "a.html", lines(1005, 7), items(1005, picture), title="t", note="n").read_text()
    assert "The first 2 of 1,005 are shown." in page
    assert page.count("and 3 more") == 2
    assert page.count("<img ") == 2 * 5


@pytest.mark.slow
def test_pictures_shrink_until_the_page_is_small_enough(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (8, 200, 200, 3), dtype=np.uint8)
    large = write_search_page(tmp_path / "a.html", lines(8, 8), items(8, images.__getitem__), title="t", note="n")
    monkeypatch.setattr(pages, "MAX_PAGE_BYTES", large.stat().st_size // 3)
    small = write_search_page(tmp_path / "b.html", lines(8, 8), items(8, images.__getitem__), title="t", note="n")
    assert small.stat().st_size < large.stat().st_size // 3


def test_items_are_found_again_by_their_names(tmp_path):
    for name in ("a.png", "b.png"):
        Image.new("L", (5, 4), 200).save(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.write(tmp_path / "a.png", "cat/a.png")
    np.savez(tmp_path / "rows.npz", X=np.eye(3), y=[0, 1, 1])
    names = [
        f"{tmp_path}/b.png",
        f"{tmp_path}/all.zip/cat/a.png",
        "rows[2]",
        open_items("digits").names[1],
        f"{tmp_path}/gone.png",
    ]
    read = NamedReader(names, [str(tmp_path), str(tmp_path / "rows.npz"), "digits", "nowhere.csv"], folder=tmp_path)
    assert read(0).shape == read(1).shape == (4, 5, 3)
    assert read(0).min() == read(1).min() == 200
    assert read(2).tolist() == [0, 0, 1]
    assert read(3).shape == (8, 8, 1)
    with pytest.raises(DataError, match="gone"):
        read(4)


def test_names_and_sources_of_a_stranger_read_nothing_outside_of_the_folder(tmp_path):
    private = tmp_path / "private"
    shared = tmp_path / "shared"
    private.mkdir()
    shared.mkdir()
    Image.new("L", (5, 4), 200).save(private / "a.png")
    np.savez(private / "rows.npz", X=np.eye(3), y=[0, 1, 1])
    with zipfile.ZipFile(private / "all.zip", "w") as archive:
        archive.write(private / "a.png", "cat/a.png")
    (shared / "link.png").symlink_to(private / "a.png")
    names = ["../private/a.png", str(private / "a.png"), "link.png", "../private/all.zip/cat/a.png", "rows[2]"]
    made = {"names": names, "sources": ["../private/rows.npz", str(private / "rows.npz")], "folder": shared}
    read = NamedReader(**made)
    recorded = NamedReader(names=names[:1], folder=private / "x", below=shared)  # the recorded folder is forged, too
    for i in range(len(names)):
        with pytest.raises(DataError):
            read(i)
        with pytest.raises(DataError):
            read.small(i, 4)
    with pytest.raises(DataError):
        recorded(0)
    assert all("images=" in read.why_outside(i) for i in range(4))
    with images_from(private):
        allowed = NamedReader(**made)
        assert [allowed(i).shape for i in range(4)] == [(4, 5, 3)] * 4
        assert allowed(4).tolist() == [0, 0, 1]


def test_images_of_a_file_and_cuts_of_one_image_are_found_again(tmp_path):
    Image.new("L", (5, 4), 200).save(tmp_path / "a.png")
    (tmp_path / "cut.csv").write_text("path,label,x1,y1,x2,y2\na.png,x,0,0,2,3\na.png,y,1,1,5,4\na.png,y,,,,\n")
    np.savez(tmp_path / "images.npz", X=np.ones((2, 6, 7), np.uint8), y=[0, 1])
    sources = [str(tmp_path / name) for name in ("cut.csv", "images.npz")]
    names = [name for source in sources for name in names_from(open_items(source), source)]
    assert names[1:3] == [f"{tmp_path}/a.png (1, 1, 5, 4)", f"{tmp_path}/a.png"]
    read = NamedReader(names, sources, folder=tmp_path)
    assert [read(at).shape[:2] for at in range(5)] == [(3, 2), (3, 4), (4, 5), (6, 7), (6, 7)]


def test_near_duplicates_have_boxes_for_what_is_removed(tmp_path):
    how = {"title": "t", "note": "n"}
    group = [Line(Near(0, ""), [Near(1, ""), Near(2, "")])]
    page = write_search_page(tmp_path / "a.html", group, items(3, picture), removed={2}, **how).read_text()
    boxes = re.findall(r'<input type="checkbox" data-removal data-name="([^"]*)" data-label="[^"]*"( checked)?>', page)
    assert [(unescape(name), bool(mark)) for name, mark in boxes] == [
        ("<item 0>", False),
        ("<item 1>", False),
        ("<item 2>", True),
    ]
    assert 'id="save"' in page
    other = write_search_page(tmp_path / "b.html", group, items(3, picture), **how).read_text()
    assert "data-removal" not in other
