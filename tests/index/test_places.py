"""Searches whose first hits are ranked again by the places of their images."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

import nearfar
from nearfar.evaluation import local_scores, rerank_by_places
from nearfar.train import DeepMetric
from tests.commands import run


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder with ten photos, a query, a network and their index."""
    folder = tmp_path_factory.mktemp("places")
    rng = np.random.default_rng(0)
    (folder / "photos").mkdir()
    patterns = rng.integers(0, 256, (11, 4, 4, 3), dtype=np.uint8)
    for number, pattern in enumerate(patterns):
        name = "query.png" if number == 10 else f"photos/{number}.png"
        Image.fromarray(pattern).resize((32, 32), Image.Resampling.BICUBIC).save(folder / name)
    pixels = np.stack([np.asarray(Image.open(folder / "photos" / f"{i}.png")) for i in range(10)])
    network = DeepMetric(trunk="conv4(width=8)", embedding_dim=6, epochs=1, batch_size=10, random_state=0)
    network.fit(pixels, np.arange(10) % 5).save(folder / "model")
    return folder


@pytest.fixture
def here(photos, monkeypatch):
    monkeypatch.chdir(photos)
    return photos


def test_the_first_hits_are_ranked_by_cosine_and_places(here, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "index", "model", "photos", "-o", "photos.index", "--overwrite")
    assert code == 0, err
    model = nearfar.load("model")
    with nearfar.index.open("photos.index") as store:
        found = nearfar.index.search(store, "query.png", k=4, rerank="places(first=6, weight=0.75)")
        first = nearfar.index.search(store, "query.png", k=6)
    of_hits = model.embed(first.hits.names[0].tolist(), layer="places")
    local = local_scores(model.embed(["query.png"], layer="places"), of_hits, [[*range(6)]])
    expected = rerank_by_places(1 - first.hits.distances, local, [[*range(6)]], k=4, weight=0.75)
    assert found.hits.names[0].tolist() == first.hits.names[0][expected.indices[0]].tolist()
    np.testing.assert_allclose(found.hits.distances, expected.distances, atol=1e-5)
    # a photo of the index finds itself, at no distance; conditions hold
    code, out, _ = run(capsys, monkeypatch, "search", "photos.index", "photos/3.png", "-k", "2", "--rerank", "places")
    assert code == 0
    rank, distance, name = out.splitlines()[1].split()
    assert (rank, name) == ("1", "photos/3.png")
    assert float(distance) < 1e-6
    code, out, _ = run(
        capsys, monkeypatch, "search", "photos.index", "query.png", "--rerank", "places", "--where", "name > 'photos/7'"
    )
    assert (code, len(out.splitlines())) == (0, 4), out


def test_the_page_outlines_what_matches(here, capsys, monkeypatch):
    code, _, err = run(capsys, monkeypatch, "index", "model", "photos", "-o", "photos.index", "--overwrite")
    assert code == 0, err
    with nearfar.index.open("photos.index") as store:
        found = nearfar.index.search(store, "photos", k=3, rerank="places(first=6)", exclude_self=True)
        plain = nearfar.index.search(store, "query.png", k=3)
    assert plain.matched is None
    model = nearfar.load("model")
    names = found.hits.names
    for query, position in zip(np.repeat(range(10), 3), found.hits.positions.ravel(), strict=True):
        matches = found.matched.of_hits[int(query), int(position)]
        item = model.embed([str(found.hits.records.names[position])], layer="places")
        score = local_scores(model.embed([f"photos/{query}.png"], layer="places"), item, [[0]])[0, 0]
        assert (len(matches.query) > 0) == (score > 0)
    assert names.shape == (10, 3)
    assert found.matched.seen(64, 32) == (16, 0, 48, 32)  # the central square
    for more, outlined in ((["--rerank", "places(first=6)"], True), ([], False)):
        words = ["photos.index", "query.png", "-k", "3", "-o", "hits.html", "--overwrite", *more]
        code, _, err = run(capsys, monkeypatch, "search", *words)
        assert code == 0, err
        page = Path("hits.html").read_text()
        assert page.count(" of 16 places match</span>") == 3 * outlined
        assert page.count('<svg class="places whole"') == 3 * outlined
        assert page.count("data:image") == 4 + outlined  # the query once more, for all of its neighbors


