"""The page in a browser: nothing requested, nothing broken, nothing wider than the window."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from nearfar.data.items import open_items
from nearfar.evaluation import PlaceMatches
from nearfar.report import Items, Other, build_report, compare, write_comparison
from nearfar.report.search_page import Line, Near, write_search_page
from nearfar.report.suspects_page import write_suspects

from .conftest import NASTY, SECTIONS, digits, full_content

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom"),
)
FROM_PAGE = "[internally: file://]"  # how the browser's net log marks requests that a local page makes
PROBE = """<script>addEventListener("load", () => {
  const broken = [...document.images].filter(image => !image.naturalWidth).length;
  const wide = document.documentElement.scrollWidth - innerWidth;
  const hidden = [...document.querySelectorAll("main section")].filter(s => s.clientHeight < 40).length;
  const framed = [...document.querySelectorAll(".frame img")];
  const cut = framed.filter(image => image.offsetHeight > image.parentElement.clientHeight).length;
  document.documentElement.dataset.probe = `${document.images.length} ${broken} ${Math.max(0, wide)} ${hidden} ${cut}`;
});</script>"""
OUTLINES = """<script>addEventListener("load", () => {
  const shown = [...document.querySelectorAll(".places")];
  const off = shown.filter(drawing => {
    const path = drawing.querySelector(".line").getBoundingClientRect();
    const frame = drawing.parentElement.getBoundingClientRect();
    const [, , wide, high] = drawing.getAttribute("viewBox").split(" ").map(Number);
    const scale = Math.min(drawing.clientWidth / wide, drawing.clientHeight / high);
    const near = (one, other) => Math.abs(one - other) < 6;
    const middle = near(path.x + path.width / 2, frame.x + frame.width / 2);
    return !(middle && near(path.width, wide * scale) && near(path.height, high * scale));
  });
  document.documentElement.dataset.outlines = `${shown.length} ${off.length}`;
});</script>"""

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome is installed"),
    pytest.mark.slow,
]


def load(page: Path, folder: Path, width: int = 1280) -> tuple[str, list[str], str]:
    """The page's elements, its console lines and the log of the network after loading it."""
    log = folder / "net.json"
    flags = [f"--window-size={width},900", f"--user-data-dir={folder / 'profile'}", f"--log-net-log={log}"]
    resolve = "--host-resolver-rules=MAP * ~NOTFOUND"
    command = [str(BROWSER), *QUIET, *flags, resolve, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return done.stdout, console, log.read_text()


def test_requests_and_errors_of_a_page_would_be_seen(tmp_path: Path) -> None:
    page = tmp_path / "bad.html"
    page.write_text('<img src="http://example.invalid/x.png"><script>missing()</script>')
    _, console, log = load(page, tmp_path)
    assert any("missing" in line for line in console)
    assert FROM_PAGE in log


def test_report_loads_without_errors_or_requests(full_report: Path, tmp_path: Path) -> None:
    elements, console, log = load(full_report, tmp_path)
    assert not console
    assert FROM_PAGE not in log
    sections = re.findall(r'<section id="(\w+)"', elements)
    assert sections == SECTIONS


@pytest.mark.parametrize("width", [1280, 400])
def test_pictures_decode_and_nothing_overflows(full_report: Path, tmp_path: Path, width: int) -> None:
    images, broken, too_wide, hidden, cut = probed(full_report, tmp_path, width)
    assert images > 20
    assert (broken, too_wide, hidden, cut) == (0, 0, 0, 0)


@pytest.mark.parametrize("width", [1280, 400])
def test_a_comparison_of_two_models_fits_the_window(tmp_path: Path, width: int) -> None:
    content = full_content()
    assert content.queries is not None
    noise = np.random.default_rng(0).normal(0, 8, content.queries.embeddings.shape)
    queries = replace(content.queries, embeddings=content.queries.embeddings + noise)
    other = Other("a-name-of-a-run-that-is-rather-long_and_has_no_space", {"recall_at": {1: 0.5}}, queries)
    page = build_report(replace(content, other=other), tmp_path / "a.html")
    images, *flaws = probed(page, tmp_path, width)
    assert images > 20
    assert flaws == [0, 0, 0, 0]


def test_the_script_sorts_filters_and_shows_neighbors(full_report: Path, tmp_path: Path) -> None:
    steps = """
      const done = {};
      const table = document.querySelector("table.hardest");
      const recalls = () => [...table.tBodies[0].rows].map(row => row.cells[1].textContent);
      const ascending = recalls();
      table.querySelectorAll(".sort")[1].click();
      table.querySelectorAll(".sort")[1].click();
      done.sorted = recalls().join() === ascending.reverse().join();
      document.querySelector("#map [data-item]").dispatchEvent(new MouseEvent("click", {bubbles: true}));
      done.panel = document.querySelectorAll(".panel li").length;
      const [kind] = document.querySelectorAll("#map input");
      kind.value = "ü/Ω";
      kind.dispatchEvent(new Event("input"));
      done.dimmed = document.querySelectorAll("#map .other").length;
      document.documentElement.dataset.done = JSON.stringify(done);
    """
    copy = tmp_path / "stepped.html"
    copy.write_text(without_policy(full_report).replace("</body>", f"<script>{steps}</script></body>"))
    elements, console, _ = load(copy, tmp_path)
    assert not console
    done = json.loads(unescape(re.findall(r'data-done="([^"]*)"', elements)[0]))
    items = digits()
    assert done == {"sorted": True, "panel": 9, "dimmed": int((items.labels != NASTY.index("ü/Ω")).sum())}


def test_decisions_on_suspects_are_kept_on_reload_and_made_by_keys(tmp_path: Path) -> None:
    items = Items(np.zeros((3, 2)), np.zeros(3, int), (NASTY[0], "dog"), ["a.jpg", "</script><b>.jpg", "c.jpg"])
    lines = [Line(Near(k, "0.9"), [Near(0, "")]) for k in range(3)]
    page = write_suspects(tmp_path / "a.html", lines, items, ["dog"] * 3, title="pets")
    steps = """
      const press = key => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
      if (!sessionStorage.again) {
        sessionStorage.again = "yes";
        for (const key of ["j", "2", "j", "3", "k"]) press(key);
        const another = document.querySelectorAll(".another")[2];
        another.value = "wolf";
        another.dispatchEvent(new Event("input", {bubbles: true}));
        location.reload();
      } else {
        document.documentElement.dataset.done = [...document.querySelectorAll(".decide")].map(decision).join();
      }
    """
    page.write_text(without_policy(page).replace("</body>", f"<script>{steps}</script></body>"))
    elements, console, _ = load(page, tmp_path)
    assert not console
    assert 'data-done="dog,remove,wolf"' in elements


def without_policy(page: Path) -> str:
    """The page without the policy that keeps a browser from running the scripts of these tests."""
    return re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page.read_text())


