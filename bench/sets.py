"""Public sets as tables that `nearfar train` and `zoo.py` read, from copies of the folders that their authors publish.

    python bench/sets.py spoken-digits free-spoken-digit-dataset -o spoken.csv
    python bench/sets.py emoji emoji-datasource-google emoji-datasource-twitter -o emoji.csv
    python bench/sets.py shops abt-buy -o shops.csv
    python bench/sets.py pictures PokemonData -o pokemon.csv

Nothing is downloaded. The folders are

- spoken-digits: the repository Jakobovski/free-spoken-digit-dataset; a class is a digit in the voice of a speaker, 60
- emoji: the npm packages emoji-datasource-google and -twitter, unpacked; a class is what both have drawn,
  an item of each; without flags and skin tones, which both draw alike, and families, which are alike in one of them
- shops: a folder with Abt.csv, Buy.csv and abt_buy_perfectMapping.csv, or those of Amazon and Google products, from the
  database group of Leipzig; titles of the first shop are queries, the same products in the second one are documents
- pictures: a folder with a folder of JPEG and PNG files for each class, and perhaps other files, such as PokemonData in
  the repository sssstforest/Predict-Pokemon-With-Neural-Network, 150 figures from the web, and dataset/train in
  hiroonwijekoon/pytorch-cnn-playing-cards-classifier, 53 playing cards

Files are named by their paths from the folder of the table, which therefore has to be above them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

Lines = Iterator[tuple[str, ...]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    settings = parser.parse_args()
    lines = SETS[settings.set](*settings.folders, settings.out.absolute().parent)
    with settings.out.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(lines)


def spoken_digits(folder: Path, home: Path) -> Lines:
    """Yield a sound and a class for each recording, which is called DIGIT_SPEAKER_NUMBER.wav."""
    yield "path", "label"
    for file in sorted((folder / "recordings").glob("*.wav")):
        yield os.path.relpath(file, home), file.stem.rpartition("_")[0]


def emoji(first: Path, second: Path, home: Path) -> Lines:
    """Yield two pictures of each emoji, one of each package."""
    yield "path", "label"
    drawn: set[bytes] = set()
    for one in json.loads((first / "emoji.json").read_text(encoding="utf-8")):
        files = [
            next((package / "img").glob("*")) / "64" / one["image"]  # img holds one folder, of the name of the house
            for package in (first, second)
        ]
        if one["category"] == "Flags" or not all(file.is_file() for file in files):
            continue
        pictures = {file.read_bytes() for file in files}
        if not pictures & drawn:
            yield from ((os.path.relpath(file, home), one["short_name"]) for file in files)
        drawn |= pictures


def shops(folder: Path, _: Path) -> Lines:
    """Yield the titles of each product in both shops, except those that are spelled alike."""
    (matches,) = folder.glob("*Mapping.csv")
    tables = [file for file in folder.glob("*.csv") if file != matches]
    titles = {}
    for file in tables:
        for row in rows_of(file):
            titles[row["id"]] = row.get("title") or row.get("name") or ""
    yield "query", "document"
    for row in rows_of(matches):
        query, document = (" ".join(titles[number].split()) for number in row.values())
        if query.lower() != document.lower():
            yield query, document


def pictures(folder: Path, home: Path) -> Lines:
    """Yield the pictures of each class folder, without files that are none."""
    yield "path", "label"
    for file in sorted(folder.glob("*/*")):
        if file.suffix.lower() in (".jpg", ".jpeg", ".png"):
            yield os.path.relpath(file, home), file.parent.name


def rows_of(file: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a table in UTF-8, or in Latin 1 as some of them are."""
    content = file.read_bytes()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    yield from csv.DictReader(text.splitlines(keepends=True))


SETS: dict[str, Callable[..., Lines]] = {
    "spoken-digits": spoken_digits,
    "emoji": emoji,
    "shops": shops,
    "pictures": pictures,
}

if __name__ == "__main__":
    main()
