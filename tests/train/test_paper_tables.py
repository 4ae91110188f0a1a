"""The tables and figures of the founding papers, each by one command, on miniature archives."""

import io
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL")

from PIL import Image

from nearfar.data.augment import Augment
from nearfar.deep.objective.parser import parse_objective
from nearfar.train import TrainConfig, TrainError, recipe, recipe_names, reproduce
from nearfar.train.papers.paper_tables import dataset_of, find_table, row_config, table_names
from tests.commands import run as command

FOUNDING = ("cml", "facility_location", "jrd")
CLASSES, IMAGES = 8, 20
TINY = {
    "trunk": "conv4(width=2)",
    "image_size": 16,
    "resize": 16,
    "augment": "mirror",
    "embedding_dim": 4,
    "batch_size": 8,
    "steps": 1,
    "workers": 0,
    "pretrained": False,
    "freeze_bn": False,
}


def png(c: int, i: int) -> bytes:
    """An image of class c, wider than high."""
    rng = np.random.default_rng((c, i))
    pixels = rng.integers(0, 60, (16, 20, 3), np.uint8) + np.uint8(20 * c)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def cub(root: Path) -> None:
    rows = [(f"{c:03d}.Bird/{i}.jpg", c) for c in range(1, CLASSES + 1) for i in range(IMAGES)]
    content: dict[str, bytes | str] = {f"images/{name}": png(c, k) for k, (name, c) in enumerate(rows)}
    content["images.txt"] = "".join(f"{k} {name}\n" for k, (name, _) in enumerate(rows, 1))
    content["image_class_labels.txt"] = "".join(f"{k} {c}\n" for k, (_, c) in enumerate(rows, 1))
    content["classes.txt"] = "".join(f"{c} {c:03d}.Bird\n" for c in range(1, CLASSES + 1))
    write(root, content)


def cars(root: Path) -> None:
    content = {
        f"{'train' if i % 2 else 'test'}/Car {c}/{i}.jpg": png(c, i) for c in range(CLASSES) for i in range(IMAGES)
    }
    write(root, content)


def sop(root: Path) -> None:
    content: dict[str, bytes | str] = {}
    for role, classes in (("train", range(6)), ("test", range(6, 12))):
        rows = [f"{10 * c + i} {c} 1 chair/{c}_{i}.JPG\n" for c in classes for i in range(4)]
        content[f"Ebay_{role}.txt"] = "image_id class_id super_class_id path\n" + "".join(rows)
        content |= {f"chair/{c}_{i}.JPG": png(c % 6, i) for c in classes for i in range(4)}
    write(root, content)


def inshop(root: Path) -> None:
    classes = {"train": range(1, 5), "query": range(5, 9), "gallery": range(5, 9)}
    rows = [(f"img/{role}{c}_{i}.jpg", c, role) for role in classes for c in classes[role] for i in range(4)]
    listing = "".join(f"{name} id_{c} {role}\n" for name, c, role in rows)
    content: dict[str, bytes | str] = {name: png(c, k) for k, (name, c, _) in enumerate(rows)}
    content["list_eval_partition.txt"] = f"{len(rows)}\nimage_name item_id evaluation_status\n{listing}"
    write(root, content)


MAKERS: dict[str, Callable[[Path], None]] = {"cub": cub, "cars": cars, "sop": sop, "inshop": inshop}


def write(root: Path, content: dict[str, bytes | str]) -> None:
    for name, data in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    root = tmp_path_factory.mktemp("archives")
    for name, make in MAKERS.items():
        make(root / name)
    return root


EVERY = [(name, dataset) for name in table_names() for dataset in find_table(name).rows]
LATER = [(name, dataset) for name, dataset in EVERY if dataset != next(iter(find_table(name).rows))]
ONCE = [
    pytest.param(name, dataset, marks=[pytest.mark.slow] if (name, dataset) in LATER else [])
    for name, dataset in EVERY
    if not name.endswith("/ablation")
]


@pytest.mark.parametrize(("name", "dataset"), ONCE)
def test_every_table_and_figure_runs_end_to_end(name, dataset, archives, tmp_path) -> None:
    rows = [row for row in find_table(name).rows[dataset] if row.recipe is not None]
    last = rows[-1]
    given = {**TINY, "data": f"{dataset}:{archives / dataset}", "partial": True}
    found = reproduce(name, given, tmp_path / "runs", protocol="paper", only=[last.name])
    assert set(found.values[last.name]) == set(last.columns)
    assert all(0 <= value <= 100 for values in found.values[last.name].values() for value in values)
    text = found.markdown()
    for figure in last.published.values():
        assert f"({figure})" in text
    assert "Protocol of the paper" in found.note
    assert json.loads((tmp_path / "runs" / "table.json").read_text())["values"][last.name]


@pytest.mark.parametrize(("changes", "message"), [({"seeds": []}, "seeds: .*got 0"), ({"jobs": 0}, "jobs: .*got 0")])
def test_a_table_without_seeds_or_jobs_is_refused(changes, message, tmp_path) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        reproduce("jrd/ablation", {"data": "digits"}, tmp_path / "runs", **changes)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("seeds", [0, -1])
def test_the_command_refuses_a_table_without_seeds(seeds, tmp_path, capsys, monkeypatch) -> None:
    words = ["compare", "digits", "--recipe", "jrd/ablation", "--seeds", seeds, "--out", tmp_path / "runs"]
    code, _, err = command(capsys, monkeypatch, *words)
    assert code == 2
    assert err == "nearfar: --seeds: expected at least one, got 0\n"


