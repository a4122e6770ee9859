"""A hub of one repository on loopback, for both sides: what the Python library asks for and what we do."""

import hashlib
import http.server
import json
import ssl
import threading
import urllib.parse

REPOSITORY = "owner/model"
COMMIT = "89abcdef0123456789abcdef0123456789abcdef"


def git_id(content):
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class SmallHub:
    """`files`: path → (content, large). Large files are known by their SHA-256, small ones by their git id."""

    def __init__(self, files, certificate=None):
        """With a certificate (paths of it and its key) the hub speaks https."""
        self.files = files
        self.transfers = []  # paths of the GETs of files
        self.tokens = set()  # what came as Authorization
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                hub.answer(self)

            def do_GET(self):
                hub.answer(self)

            def do_POST(self):
                hub.answer(self, self.rfile.read(int(self.headers.get("Content-Length", 0))))

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if certificate:
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            tls.load_cert_chain(*certificate)
            self.server.socket = tls.wrap_socket(self.server.socket, server_side=True)
        self.endpoint = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def etag(self, path):
        content, large = self.files[path]
        return hashlib.sha256(content).hexdigest() if large else git_id(content)

    def entry(self, path):
        content, large = self.files[path]
        entry = {"type": "file", "path": path, "size": len(content), "oid": git_id(content)}
        if large:
            entry["lfs"] = {"oid": self.etag(path), "size": len(content), "pointerSize": 134}
        return entry

    def answer(self, request, body=b""):
        self.tokens.add(request.headers.get("Authorization"))
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        api, file = f"/api/models/{REPOSITORY}/", f"/{REPOSITORY}/resolve/"
        if path.startswith(api + "revision/"):
            siblings = [{"rfilename": name} for name in self.files]
            info = {"_id": "1", "id": REPOSITORY, "sha": COMMIT, "private": False, "gated": False, "siblings": siblings, "tags": []}
            return self.send(request, json.dumps(info).encode())
        if path.startswith(api + "tree/"):
            return self.send(request, json.dumps([self.entry(name) for name in self.files]).encode())
        if path.startswith(api + "paths-info/"):
            return self.send(request, json.dumps([self.entry(name) for name in json.loads(body)["paths"] if name in self.files]).encode())
        name = path.removeprefix(file).partition("/")[2] if path.startswith(file) else ""
        if name not in self.files:
            return self.send(request, b"", 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
        if request.command == "GET":
            self.transfers.append(name)
        content, status, extra = self.files[name][0], 200, {}
        if wanted := request.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            first, last = int(first), min(int(last or len(content) - 1), len(content) - 1)
            extra, status = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}, 206
            content = content[first:last + 1]
        self.send(request, content, status, {"ETag": f'"{self.etag(name)}"', "X-Repo-Commit": COMMIT, **extra})

    @staticmethod
    def send(request, content, status=200, headers=None):
        request.send_response(status)
        for key, value in (headers or {}).items():
            request.send_header(key, value)
        request.send_header("Content-Length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)
