"""Sources at addresses: what is copied, what is refused, and what a message shows."""

import errno
import importlib
import json
import re
import threading
import time
from hashlib import sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import numpy as np
import pytest

import nearfar
from nearfar.cli.outputs import check_out
from nearfar.data import DataError, DataNotFoundError, inspect_data, open_dataset, open_items, open_task
from nearfar.data.open import resolve_source
from nearfar.index import open_store
from nearfar.index.building import build
from nearfar.index.paths import pictures_of
from nearfar.index.searching import search
from nearfar.io import remote
from nearfar.io.remote import NotCopiedError, NothingThereError, is_remote, local_copy, shown_address
from nearfar.io.sources import PIXELS
from nearfar.io.untrusted import images_from
from nearfar.models.embedded import Selection
from nearfar.models.embedding_in_parts import embed_in_parts
from nearfar.train import TrainConfig
from nearfar.train.run import RunFolder
from nearfar.workflows import duplicates, embed, evaluate, fit, suspects

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")

TABLE = b"a,b,label\n" + b"".join(b"%d,%d,c%d\n" % (i, i % 3, i % 4) for i in range(12))


class Server(ThreadingHTTPServer):
    """A web server whose answers are in `pages`: bytes, a status, or a function of the request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Request)
        self.pages = {}
        self.asked = []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}"


class Request(BaseHTTPRequestHandler):
    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append((self.command, path))
        answer = self.server.pages.get(path, 404)
        if callable(answer):
            answer(self)
        elif isinstance(answer, int):
            self.answer(b"", status=answer)
        else:
            self.answer(answer, ETag=f'"{hash(answer)}"')

    do_HEAD = do_GET

    def answer(self, content, status=200, **headers):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    def log_message(self, *words):
        pass


@pytest.fixture(scope="module")
def listening():
    with Server() as found:
        threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def server(listening, monkeypatch, tmp_path):
    """Serve nothing yet, and copy into an empty cache."""
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "FREE_ON_DISK", 0)
    listening.pages.clear()
    listening.asked.clear()
    remote._copied.clear()
    return listening


def fetched(server):
    return sorted(path for method, path in server.asked if method == "GET")


def refused(address, words, kind=NotCopiedError):
    remote._copied.clear()
    with pytest.raises(kind, match=words) as error:
        local_copy(address)
    assert "\n" not in str(error.value)
    return str(error.value)


def page(*links):
    return "".join(f'<a href="{link}">{link}</a>' for link in links).encode()


def test_a_table_is_read_and_copied_once(server):
    server.pages["/a b/rows.csv"] = TABLE
    address = f"{server.address}/a%20b/rows.csv"
    items = open_dataset(address)
    assert (items.name, len(items), items.classes) == ("rows", 12, ("c0", "c1", "c2", "c3"))
    assert len(open_items(address)) == len(open_task(address, validation=0).train) * 2 == 12
    assert TrainConfig.of(data=address).data == str(local_copy(address))
    assert fetched(server) == ["/a b/rows.csv"]
    remote._copied.clear()  # as in another process
    open_dataset(address)
    assert fetched(server) == ["/a b/rows.csv"], "it has not changed"
    remote._copied.clear()
    server.pages["/a b/rows.csv"] = TABLE.replace(b"c3", b"c0")
    assert open_dataset(address).classes == ("c0", "c1", "c2")


def test_a_folder_of_files_is_read(server):
    server.pages |= {
        "/photos/": page("?C=N;O=D", "/", "/photos/a/", "b/", ".git/", "http://other.host/x.txt", "http://[bad"),
        "/photos/a/": page("../", "1.txt", "2.txt"),
        "/photos/b/": page("3.txt", "#top"),
        "/photos/.git/": page("config"),
    }
    server.pages |= {f"/photos/{name}": name.encode() for name in ("a/1.txt", "a/2.txt", "b/3.txt")}
    found = local_copy(f"{server.address}/photos/")
    assert found.name == "photos"
    names = {file.relative_to(found).as_posix(): file.read_text() for file in found.rglob("*") if file.is_file()}
    assert names == {name: name for name in ("a/1.txt", "a/2.txt", "b/3.txt")}
    del server.pages["/photos/a/2.txt"]
    server.pages["/photos/a/"] = page("1.txt")
    server.pages["/photos/b/3.txt"] = b"new"
    server.asked.clear()
    remote._copied.clear()
    local_copy(f"{server.address}/photos/")
    assert [path for path in fetched(server) if path.endswith(".txt")] == ["/photos/b/3.txt"], "only what has changed"
    assert not (found / "a" / "2.txt").exists()
    assert (found / "b" / "3.txt").read_text() == "new"
    server.pages["/photos/"] = page("b/", "a")  # what was a folder is a file
    server.pages["/photos/a"] = b"file"
    remote._copied.clear()
    assert (local_copy(f"{server.address}/photos/") / "a").read_bytes() == b"file"


@pytest.mark.parametrize(
    "link",
    [
        "%2e%2e/x.txt",
        "a%2f..%2f..%2fx.txt",
        "a/%2e%2e%2f%2e%2e/x.txt",
        "a%00.txt",
        "a%5c..%5cx.txt",
        "c%3a%5cx",
        "x" * 300,
    ],
)
def test_names_that_lead_out_of_a_listing_are_refused(link, server, tmp_path):
    server.pages["/photos/"] = page("1.txt", link)
    server.pages |= {"/photos/1.txt": b"1", "/x.txt": b"out", "/photos/../x.txt": b"out"}
    refused(f"{server.address}/photos/", "which is not the name of a file in the folder")
    assert not list((tmp_path / "cache").rglob("*.txt"))


def test_a_folder_without_a_slash_at_its_end_is_named(server):
    server.pages["/photos"] = b"<!DOCTYPE html><a href=1.png>1.png</a>"
    refused(
        f"{server.address}/photos",
        r"a web page came where .photos. was expected; .* a folder ends with a slash: .*/photos/$",
    )


def test_hostile_answers_are_one_line(server, monkeypatch):
    html = b"\n<!DOCTYPE html><p>Please log in"
    server.pages["/rows.csv"] = html
    refused(f"{server.address}/rows.csv", "a web page came where 'rows.csv' was expected; does it need a login")
    server.pages["/rows.csv"] = lambda request: request.answer(b"", 302, Location="file:///etc/passwd")
    refused(f"{server.address}/rows.csv", "an address that is not of the web")
    server.pages["/rows.csv"] = lambda request: request.answer(b"", 302, Location="/rows.csv")
    refused(f"{server.address}/rows.csv", "does not answer, or stopped")
    server.pages["/rows.csv"] = 403
    refused(f"{server.address}/rows.csv", "the server refuses; check that it exists, and the credentials")
    server.pages["/rows.csv"] = 503
    refused(f"{server.address}/rows.csv", r"does not answer, or stopped \(status 503\)")
    refused(f"{server.address}/none.csv", "none.csv: there is nothing", NothingThereError)
    server.pages["/photos/"] = page()
    refused(f"{server.address}/photos/", "has no files", NothingThereError)
    monkeypatch.setattr(remote, "MOST_FILES", 5)
    server.pages["/photos/"] = page(*map(str, range(9)))
    refused(f"{server.address}/photos/", "lists more than 5 files")
    refused("http://127.0.0.1:9/rows.csv", "does not answer")
    refused("https://host/a.zip::file:///etc/passwd", "addresses within addresses")
    with pytest.raises(DataNotFoundError, match="there is nothing"):
        open_dataset(f"{server.address}/none.csv")


def endless(request):
    request.send_response(200)
    request.send_header("Connection", "close")
    request.end_headers()
    try:
        while request.command == "GET":
            request.wfile.write(b"1,2,3\n" * 1000)
    except OSError:
        pass


def test_answers_without_an_end_are_given_up(server, monkeypatch, tmp_path):
    monkeypatch.setattr(remote, "LARGEST_UNKNOWN", 2**21)
    monkeypatch.setattr(remote, "LARGEST_PAGE", 2**21)
    server.pages |= {"/rows.csv": endless, "/photos/": endless}
    refused(f"{server.address}/rows.csv", "'rows.csv' does not end; it was not copied")
    refused(f"{server.address}/photos/", "its list of files is longer than 2 MB")
    for depth in range(40):  # folders in folders without end
        server.pages[f"/deep/{'a/' * depth}"] = page("a/", "x.txt")
        server.pages[f"/deep/{'a/' * depth}x.txt"] = b"x"
    found = local_copy(f"{server.address}/deep/")
    assert len(list(found.rglob("x.txt"))) == remote.DEEPEST_FOLDER + 1
    assert not list((tmp_path / "cache").rglob("*.part"))


def test_a_copy_that_was_interrupted_continues(server, tmp_path):
    def first_is_copied():
        return any("1.txt" in log.read_text() for log in (tmp_path / "cache").rglob("copied.jsonl"))

    def dying(request):
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.send_header("ETag", "1")
        request.end_headers()
        request.close_connection = True
        if request.command == "GET":
            request.wfile.write(b"x" * 100)
            while not first_is_copied():
                time.sleep(0.01)

    server.pages |= {"/photos/": page("1.txt", "2.txt"), "/photos/1.txt": b"one", "/photos/2.txt": dying}
    line = refused(f"{server.address}/photos/", "stopped.*the same command continues")
    assert "1 file" not in line
    server.pages["/photos/2.txt"] = b"two"
    server.asked.clear()
    found = local_copy(f"{server.address}/photos/")
    assert [path for path in fetched(server) if path.endswith(".txt")] == ["/photos/2.txt"]
    assert (found / "1.txt").read_text() + (found / "2.txt").read_text() == "onetwo"
    server.pages["/photos/"] = 503  # and without the network, the copy is read
    remote._copied.clear()
    with pytest.warns(UserWarning, match="the copy in .* is read"):
        assert local_copy(f"{server.address}/photos/") == found


def test_a_copy_needs_room(server, monkeypatch):
    server.pages["/rows.csv"] = TABLE
    monkeypatch.setattr(remote, "FREE_ON_DISK", 2**60)
    refused(f"{server.address}/rows.csv", "needs 0 MB, but 0 MB are free .* set NEARFAR_CACHE")


def test_a_disk_that_is_full_is_named(server, monkeypatch):
    def full(*how):
        raise OSError(errno.ENOSPC, "No space left on device")  # of a write, which names no file

    server.pages["/rows.csv"] = TABLE
    monkeypatch.setattr(remote, "_pour", full)
    refused(f"{server.address}/rows.csv", "rows.csv: cannot be copied .No space left on device")


def test_secrets_are_never_shown(server, tmp_path):
    assert shown_address("s3:/bucket/photos") == "s3://bucket/photos"
    secret = "s3cr3t"
    base = server.address.replace("://", f"://me:{secret}@")
    server.pages["/ok.csv"] = TABLE
    assert secret not in str(local_copy(f"{base}/ok.csv?X-Amz-Signature={secret}"))
    for answer in (404, 403, 500, b"<html>"):
        server.pages["/rows.csv"] = answer
        assert secret not in refused(f"{base}/rows.csv?X-Amz-Signature={secret}", "rows.csv")
    for file in (tmp_path / "cache").rglob("*"):
        assert secret not in str(file)
        assert not file.is_file() or secret not in file.read_text()


def test_addresses_in_records_are_not_read(server):
    """Runs and indexes of strangers may name any address."""
    server.pages["/rows.csv"] = TABLE
    address = f"{server.address}/rows.csv"
    with pytest.raises(DataError, match="is recorded as an address; only one that you give is read"):
        resolve_source(address, None)
    assert not server.asked
    assert [is_remote(one) for one in ("digits", "cub:birds", "C:/photos", "photos.csv", "timm:x")] == [False] * 5


class Bucket(Request):
    """Answer as S3 does: list, head and get, with a key that is known."""

    KEY = "known"

    def do_GET(self):
        self.server.asked.append((self.command, self.path))
        if f"Credential={self.KEY}/" not in self.headers.get("Authorization", ""):
            text = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key: wrong-key</Message></Error>"
            self.answer(text.encode(), 403, Content_Type="application/xml")
            return
        url = urlsplit(self.path)
        _, bucket, key = (unquote(url.path).split("/", 2) + [""])[:3]
        if "list-type" in parse_qs(url.query):
            prefix = parse_qs(url.query).get("prefix", [""])[0]
            keys = [key for key in self.server.pages if key.startswith(prefix)]
            rows = "".join(
                f"<Contents><Key>{key}</Key><Size>{len(self.server.pages[key])}</Size><ETag>e</ETag>"
                "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
                for key in keys
            )
            head = f"<Name>{bucket}</Name><KeyCount>{len(keys)}</KeyCount><IsTruncated>false</IsTruncated>"
            text = f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{head}{rows}</ListBucketResult>'
            self.answer(text.encode(), Content_Type="application/xml")
            return
        content = self.server.pages.get(key)
        if content is None:
            self.answer(b"", 404)
            return
        span = re.match(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        part = content[int(span[1]) : int(span[2]) + 1] if span else content
        self.answer(part, 206 if span else 200, ETag='"e"', Last_Modified="Thu, 01 Jan 2026 00:00:00 GMT")

    do_HEAD = do_GET


@pytest.mark.slow
def test_a_bucket_is_read(server, monkeypatch, tmp_path):
    pytest.importorskip("s3fs")
    monkeypatch.setattr(server, "RequestHandlerClass", Bucket)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", server.address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "known")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    server.pages |= {
        "rows.csv": TABLE,
        "photos/a/1.txt": b"one",
        "photos/b/2.txt": b"two",
        "photos/b/": b"",
        "photos2/x.txt": b"no",
    }
    assert len(open_dataset("s3://bucket/rows.csv")) == 12
    found = local_copy("s3://bucket/photos")
    names = {file.relative_to(found).as_posix(): file.read_text() for file in found.rglob("*") if file.is_file()}
    assert names == {"a/1.txt": "one", "b/2.txt": "two"}
    refused("s3://bucket/none", "there is nothing", NothingThereError)
    server.pages["evil/../../x.txt"] = b"out"
    refused("s3://bucket/evil", "which is not the name of a file in the folder")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong-key")
    line = refused("s3://bucket/rows.csv", "the server refuses")
    assert "wrong-key" not in line
    assert "s3cr3t" not in line


class Hub(Request):
    """Answer as the hub of Hugging Face does: about a repository, its folders and its files."""

    REPOSITORY = "datasets/owner/name"

    def do_GET(self):
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append((self.command, path))
        about = f"/api/{self.REPOSITORY}"
        if path == about:
            self.answer(json.dumps({"id": "owner/name", "sha": "0" * 40, "siblings": []}).encode())
        elif path.startswith(f"{about}/tree/main"):
            folder = path.removeprefix(f"{about}/tree/main").strip("/")
            recursive = parse_qs(urlsplit(self.path).query)["recursive"] == ["true"]
            self.answer(json.dumps(self.listed(folder, recursive)).encode())
        elif path.startswith(f"/{self.REPOSITORY}/resolve/main/"):
            content = self.server.pages[path.removeprefix(f"/{self.REPOSITORY}/resolve/main/")]
            self.answer(content, ETag='"x"', X_Repo_Commit="0" * 40)
        else:
            self.answer(b"{}", 404, X_Error_Code="RepoNotFound")

    do_HEAD = do_GET

    def listed(self, folder, recursive):
        start = f"{folder}/" if folder else ""
        found = {}
        for name, content in self.server.pages.items():
            inside = name.removeprefix(start)
            if name.startswith(start) and (recursive or "/" not in inside):
                found[name] = {"type": "file", "path": name, "size": len(content), "oid": sha1(content).hexdigest()}
            elif name.startswith(start):
                below = start + inside.partition("/")[0]
                found[below] = {"type": "directory", "path": below, "oid": "1" * 40}
        return [*found.values()]


@pytest.mark.slow
def test_a_repository_of_hugging_face_is_read(server, monkeypatch):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(server, "RequestHandlerClass", Hub)
    monkeypatch.setattr(constants, "ENDPOINT", server.address)  # HF_ENDPOINT is read when the package is imported
    template = server.address + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    server.pages |= {"rows.csv": TABLE, "photos/a/1.txt": b"one", "photos/b/2.txt": b"two", "photos2/x.txt": b"no"}
    assert len(open_dataset("hf://datasets/owner/name/rows.csv")) == 12
    found = local_copy("hf://datasets/owner/name/photos")
    names = {file.relative_to(found).as_posix(): file.read_text() for file in found.rglob("*") if file.is_file()}
    assert names == {"a/1.txt": "one", "b/2.txt": "two"}
    server.pages["photos/b/2.txt"] = b"TWO"
    server.asked.clear()
    remote._copied.clear()
    local_copy("hf://datasets/owner/name/photos")
    assert [path for path in fetched(server) if "/resolve/" in path] == [
        f"/{Hub.REPOSITORY}/resolve/main/photos/b/2.txt"
    ]
    refused("hf://datasets/owner/name/none.csv", "there is nothing", NothingThereError)
    refused("hf://datasets/owner/none/rows.csv", "there is nothing", NothingThereError)


@pytest.mark.parametrize("protocol", ["gs", "gcs", "az", "abfs"])
def test_buckets_of_other_clouds_are_read(protocol, server, monkeypatch):
    """Their file systems are not installed here: that of fsspec in memory stands in, which lists in the same way."""
    registered = importlib.import_module("fsspec.registry")._registry
    memory = pytest.importorskip("fsspec.implementations.memory").MemoryFileSystem

    class Bucket(memory):
        protocol = ("gs", "gcs", "az", "abfs")
        store = {}
        pseudo_dirs = [""]

        @classmethod
        def _strip_protocol(cls, path):
            return super()._strip_protocol(path.partition("://")[2] or path)

    monkeypatch.setattr(remote, "is_installed", lambda package: True)
    monkeypatch.setitem(registered, protocol, Bucket)
    Bucket().pipe({"/bucket/photos/a/1.csv": TABLE, "/bucket/photos/b.csv": TABLE, "/bucket/photos/.x": b""})
    copy = local_copy(f"{protocol}://bucket/photos")
    assert sorted(path.relative_to(copy).as_posix() for path in copy.rglob("*.csv")) == ["a/1.csv", "b.csv"]
    assert local_copy(f"{protocol}://bucket/photos/b.csv").read_bytes() == TABLE
    refused(f"{protocol}://bucket/none.csv", "there is nothing", NothingThereError)

    class Unknown(Bucket):
        def __init__(self, **how):
            raise ValueError("Must provide either a connection_string or account_name with credentials!!")

    monkeypatch.setitem(registered, protocol, Unknown)
    expected = "set AZURE_STORAGE_ACCOUNT_NAME, the account" if protocol in ("az", "abfs") else "stopped .ValueError"
    refused(f"{protocol}://bucket/photos", expected, Exception)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(remote, "is_installed", lambda package: package != "s3fs")
    refused(
        "s3://bucket/photos", "s3://bucket/photos: needs s3fs, which is not installed; pip install 'nearfar.remote.'"
    )
    monkeypatch.setattr(remote, "is_installed", lambda package: package != "gcsfs")
    refused("gs://bucket/photos", "needs gcsfs, which is not installed; pip install gcsfs$")
    monkeypatch.setattr(remote, "is_installed", lambda package: package != "adlfs")
    refused("az://bucket/photos", "needs adlfs, which is not installed; pip install adlfs$")


@pytest.mark.parametrize("name", ["lock", "complete", "copied.jsonl", "files"])
def test_a_file_may_be_called_as_those_of_the_copy(name, server):
    for _ in range(2):
        server.pages[f"/{name}"] = TABLE
        assert local_copy(f"{server.address}/{name}").read_bytes() == TABLE
        remote._copied.clear()


def test_names_of_which_one_is_a_folder_for_another_are_refused(server):
    server.pages |= {
        "/photos/": page("a", "a/"),
        "/photos/a/": page("1.txt"),
        "/photos/a": b"x",
        "/photos/a/1.txt": b"1",
    }
    refused(f"{server.address}/photos/", "'a', which is a file and a folder")


def test_a_damaged_log_of_copies_is_not_believed(server, tmp_path):
    server.pages["/rows.csv"] = TABLE
    file = local_copy(f"{server.address}/rows.csv")
    record = file.parent.parent / remote.LOG
    record.write_text(json.dumps(["", [1, "x"]]) + '\n{"cut')
    file.write_text("other")
    remote._copied.clear()
    assert local_copy(f"{server.address}/rows.csv").read_bytes() == TABLE


@pytest.mark.slow
def test_functions_that_take_data_take_addresses_and_data_sets(server, tmp_path):
    """What they record of their data are paths on this machine."""
    datasets = pytest.importorskip("datasets")
    server.pages["/rows.csv"] = TABLE
    rows = {"a": list(range(12)), "b": [i % 3 for i in range(12)], "label": [f"c{i % 4}" for i in range(12)]}
    learner = tmp_path / "rca.safetensors"
    for data in (f"{server.address}/rows.csv", datasets.Dataset.from_dict(rows)):
        assert "4 classes" in fit(data, "RCA()", learner, final=True)
        assert "12 embeddings of 2 dimensions, 4 classes" in embed(learner, data, tmp_path / "a.npz", overwrite=True)
        assert "complete, 12 embeddings" in embed(learner, data, tmp_path / "parts", overwrite=True)
        assert "Index of 12 x 2" in build(learner, data, tmp_path / "a.index", overwrite=True)
        assert "12 items of 4 classes" in evaluate(learner, Selection(data=data)).text
        assert inspect_data(data).parts[0].items > 0
        for place in (tmp_path / "a.index", tmp_path / "parts" / "embeddings.json"):
            assert b"http" not in place.read_bytes()


def test_items_at_an_address_are_named_by_it_and_queries_may_be_there(server, tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image")
    monkeypatch.chdir(tmp_path)
    names = ["a/1.png", "a/2.png", "b/3.png"]
    server.pages |= {"/my photos/": page("a/", "b/"), "/my photos/a/": page("1.png", "2.png")}
    server.pages["/my photos/b/"] = page("3.png")
    for place, name in enumerate(names):
        out = BytesIO()
        image.new("RGB", (9, 9), (90 * place, 200 - 70 * place, 30)).save(out, "PNG")
        server.pages[f"/my photos/{name}"] = out.getvalue()
    host = server.address.replace("://", "://me:s3cr3t@")
    address = f"{host}/my%20photos/"
    build("pixels", address, "x.index")
    shown = [f"{server.address}/my photos/{name}" for name in names]
    with open_store("x.index") as store:
        assert store.column("name").tolist() == shown
        found = search(store, f"{address}a/2.png", k=1)
        assert (found.names, found.hits.names.tolist()) == ([shown[1]], [[shown[1]]])
        assert search(store, address, k=1, exclude_self=True).hits.names[0, 0] in shown[1:]
        with images_from(local_copy(address)):
            pictures = pictures_of(shown, store.about, tmp_path / "x.index")
        assert [pictures(i).shape for i in range(3)] == [(9, 9, 3)] * 3
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path / "other")  # the same names from another folder
    assert "3 of them replaced" in build("pixels", address, "../x.index", add=True)
    with open_store("../x.index") as store:
        assert sorted(store.column("name").tolist()) == shown
    assert "1 item removed" in build(None, None, "../x.index", remove=[shown[0]])


def test_embeddings_at_an_address_are_a_source(server, tmp_path):
    server.pages["/rows.csv"] = TABLE
    address = f"{server.address}/rows.csv"
    assert "1.414  *  rows[0]  rows[1]" in duplicates(address, k=2)
    assert "12 items of 4 classes" in evaluate(address).text
    assert "rows[3]  c3 -> " in suspects(address)
    assert "Index of 12 x 2" in build(address, None, tmp_path / "x.index")
    assert duplicates(Path(address), k=2) == duplicates(address, k=2)  # which has lost a slash
    with pytest.raises(ValueError, match="expected http://HOST:PORT/COLLECTION"):
        duplicates("http://host:19530/my-photos")


def test_a_server_that_sends_too_slowly_is_given_up(server, monkeypatch):
    monkeypatch.setattr(remote, "LONGEST_SILENCE", 0.2)

    def dripping(request):
        request.send_response(200)
        request.send_header("Connection", "close")
        request.end_headers()
        try:
            while request.command == "GET":
                request.wfile.write(b"1")
                time.sleep(0.05)
        except OSError:
            pass

    server.pages |= {"/rows.csv": dripping, "/photos/": dripping}
    for place in ("rows.csv", "photos/"):
        refused(f"{server.address}/{place}", "sends less than 100 bytes a second")


def test_a_server_whose_headers_never_end_is_given_up(server, monkeypatch):
    """Each of them comes soon after the one before, so that no pause is long."""
    monkeypatch.setattr(remote, "LONGEST_SILENCE", 0.3)
    stopped = threading.Event()

    def dripping(request):
        request.send_response(200)
        try:
            for number in range(200):
                request.send_header(f"X-{number}", "1")
                request.flush_headers()
                if stopped.wait(0.05):
                    break
        except OSError:
            pass

    server.pages |= {"/rows.csv": dripping, "/photos/": dripping}
    for place in ("rows.csv", "photos/"):
        refused(f"{server.address}/{place}", r"the server does not answer, or stopped")
    stopped.set()


ADDRESSES = ("s3://bucket/x", "gs://bucket/x.index", "https://host/runs/photos", "https://host/x.safetensors")


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("kind", [str, Path])
def test_no_model_and_no_index_is_taken_from_an_address_or_written_there(address, kind, tmp_path, monkeypatch):
    """A path of Python has lost one of the slashes, and would be a folder called ``s3:``."""
    monkeypatch.chdir(tmp_path)
    np.savez("rows.npz", X=np.eye(4), y=["a", "a", "b", "b"])
    build("rows.npz", None, "x.index")
    place = kind(address)
    before = sorted(tmp_path.rglob("*"))
    model = "no model and no index is read from an address; copy it here, and name the copy"
    written = "is an address; name a place on this machine, and copy it there$"
    web = address.startswith("http")
    index = "expected (a file such as|http://HOST:PORT/COLLECTION)"
    for call, told in (
        (lambda: nearfar.load(place), model),
        (lambda: build(place, "rows.npz", "y.index"), model),
        (lambda: evaluate(place, "rows.npz"), model),
        (lambda: embed(place, "rows.npz", "parts/"), model),
        (lambda: nearfar.index.search(open_store("x.index"), "rows.npz", run=place), model),
        (lambda: nearfar.index.upgrade("x.index", place), model),
        (lambda: nearfar.index.open(place), index),
        (lambda: build("rows.npz", None, place), index),
        (lambda: RunFolder(place).check_free(), written),
        (lambda: embed_in_parts(PIXELS, "rows.npz", place), written),
        (lambda: check_out(Path(place), overwrite=True), written),
    ):
        with pytest.raises(ValueError, match=told) as error:
            call()
        assert "\n" not in str(error.value)
        assert web or address in str(error.value)
    assert sorted(tmp_path.rglob("*")) == before