def test_a_quiet_command_does_not_print_the_table(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setattr("nearfar.workflows.comparing.reproduce_table", lambda *args, **settings: "the table")
    words = ["compare", "digits", "--recipe", "jrd/ablation", "--out", tmp_path / "runs"]
    assert command(capsys, monkeypatch, *words) == (0, "the table\n", "")
    assert command(capsys, monkeypatch, *words, "--quiet") == (0, "", "")


@pytest.mark.parametrize(("name", "dataset"), EVERY)
@pytest.mark.parametrize("protocol", ["honest", "paper"])
def test_every_row_is_understood(name, dataset, protocol) -> None:
    rows = find_table(name).rows[dataset]
    assert len({row.name for row in rows}) == len(rows)
    assert len({row.columns for row in rows}) == 1
    digests = set()
    for row in (row for row in rows if row.recipe is not None):
        config = row_config(name, row, protocol, {"data": "x"})
        parse_objective(config.objective, num_classes=10, embedding_dim=4)
        assert Augment.parse(config.augment).parts
        assert config.protocol == protocol
        digests.add(config.digest)
    assert len(digests) == sum(row.recipe is not None for row in rows)


@pytest.mark.slow
def test_by_the_command_line(archives, tmp_path, capsys, monkeypatch) -> None:
    settings = [word for key, value in TINY.items() for word in ("--set", f"{key}={json.dumps(value).strip(chr(34))}")]
    words = ["compare", f"cub:{archives / 'cub'}", "--recipe", "jrd/ablation", "--protocol", "paper", "--partial"]
    code, text, _ = command(capsys, monkeypatch, *words, *settings, "--only", "MRD", "--out", tmp_path / "runs")
    assert not code
    assert "| MRD | " in text
    assert "(49.4(1.1))" in text
    (run,) = (path for path in (tmp_path / "runs").iterdir() if path.is_dir())
    code, text, _ = command(capsys, monkeypatch, "evaluate", run, "--theory")
    assert not code
    assert "H-divergence d_H" in text
    assert "diversity of unseen classes" in text
    code, text, _ = command(capsys, monkeypatch, "evaluate", run, "--protocol", "subsets")
    assert not code
    assert "10 disjoint parts" in text
    assert "Recall@8" in text
    code, _, _ = command(capsys, monkeypatch, "report", run)
    assert not code
    page = (run / "report.html").read_text()
    assert "Seen and unseen classes" in page
    assert "Protocol of the paper: the network was trained on all training classes" in page


def test_what_a_table_is_not_of_is_refused() -> None:
    with pytest.raises(TrainError, match="did you mean 'jrd/table2'"):
        find_table("jrd/tabel2")
    with pytest.raises(TrainError, match="jrd/table3 is a table of cub, got cars"):
        dataset_of(find_table("jrd/table3"), "jrd/table3", "cars:CARS")
    with pytest.raises(TrainError, match="no row begins with 'XRD'"):
        reproduce("jrd/ablation", {"data": "cub:CUB"}, "runs", only=["XRD"])
    with pytest.raises(TrainError, match="only: none of these rows of jrd/table1 can be run"):
        reproduce("jrd/table1", {"data": "cub:CUB"}, "runs", only=["DeML"])


def test_options_beside_a_table_are_refused(tmp_path, capsys, monkeypatch) -> None:
    options = ["--recipe", "jrd/table2", "--objective", "TripletLoss()", "--out", tmp_path]
    code, _, err = command(capsys, monkeypatch, "compare", "cub:X", *options)
    assert code == 2
    assert "--objective: does not work with a table of a paper" in err


@pytest.mark.parametrize("name", [name for name in recipe_names() if name.partition("/")[0] in FOUNDING])
def test_the_protocol_of_the_paper(name) -> None:
    honest = TrainConfig.of(data="x", **recipe(name))
    paper = TrainConfig.of(data="x", **recipe(name, protocol="paper"))
    assert (honest.protocol, paper.protocol) == ("honest", "paper")
    assert honest.validation is None
    assert paper.validation == 0
    assert "reg=0.002" not in paper.objective
    if name.startswith("jrd"):
        assert paper.freeze_bn == "statistics"
        assert "whole=True" in paper.augment
    else:
        assert paper.squash
        assert paper.resize == 256
    if name.startswith("cml"):
        assert 'reduction="sum"' in paper.objective
        assert paper.trunk == "googlenet"
        assert "EnergyConfusion()" not in paper.objective


def test_headers_name_the_file_of_the_weights_and_what_differs() -> None:
    for paper in FOUNDING:
        text = import_module(f"nearfar.train.recipes.{paper}").__doc__
        assert "--protocol paper" in text
        assert "What still differs with `--protocol paper`" in text
        assert "SHA-256 begins with\n52deb4733" in text or "SHA-256 begins with 52deb4733" in text or "SHA-1" in text


def test_recipes_without_a_paper_have_no_protocol_of_one() -> None:
    with pytest.raises(TrainError, match="has no protocol of a paper; those of cml, facility_location, jrd have"):
        recipe("photos/finetune", protocol="paper")
    with pytest.raises(TrainError, match='protocol must be "honest" or "paper"'):
        recipe("jrd/cub", protocol="papers")