def test_the_server_finds_what_the_command_finds(here, capsys, monkeypatch):
    testclient = pytest.importorskip("starlette.testclient")
    pytest.importorskip("uvicorn")
    from nearfar.serve import open_app

    code, _, err = run(capsys, monkeypatch, "index", "model", "photos", "-o", "photos.index", "--overwrite")
    assert code == 0, err
    client = testclient.TestClient(open_app("photos.index"), base_url="http://127.0.0.1:8000")
    assert client.get("/api/about").json()["places"]
    with nearfar.index.open("photos.index") as store:
        found = nearfar.index.search(store, "query.png", k=4, rerank="places(first=6)")
    answer = client.post("/api/search?k=4&rerank=places(first=6)", content=Path("query.png").read_bytes())
    neighbors = answer.json()["neighbors"]
    np.testing.assert_allclose([one["distance"] for one in neighbors], found.hits.distances[0], atol=1e-5)
    for one, name, position in zip(neighbors, found.hits.names[0], found.hits.positions[0], strict=True):
        assert (one["name"], one["places"]["of"]) == (name, 16)
        assert one["places"]["matching"] == len(found.matched.of_hits[0, int(position)].query)


def test_the_patches_of_a_vision_transformer_are_places(here, transformers):
    options = "hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32"
    trunk = f"transformers:vit({options}, image_size=32, patch_size=8)"
    network = DeepMetric(trunk=trunk, embedding_dim=6, epochs=1, batch_size=10, random_state=0)
    names = [f"photos/{number}.png" for number in range(10)]
    pixels = np.stack([np.asarray(Image.open(name)) for name in names])
    network.fit(pixels, np.arange(10) % 5).save("vit")
    nearfar.index.Index(network.embed(names), names=names).save("vit.index")
    assert network.embed(names, layer="places").shape == (10, 4, 4, 6)
    with nearfar.index.open("vit.index") as store:
        found = nearfar.index.search(store, "photos/3.png", k=2, rerank="places", run="vit")
    assert found.hits.names[0, 0] == "photos/3.png"
    assert found.hits.distances[0, 0] == pytest.approx(0, abs=1e-5)


def test_what_has_no_places_is_refused(here, capsys, monkeypatch):
    rows = np.eye(4)
    np.savez("rows.npz", embeddings=rows, names=list("abcd"))
    run(capsys, monkeypatch, "index", "rows.npz", "-o", "rows.index", "--overwrite")
    for words, told in (
        (["rows.index", "rows.npz", "--rerank", "places"], "rerank: places needs images as queries and a network"),
        (
            ["rows.index", "rows.npz", "--rerank", "places(first=0)"],
            "first must be a whole number of at least 1, got 0",
        ),
        (["rows.index", "rows.npz", "--rerank", "places(weight=2)"], "weight: expected a number in 0..1, got 2"),
        (["rows.index", "rows.npz", "--rerank", "places(hits=3)"], "hits"),
        (["rows.index", "rows.npz", "--rerank", "place"], "expected one of expand_queries, augment_gallery"),
        (["rows.index", "rows.npz", "--rerank", "places", "--within", "1"], "--within: does not work with --rerank"),
    ):
        code, _, err = run(capsys, monkeypatch, "search", *words)
        assert code == 2
        assert told in err
        assert len(err.splitlines()) == 1
    code, _, err = run(capsys, monkeypatch, "evaluate", "rows.npz", "--rerank", "places")  # it has no images
    assert (code, "expected one of expand_queries, augment_gallery, k_reciprocal, csls" in err) == (2, True)
