"""Public data sets are fetched once, from a local server here, checked, and kept as class folders."""

import io
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import pytest

from nearfar.data import DataError, DataNotFoundError, open_dataset, open_task, public
from nearfar.data.public import PUBLIC, cached_file, digest_of, fetch

from ..commands import run
from .conftest import zipped

PIL = pytest.importorskip("PIL.Image")


def photo(value, size=(60, 40)):
    rng = np.random.default_rng(value)
    buffer = io.BytesIO()
    PIL.fromarray(rng.integers(0, 256, (size[1], size[0], 3), np.uint8)).save(buffer, "JPEG")
    return buffer.getvalue()


def source(top="Set-0123"):
    content = {f"{top}/LICENSE": "free", f"{top}/README.md": "not kept", f"{top}/dataset/classes.csv": "a,b"}
    content[f"{top}/sample_images/x.jpg"] = photo(0)
    for c, place in enumerate(("Fruit/Apple/Red", "Fruit/Apple/Green", "Fruit/Kiwi", "Packages/Milk/Low")):
        for part in ("train", "test"):
            content[f"{top}/dataset/{part}/{place}/{place.rpartition('/')[2]}_{c}.jpg"] = photo(10 * c + len(part))
    return content


class Server(HTTPServer):
    """Gives `content` to every request, and counts these."""

    content = b""
    requests = 0
    announced = 0
    status = 200


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests += 1
        self.send_response(self.server.status)
        self.send_header("Content-Length", str(self.server.announced or len(self.server.content)))
        self.end_headers()
        self.wfile.write(self.server.content)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of a small archive under the name of the groceries, whose digest is known."""
    archive = zipped(tmp_path / "source.zip", source())
    with zipfile.ZipFile(archive) as opened:
        digest = digest_of(opened, public._members(opened, PUBLIC["grocery"]))
    made = Server(("127.0.0.1", 0), Handler)
    made.content = archive.read_bytes()
    url = f"http://127.0.0.1:{made.server_port}/grocery.zip"
    known = replace(PUBLIC["grocery"], url=url, digest=digest, size=100_000, side=16)
    monkeypatch.setitem(public.PUBLIC, "grocery", known)
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()


def test_a_set_is_fetched_once_and_opened_by_its_name(server, capsys, monkeypatch):
    with pytest.raises(DataNotFoundError, match="grocery: not downloaded yet; run `nearfar data grocery`"):
        open_dataset("grocery")
    code, out, err = run(capsys, monkeypatch, "data", "grocery")
    assert (code, err) == (0, "")
    path = cached_file("grocery")
    assert out.splitlines()[0] == str(path)
    assert "MIT license" in out
    items = open_dataset("grocery")
    assert (len(items), items.classes) == (8, ("Green", "Kiwi", "Low", "Red"))
    assert items.names[:2] == ("Green/test_Green_1.jpg", "Green/train_Green_1.jpg")
    assert [items.read(i).shape for i in range(8)] == [(16, 24, 3)] * 8
    with zipfile.ZipFile(path) as archive:
        assert {"LICENSE", "classes.csv"} < set(archive.namelist())
    before = path.read_bytes()
    assert fetch("grocery") == path
    assert server.requests == 1
    path.unlink()
    assert fetch("grocery").read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["grocery.zip"]
    assert open_task("grocery").protocol.startswith("grocery: train")


def test_photos_are_kept_in_full_where_asked(server, tmp_path, capsys, monkeypatch):
    out = tmp_path / "all.zip"
    code, _, err = run(capsys, monkeypatch, "data", "grocery", "--full", "-o", out)
    assert (code, err) == (0, "")
    with zipfile.ZipFile(out) as archive:
        assert archive.read("Kiwi/train_Kiwi_2.jpg") == source()["Set-0123/dataset/train/Fruit/Kiwi/Kiwi_2.jpg"]
    assert not cached_file("grocery").exists()
    code, _, err = run(capsys, monkeypatch, "data", "grocery", "-o", out)
    assert (code, err) == (2, f"nearfar: --out: {out} exists; choose another name, or remove it\n")


def test_a_file_or_another_address_with_another_top_folder_does_as_well(server, tmp_path):
    archive = zipped(tmp_path / "other.zip", source("master"))
    assert len(open_dataset(fetch("grocery", url=str(archive)))) == 8
    assert server.requests == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"status": 404}, "cannot be downloaded (HTTP Error 404: Not Found); try again, or download it"),
        ({"announced": 200_000}, "the download is incomplete"),
        ({"content": b"<html>"}, "not a readable zip archive"),
        ({"content": bytes(300_000)}, "sends more than 0 MB, which is not grocery"),
    ],
)
def test_what_a_server_does_wrong_is_one_line(change, words, server, capsys, monkeypatch):
    for name, value in change.items():
        setattr(server, name, value)
    code, _, err = run(capsys, monkeypatch, "data", "grocery")
    assert code == 2
    assert words in err
    assert err.count("\n") == 1
    assert not cached_file("grocery").exists()


def test_other_content_is_refused(server, tmp_path):
    content = source()
    content["Set-0123/dataset/train/Fruit/Kiwi/Kiwi_2.jpg"] = photo(99)
    with pytest.raises(DataError, match=r"is not the expected version of grocery: its 10 files have the SHA-256"):
        fetch("grocery", url=str(zipped(tmp_path / "changed.zip", content)))
    del content["Set-0123/dataset/train/Fruit/Kiwi/Kiwi_2.jpg"]
    with pytest.raises(DataError, match="its 9 files have the SHA-256"):
        fetch("grocery", url=str(zipped(tmp_path / "fewer.zip", content)))
    assert not cached_file("grocery").exists()


def test_where_nobody_listens_and_unknown_names_are_told(server, capsys, monkeypatch, tmp_path):
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match="cannot be downloaded"):
        fetch("grocery")
    code, _, err = run(capsys, monkeypatch, "data", "groceries")
    assert (code, "unknown public data set; expected grocery" in err) == (2, True)
    assert run(capsys, monkeypatch, "data")[1].startswith("grocery: 5,421 photos of 81 grocery products")
    code, _, err = run(capsys, monkeypatch, "data", "grocery", "-o", tmp_path / "folder")
    assert (code, "expected a file that ends in .zip" in err) == (2, True)
    with pytest.raises(DataNotFoundError, match="expected a file that exists, or an address"):
        fetch("grocery", url="ftp://somewhere/a.zip")
