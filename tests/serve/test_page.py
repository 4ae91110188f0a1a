"""The page in a real browser: at desktop and phone width, by keyboard, in dark mode; nothing from elsewhere."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.serve.chromium import Browser
from tests.serve.conftest import Image, embeds, mean_color
from tests.serve.test_api import running

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PICTURES = os.environ.get("NEARFAR_PAGE_PICTURES", "")  # a folder for pictures of the page, to be looked at

pytestmark = [pytest.mark.skipif(PROGRAM is None, reason="no Chromium or Chrome is installed"), pytest.mark.slow]

DROP = """(async () => {
  const blob = await (await fetch("/api/picture?name=red/3.png")).blob();
  const transfer = new DataTransfer();
  transfer.items.add(new File([blob], "red.jpg", {type: "image/jpeg"}));
  document.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true}));
})()"""
CLASSES = '[...document.querySelectorAll(".card .told span:first-child")].map((one) => one.textContent)'
WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def browser(tmp_path):
    opened = Browser(PROGRAM, tmp_path / "profile")
    yield opened
    opened.close()


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_a_photo_is_dropped_an_item_opened_and_its_label_marked_by_keyboard(build, folder, browser, width, dark):
    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", width, 900, dark)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        browser.run(DROP)
        browser.wait_for("document.querySelector('#heading').textContent.endsWith('nearest')")
        assert browser.run(CLASSES) == ["red"] * 8  # the others are beyond the threshold
        browser.run("document.querySelector('#within').focus()")
        for _ in range(3):
            browser.press("PageUp", 33)
        browser.press("End", 35)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        assert browser.run(WIDE) <= 0
        picture(browser, f"found-{width}")

        browser.run("document.querySelector('.card').focus()")
        browser.press("Enter", 13, "\r")
        browser.wait_for("document.querySelector('#item').open")
        picture(browser, f"item-{width}")
        name = browser.run("document.querySelector('#item-name').textContent")
        browser.run("document.querySelector('#right').focus()")
        browser.ask("Input.insertText", text="blue")
        browser.press("Enter", 13, "\r")
        browser.wait_for("document.querySelector('#marked').textContent === 'Marked as wrong.'")
        assert f"{name},red,blue," in (folder / "colors.wrong.csv").read_text()
        assert browser.run(WIDE) <= 0
        browser.press("Escape", 27)
        browser.wait_for("!document.querySelector('#item').open")
        assert browser.run("document.querySelectorAll('.card .wrong').length") == 1

        browser.run(
            "document.querySelector('#class').value = 'green'; document.querySelector('#settings').requestSubmit()"
        )
        browser.wait_for("document.querySelector('#heading').textContent === '8 items of class green'")
        browser.run(
            "document.querySelector('#where').value = 'prise < 3'; document.querySelector('#settings').requestSubmit()"
        )
        browser.wait_for("!document.querySelector('#message').hidden")
        assert "there is no column 'prise'" in browser.run("document.querySelector('#message').textContent")

        refused = [told for told in browser.complaints() if "status of 400" not in told]  # of the wrong filter
        assert not refused
        own = (f"http://127.0.0.1:{port}/", f"blob:http://127.0.0.1:{port}/")
        assert all(address.startswith(own) for address in browser.addresses())
        paper = browser.run("getComputedStyle(document.body).backgroundColor")
        assert paper == ("rgb(20, 24, 29)" if dark else "rgb(255, 255, 255)")


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_words_are_searched_by_keyboard(build, browser, width, dark):
    def embed(items):
        if list(items.texts) == ["broken"]:
            raise ValueError("no word of it is known")
        return np.array([[-88.0, -58.0, 72.0]])

    with running(build(model=embeds(image=mean_color, text=embed))) as port:
        browser.open(f"http://127.0.0.1:{port}/", width, 900, dark)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        browser.run(DROP)
        browser.wait_for("!document.querySelector('#preview').hidden")
        browser.run("document.querySelector('#text').focus()")
        browser.ask("Input.insertText", text="something blue")
        browser.press("Enter", 13, "\r")
        browser.wait_for(f"{CLASSES}.every((one) => one === 'blue') && {CLASSES}.length === 8")
        assert browser.run("document.querySelector('#preview').hidden")
        assert browser.run(WIDE) <= 0
        picture(browser, f"words-{width}")
        for text, told in (("", "Type some words to search for."), ("broken", "no word of it is known")):
            browser.run(
                f"document.querySelector('#text').value = '{text}';document.querySelector('#ask-text').requestSubmit()"
            )
            browser.wait_for(f"document.querySelector('#message').textContent === '{told}'")
            assert not browser.run("document.querySelector('#message').hidden")
        assert not [said for said in browser.complaints() if "status of 400" not in said]


def test_the_page_says_what_to_do_where_there_is_nothing_to_see(build, browser):
    def submit(where="", label=""):
        browser.run(f"document.querySelector('#where').value = '{where}'")
        browser.run(f"document.querySelector('#class').value = '{label}'")
        browser.run("document.querySelector('#settings').requestSubmit()")

    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", 1280, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        assert browser.run("document.querySelector('#where').placeholder") == 'price < 10 and product == "a"'
        assert "price, product" in browser.run("document.querySelector('#where-hint').textContent")

        submit(label="green")
        browser.wait_for("document.querySelector('#heading').textContent === '8 items of class green'")
        browser.run(DROP)  # a search does not keep the class, to which "Apply" would go back
        browser.wait_for("document.querySelector('#heading').textContent.endsWith('nearest')")
        browser.run("document.querySelector('#where').value = 'price < 4'")
        browser.run("document.querySelector('#settings').requestSubmit()")
        browser.wait_for("document.querySelector('#heading').textContent === '4 nearest'")
        submit("price < 0")
        browser.wait_for("document.querySelector('#empty').textContent.startsWith('No item meets this filter')")
        submit("price <")
        browser.wait_for("!document.querySelector('#message').hidden")
        assert browser.run("document.querySelector('#empty').hidden")  # the message says it all
        submit("price == 9")  # another color, beyond the threshold
        browser.wait_for("document.querySelector('#empty').textContent.startsWith('The nearest item is ')")
        assert browser.run("document.querySelector('#message').hidden")


def test_distances_have_three_digits_zeros_included(build, browser):
    shown = {0.76: "0.760", 0.5: "0.500", 0.0345: "0.0345", 1: "1.00", 250.4: "250", 4321: "4321"}
    shown |= {2e-4: "2.0e-4", 1e-12: "0"}  # the second is due to rounding
    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", 1280, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        assert browser.run(f"{[*shown]}.map(short)") == [*shown.values()]


def test_an_item_is_marked_while_browsing_and_its_neighbors_are_found(build, browser):
    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", 390, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        browser.run("document.querySelectorAll('.card')[2].click()")
        browser.run("document.querySelector('#mark').requestSubmit()")
        browser.wait_for("document.querySelectorAll('.card')[2].querySelector('.wrong')")
        browser.press("Escape", 27)
        browser.wait_for("document.activeElement === document.querySelectorAll('.card')[2]")  # the focus is back
        browser.run("document.querySelectorAll('.card')[2].click()")
        browser.run("document.querySelector('#item-neighbors').click()")
        browser.wait_for("document.querySelector('#heading').textContent.endsWith('nearest')")
        assert browser.run("document.querySelector('#preview-name').textContent") == "Searched by: red/2.png"
        assert "2.png" not in browser.run("document.querySelector('.card .name').textContent")
        assert browser.run(WIDE) <= 0
        assert not browser.complaints()


def test_a_file_that_cannot_be_searched_is_refused_on_the_page(build, browser):
    drop = """(() => {
      const transfer = new DataTransfer();
      transfer.items.add(new File([new Uint8Array(SIZE)], "NAME", {type: "TYPE"}));
      document.dispatchEvent(new DragEvent("drop", {dataTransfer: transfer, bubbles: true}));
    })()"""
    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", 1280, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        for size, name, kind, told in (
            (9, "list.pdf", "application/pdf", "list.pdf is no image."),
            (300_001, "huge.png", "image/png", "huge.png is larger than 0.3 MB."),
        ):
            browser.run(drop.replace("SIZE", str(size)).replace("NAME", name).replace("TYPE", kind))
            browser.wait_for(f"document.querySelector('#message').textContent === '{told}'")
        assert browser.run("document.querySelectorAll('.card').length") == 24
        assert not browser.complaints()
    browser.run("document.querySelector('#settings').requestSubmit()")
    browser.wait_for("document.querySelector('#message').textContent.startsWith('The server does not answer')")


def test_no_box_for_words_is_shown_where_the_model_takes_none(build, browser):
    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", 1280, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        assert browser.run("document.querySelector('#ask-text').offsetHeight") == 0


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (390, True)])
def test_parts_that_match_are_outlined_in_the_query_and_in_the_items(app_of, browser, width, dark):
    def wait_for_cards(outlines):
        browser.wait_for(f"document.querySelectorAll('.card .outline').length === {outlines}")
        assert browser.run(WIDE) <= 0

    with running(app_of()) as port:
        browser.open(f"http://127.0.0.1:{port}/", width, 900, dark)
        browser.wait_for("document.querySelectorAll('.card').length === 12")
        browser.run(DROP.replace("red/3.png", "photos/03.png"))
        browser.wait_for("document.querySelector('#heading').textContent === '12 nearest'")
        wait_for_cards(0)
        browser.run("document.querySelector('#places').focus()")
        browser.press(" ", 32, " ")
        wait_for_cards(24)  # the query, and what was found
        picture(browser, f"places-{width}")
        first = "document.querySelector('.card')"
        assert browser.run(f"{first}.title") == "photos/03.png"
        assert "16 of 16 places match" in browser.run(f"{first}.textContent")
        told = browser.run(f"[...{first}.querySelectorAll('img')].map((image) => image.alt)")
        seen = "matches from 17% to 83% of the width and 0% to 100% of the height"  # the central square
        assert told == [f"Query: {seen}", f"Item: {seen}"]
        # outlines lie on their pictures, and the first is the border of the square
        shape = f"{first}.querySelector('.outline .line').getBBox()"
        assert browser.run(f"[{shape}.x, {shape}.y, {shape}.width, {shape}.height].map(Math.round)") == [8, 0, 32, 32]
        rects = "[...%s].map((one) => JSON.stringify(one.getBoundingClientRect()))"
        of_pictures, of_outlines = (
            browser.run(rects % f"document.querySelectorAll('.card {kind}')") for kind in ("img", ".outline")
        )
        assert of_pictures == of_outlines

        browser.run(f"{first}.focus()")
        browser.press("Enter", 13, "\r")
        browser.wait_for("document.querySelectorAll('#item .outline').length === 2")
        assert browser.run(WIDE) <= 0
        picture(browser, f"places-item-{width}")
        browser.press("Escape", 27)
        browser.run("document.querySelector('#words').value = 's3'")
        browser.run("document.querySelector('#settings').requestSubmit()")
        browser.wait_for("document.querySelector('#message').textContent.startsWith('Words do not work with Compare')")
        browser.run("document.querySelector('#words').value = ''")
        browser.run("document.querySelector('#settings').requestSubmit()")
        wait_for_cards(24)
        browser.run("document.querySelector('.card').click()")
        browser.run("document.querySelector('#item-neighbors').click()")
        wait_for_cards(22)  # without the item itself
        browser.run("document.querySelector('#places').focus()")
        browser.press(" ", 32, " ")
        browser.wait_for("document.querySelector('#heading').textContent === '11 nearest'")
        wait_for_cards(0)
        assert not browser.complaints()


def test_no_box_to_compare_is_shown_where_the_model_has_no_places(build, browser):
    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", 1280, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        for part in ("#places-field", "#places-hint"):
            assert browser.run(f"document.querySelector('{part}').offsetHeight") == 0


@pytest.mark.parametrize("width", [1280, 390])
def test_items_are_found_by_the_words_of_their_columns(build, browser, width):
    def submit(words, group=""):
        browser.run(f"document.querySelector('#words').value = '{words}'")
        browser.run(f"document.querySelector('#group').value = '{group}'")
        browser.run("document.querySelector('#settings').requestSubmit()")

    heading = "document.querySelector('#heading').textContent"
    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", width, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        submit("blue p1*")
        browser.wait_for(f"{heading} === '4 with these words'")  # blue are p8 to p11
        assert browser.run(CLASSES) == ["blue"] * 4
        assert browser.run("document.querySelectorAll('.card .far').length") == 0
        assert browser.run("document.querySelector('#slider').hidden")
        assert browser.run(WIDE) <= 0
        picture(browser, f"columns-{width}")
        submit("purple")
        browser.wait_for("document.querySelector('#empty').textContent.startsWith('No item has all of these words.')")
        submit("red", group="product")
        browser.wait_for(
            "document.querySelector('#message').textContent.startsWith('Words do not work with Group by.')"
        )
        submit("p3")
        browser.wait_for(f"{heading} === '2 with these words'")
        browser.run(DROP)  # now both rankings count, so that the items of this product come first
        browser.wait_for(f"{CLASSES}.length === 8 && {CLASSES}.every((one) => one === 'red')")
        names = '[...document.querySelectorAll(".card")].map((one) => one.title)'
        assert {*browser.run(names)[:2]} == {"red/6.png", "red/7.png"}
        submit("")
        browser.wait_for(f"{names}[0] === 'red/3.png'")  # the photo itself
        assert not browser.complaints()


def reached_by_tab(browser, times):
    """What has the focus after each of so many presses of the tabulator."""
    reached = []
    for _ in range(times):
        browser.press("Tab", 9)
        reached.append(
            browser.run(
                "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
            )
        )
    return reached


def test_keys_alone_reach_everything(build, browser):
    with running(build()) as port:
        browser.open(f"http://127.0.0.1:{port}/", 1280, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        settings = ["skip", "title", "A", "drop", "words", "where", "k", "group", "class", "main"]
        assert reached_by_tab(browser, 11) == [*settings, "card"]
        browser.run(DROP)
        browser.wait_for("document.querySelector('#heading').textContent.endsWith('nearest')")
        browser.run("document.querySelector('#class').focus()")
        assert reached_by_tab(browser, 3) == ["main", "within", "card"]  # the slider is there for distances
        assert browser.run("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_the_description_of_the_api_is_shown(build, browser):
    with running(build(token="a-token-of-some-length")) as port:
        browser.open(f"http://127.0.0.1:{port}/?token=a-token-of-some-length", 390, 900)
        browser.wait_for("document.querySelectorAll('.card').length === 24")
        browser.open(f"http://127.0.0.1:{port}/docs", 390, 900)
        browser.wait_for("document.querySelectorAll('.operation').length === 12")
        assert browser.run(WIDE) <= 0
        assert not browser.complaints()
        picture(browser, "api-390")


def picture(browser, name):
    if PICTURES:
        browser.picture(Path(PICTURES) / f"{name}.png")


def test_the_test_would_see_what_is_refused(browser, folder):
    Image.new("RGB", (9, 9)).save(folder / "x.png")
    page = folder / "bad.html"
    page.write_text("<meta http-equiv='Content-Security-Policy' content=\"script-src 'none'\"><script>1</script>")
    browser.open(page.as_uri(), 400, 400)
    browser.wait_for("document.readyState === 'complete'")
    assert browser.complaints()