def test_tall_and_wide_pictures_are_shown_whole(tmp_path: Path) -> None:
    shapes = [(60, 20, 3), (20, 60, 3), (30, 30, 3)]
    items = Items(np.zeros((3, 2)), np.zeros(3, int), ("cat",), list("abc"), lambda i: np.zeros(shapes[i], np.uint8))
    page = write_search_page(
        tmp_path / "a.html", [Line(Near(0, ""), [Near(i, "0") for i in range(3)])], items, title="t", note="n"
    )
    assert probed(page, tmp_path, 1280) == [4, 0, 0, 0, 0]


def whole(width: int, height: int) -> tuple[float, float, float, float]:
    """The part of a picture that its places cover: all of it."""
    return 0, 0, width, height


@pytest.mark.parametrize("width", [1280, 390])
def test_outlines_lie_on_their_pictures_at_any_width(tmp_path: Path, width: int) -> None:
    shapes = [(60, 20, 3), (20, 60, 3), (30, 30, 3)]
    items = Items(np.zeros((3, 2)), np.zeros(3, int), ("cat",), list("abc"), lambda i: np.zeros(shapes[i], np.uint8))
    corners = np.array([[0, 0], [2, 2]])
    matches = PlaceMatches((3, 3), corners, corners)
    lines = [Line(Near(i, ""), [Near(k, "0", matches) for k in range(3)]) for i in range(3)]
    page = write_search_page(tmp_path / "a.html", lines, items, title="t", note="n", seen=whole)
    assert probed(page, tmp_path, width) == [3 * 4, 0, 0, 0, 0]
    page.write_text(without_policy(page).replace("</body>", OUTLINES + "</body>"))
    elements, console, log = load(page, tmp_path, width)
    assert not console
    assert FROM_PAGE not in log
    assert 'data-outlines="18 0"' in elements


def test_the_table_of_a_comparison_fits_a_window(tmp_path: Path) -> None:
    runs = [dict.fromkeys(("map_at_r", "r_precision", "mrr", "nmi", "f1"), score) for score in (0.5, 0.61, 0.72)]
    name = "CrossBatchMemory(loss=mylosses:FarthestFirst(temperature=0.25,miner=BatchHard()),size=256)"
    page = write_comparison(compare({name: [run | {"recall_at": {1: 0.5}} for run in runs]}), tmp_path / "a.html")
    script = "const [s] = document.querySelectorAll('.scroll'); s.dataset.over = s.scrollWidth - s.clientWidth"
    page.write_text(without_policy(page).replace("</body>", f"<script>{script}</script></body>"))
    assert 'data-over="0"' in load(page, tmp_path)[0]


def probed(page: Path, folder: Path, width: int) -> list[int]:
    """Images; those that are broken; pixels beyond the window; empty sections; images that their frame cuts."""
    copy = folder / "probed.html"
    copy.write_text(without_policy(page).replace("</body>", PROBE + "</body>"))
    elements, _, _ = load(copy, folder, width)
    probe = re.search(r'data-probe="(\d+) (\d+) (\d+) (\d+) (\d+)"', elements)
    assert probe is not None
    return [int(number) for number in probe.groups()]


def test_decisions_on_near_duplicates_are_counted(tmp_path: Path) -> None:
    images = np.zeros((3, 8, 8, 3), np.uint8)
    shown = Items(np.eye(3), np.zeros(3, int), [""], ["a", "b", "=c"], read=images.__getitem__)
    lines = [Line(Near(0, ""), [Near(1, "0.1"), Near(2, "0.2")])]
    page = write_search_page(tmp_path / "page.html", lines, shown, title="t", note="n", removed={1, 2})
    elements, console, log = load(page, tmp_path)
    assert not console
    assert FROM_PAGE not in log
    assert "2 of 3 items are removed." in elements


def test_a_button_plays_a_sound(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    (tmp_path / "a").mkdir()
    wave = np.sin(np.arange(8000) / 5).astype(np.float32)
    for name in ("one", "two"):
        soundfile.write(tmp_path / "a" / f"{name}.wav", wave, 16000)
    sounds = open_items(str(tmp_path / "a"))
    shown = Items(np.eye(2), sounds.labels, sounds.classes, sounds.names, read=sounds.read)
    lines = [Line(Near(0, ""), [Near(1, "0.1")])]
    page = write_search_page(tmp_path / "page.html", lines, shown, title="t", note="n")
    elements, console, log = load(page, tmp_path)
    assert not console
    assert FROM_PAGE not in log
    assert re.findall(r'<button type="button" class="play" aria-label="(Play [^"]*)">▶</button>', elements) == [
        f"Play {name}" for name in sounds.names
    ]
