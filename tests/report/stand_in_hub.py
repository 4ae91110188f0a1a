"""A server on this machine that answers as the Hugging Face hub does: one repository is made, filled and read."""

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_secretSECRETsecretSECRETsecretSECRET"


class Hub(ThreadingHTTPServer):
    """Answers 429 the first `busy` times, and 403 to everything after that if it `refuses`."""

    def __init__(self, busy, refuses):
        super().__init__(("127.0.0.1", 0), Request)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.busy = busy
        self.refuses = refuses
        self.created = {}
        self.files = {}
        self.blobs = {}
        self.tokens = set()


class Request(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, content=b"", status=200, **headers):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def body(self):
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def do_GET(self):
        files = self.server.files
        if "/resolve/" in self.path:
            content = files[self.path.partition("/resolve/")[2].partition("/")[2]]
            self.answer(content, ETag=f'"{hash(content)}"', X_Repo_Commit=COMMIT)
        elif "/tree/" in self.path:
            self.answer([{"type": "file", "path": name, "size": len(files[name]), "oid": COMMIT} for name in files])
        elif self.path.startswith("/api/models/"):
            self.answer({"id": "owner/model", "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]})
        else:
            self.answer()

    do_HEAD = do_GET

    def do_PUT(self):
        self.server.blobs[self.path.rpartition("/")[2]] = self.body()
        self.answer()

    def do_POST(self):
        hub = self.server
        hub.tokens.add(self.headers.get("authorization"))
        body = self.body()
        if hub.busy:
            hub.busy -= 1
            self.answer({"error": "slow down"}, 429, Retry_After="1")
        elif hub.refuses:
            self.answer({"error": hub.refuses}, 403, X_Error_Message=hub.refuses)
        elif "/commit/" in self.path:
            self.commit(body)
        else:
            self.prepare(json.loads(body))

    def prepare(self, asked):
        """Answer what is asked before a commit."""
        hub = self.server
        if self.path == "/api/repos/create":
            hub.created = asked
            self.answer({"url": f"{hub.address}/owner/model"})
        elif "/preupload/" in self.path:
            kinds = {True: "lfs", False: "regular"}
            files = [(file["path"], kinds[file["path"].endswith(".safetensors")]) for file in asked["files"]]
            self.answer({"files": [{"path": path, "uploadMode": kind, "shouldIgnore": False} for path, kind in files]})
        elif self.path.endswith("/objects/batch"):
            objects = [
                {**file, "actions": {"upload": {"href": f"{hub.address}/blob/{file['oid']}"}}}
                for file in asked["objects"]
            ]
            self.answer({"transfer": "basic", "objects": objects}, Content_Type="application/vnd.git-lfs+json")
        else:
            self.answer({"errors": [], "warnings": []})

    def commit(self, body):
        """Keep the files of a commit, one line of JSON for each."""
        hub = self.server
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                hub.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                hub.files[value["path"]] = hub.blobs[value["oid"]]
        self.answer({"commitUrl": f"{hub.address}/owner/model/commit/{COMMIT}", "commitOid": COMMIT})


@contextmanager
def stand_in_hub(monkeypatch, tmp_path, *, busy=0, refuses=""):
    """Serve a hub whose address huggingface_hub takes for that of the hub, with a token of its user."""
    hub = Hub(busy, refuses)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    for name, value in {
        "ENDPOINT": hub.address,
        "HUGGINGFACE_CO_URL_TEMPLATE": hub.address + "/{repo_id}/resolve/{revision}/{filename}",
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_HUB_DISABLE_XET": True,
        "HF_HUB_OFFLINE": False,
    }.items():
        monkeypatch.setattr(f"huggingface_hub.constants.{name}", value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    try:
        yield hub
    finally:
        hub.shutdown()
        hub.server_close()
        thread.join()
