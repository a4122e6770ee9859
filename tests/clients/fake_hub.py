"""A hub with one repository, on loopback: lists its files and serves them with ranges, as slowly as wanted, and hangs up on request."""
import hashlib, http.server, json, pathlib, threading, time

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPOSITORY = "owner/model"
PIECE = 1 << 14


class FakeHub:
    def __init__(self, folder):
        self.files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(pathlib.Path(folder).rglob("*")) if p.is_file()}
        self.bytes_per_s = 0  # of one connection; 0: as fast as possible
        self.hang_up = 0  # so many transfers of large files end after some bytes
        self.refuses = False  # while true, large files are refused
        self.ranges = []  # the first bytes that were asked for
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def tag(path, content):
        if path.endswith(".safetensors"):
            return hashlib.sha256(content).hexdigest()
        return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()

    def answer(self, request):
        path = request.path.split("?")[0]
        api, files = f"/api/models/{REPOSITORY}/", f"/{REPOSITORY}/resolve/"
        if path.startswith(api + "revision/"):
            return self.send(request, 200, json.dumps({"sha": COMMIT, "gated": False, "private": False, "cardData": {"license": "apache-2.0"}}).encode())
        if path.startswith(api + "tree/"):
            return self.send(request, 200, json.dumps([self.entry(p, c) for p, c in self.files.items()]).encode())
        if path.startswith(files):
            name = path[len(files):].split("/", 1)[1]
            if name in self.files:
                return self.send_file(request, name)
        self.send(request, 404, b"", {"X-Error-Code": "EntryNotFound"})

    def entry(self, path, content):
        entry = {"type": "file", "path": path, "size": len(content), "oid": self.tag(path, content)}
        if path.endswith(".safetensors"):
            entry["lfs"] = {"oid": self.tag(path, content), "size": len(content), "pointerSize": 134}
        return entry

    def send_file(self, request, name):
        content = self.files[name]
        if self.refuses and len(content) > 1 << 16:
            return self.send(request, 403, b"")
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{self.tag(name, content)}"', "Accept-Ranges": "bytes"}
        wanted = request.headers.get("Range")
        first, last = 0, len(content) - 1
        if wanted:
            begin, end = wanted.split("=")[1].split("-")
            first, last = int(begin), min(int(end), last) if end else last
            headers["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self.ranges.append(first)
        self.send(request, 206 if wanted else 200, content[first:last + 1], headers, is_large=len(content) > 1 << 16)

    def send(self, request, status, body, headers={}, is_large=False):
        request.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command == "HEAD":
            return
        try:
            for at in range(0, len(body), PIECE):
                if is_large and self.hang_up and at > 0:
                    self.hang_up -= 1
                    request.close_connection = True
                    return
                request.wfile.write(body[at:at + PIECE])
                if is_large and self.bytes_per_s:
                    time.sleep(PIECE / self.bytes_per_s)
        except OSError:
            request.close_connection = True  # the client has gone
