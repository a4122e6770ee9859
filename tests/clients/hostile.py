"""Sends requests that nobody honest sends, made from a fixed seed, to a server that it starts itself.
  python3 hostile.py PROGRAM [--count 10000] [--seed 1] [--threads 12]
The server must answer each with a refusal or a normal answer, never with an internal error; afterwards it must still generate an
image, end at once when told to, report no error of a sanitizer, and have written nothing outside its data folder."""
import argparse
import base64
import collections
import errno
import json
import os
import pathlib
import random
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zlib

KEY = "the key of this test"
ALLOWED = {501, 503, 505}  # not implemented, full, unknown version of HTTP: these are refusals too
GETS = ["/", "/healthz", "/health", "/readyz", "/metrics", "/api/v1/info", "/api/v1/jobs", "/api/v1/jobs/job_01ARZ3NDEKTSV4RRFFQ69G5FAV",
        "/api/v1/queue", "/api/v1/models", "/api/v1/loras", "/api/v1/assets", "/api/v1/openapi.json", "/v1/models", "/sdapi/v1/options",
        "/sdapi/v1/progress", "/sdapi/v1/samplers", "/queue", "/models", "/status/" + "0" * 32, "/result/" + "f" * 32,
        "/v1/images/files/x.png", "/api/v1/assets/ast_01ARZ3NDEKTSV4RRFFQ69G5FAV/file"]
POSTS = ["/api/v1/jobs", "/api/v1/jobs/cancel", "/api/v1/plan", "/api/v1/session", "/api/v1/uploads", "/v1/images/generations",
         "/v1/images/edits", "/v1/images/variations", "/sdapi/v1/txt2img", "/sdapi/v1/img2img", "/sdapi/v1/png-info", "/generate",
         "/api/v1/queue/pause", "/api/v1/queue/resume", "/cancel/" + "0" * 32]
FORMS = ["/v1/images/edits", "/v1/images/variations", "/api/v1/uploads"]


def png(width, height, data, claims=None):
    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    w, h = claims or (width, height)
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, 8, 2, 0, 0, 0)) + chunk(b"IDAT", data) +
            chunk(b"IEND", b""))


SMALL = png(8, 8, zlib.compress((b"\0" + b"\x80" * 24) * 8))
BOMBS = [png(8, 8, zlib.compress(b"\0" * 100), (60000, 60000)), png(8, 8, zlib.compress(b"\0" * 30_000_000, 9), (3000, 3000)),
         png(8, 8, b"", (0, 8)), png(8, 8, zlib.compress(b"\0"), (0x7FFFFFFF, 0x7FFFFFFF)), SMALL[:30], SMALL[:-20], b"\x89PNG\r\n\x1a\n",
         b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01",
         b"RIFF\xff\xff\xff\xffWEBPVP8X\x0a\x00\x00\x00\x10\x00\x00\x00\xff\xff\xff\xff\xff\xff", b"BM" + b"\xff" * 60, b"P6 99999 99999 255\n",
         b"GIF89a\xff\xff\xff\xff", b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>", b""]
PATHS = ["../../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/", "....//....//", "..\\..\\", "%00", "\\\\host\\share", "C:/x",
         "/etc/passwd", "file:///etc/passwd", "~/.ssh/id_rsa", "a/./../..//b", "%c0%ae%c0%ae/", "%252e%252e/", "con", "a" * 300, ".", "..",
         "%ff%fe", "%", "%1", "%zz", ";x=y", "?a=b#c", "http://169.254.169.254/latest/", "http://127.0.0.1:1/"]


class Maker:
    """One hostile request after another: (name, bytes, how to send them)."""

    def __init__(self, rng):
        self.rng = rng

    def text(self, n):
        return "".join(self.rng.choice("abcdefghijklmnop%/.\\\"'<>{}[]:;,\u00e9\u4e2d\U0001f600") for _ in range(n))

    def value(self, depth=0):
        r = self.rng
        kinds = [lambda: None, lambda: True, lambda: r.randint(-10, 10), lambda: r.choice([1e308, -1e308, 2**63, -2**63, 2**64, 1e-300]),
                 lambda: self.text(r.randint(0, 40)), lambda: r.choice(PATHS), lambda: "A" * r.choice([1000, 70000]),
                 lambda: "asset:" + r.choice(PATHS), lambda: "data:image/png;base64," + base64.b64encode(r.choice(BOMBS)).decode()]
        if depth < 3:
            kinds += [lambda: [self.value(depth + 1) for _ in range(r.randint(0, 5))],
                      lambda: {self.text(r.randint(0, 8)): self.value(depth + 1) for _ in range(r.randint(0, 5))}]
        return r.choice(kinds)()

    def job(self):
        """A request of a job with some members spoiled."""
        r = self.rng
        body = {"prompt": "a red circle", "width": 64, "height": 64, "steps": 1, "seed": 1}
        names = list(body) + ["n", "size", "image", "images", "references", "mask", "model", "loras", "count", "guidance", "format", "kind",
                              "response_format", "init_images", "batch_size", "input_image_base64", "output", "path", "strength", "negative",
                              "quality", "sampler_name", "override_settings", "preview", "client_ref", "project_id", "priority"]
        for _ in range(r.randint(1, 4)):
            body[r.choice(names)] = self.value()
        return body

    def request(self, method, path, headers=(), body=b"", host="localhost", key=KEY, length=True):
        lines = [f"{method} {path} HTTP/1.1", f"host: {host}", "connection: close"]
        if key is not None:
            lines.append(f"authorization: Bearer {key}")
        lines += list(headers)
        if length and (body or method in ("POST", "PUT", "PATCH")):
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join(lines).encode("utf-8", "surrogateescape") + b"\r\n\r\n" + body

    def json_request(self, path, value):
        text = value if isinstance(value, bytes) else json.dumps(value, ensure_ascii=self.rng.random() < 0.5).encode("utf-8", "replace")
        return self.request("POST", path, ["content-type: application/json"], text)

    def form(self, parts, boundary="b"):
        out = b""
        for head, content in parts:
            out += f"--{boundary}\r\n".encode() + head.encode() + b"\r\n\r\n" + content + b"\r\n"
        return out + f"--{boundary}--\r\n".encode()

    # Each of these is one kind of attack.
    def broken_chunks(self):
        r = self.rng
        size = r.choice(["-1", "zz", "ffffffffffffffff", "fffffffffffffffff1", "", " 5", "5 ", "5;" + "x" * r.choice([1, 70000]), "0x5", "7fffffff",
                         "5\n", "\x00"])
        tail = r.choice(["hello\r\n0\r\n\r\n", "hell\r\n0\r\n\r\n", "hello0\r\n\r\n", "", "hello\r\n" * 50, "hello\r\n0\r\nx: " + "y" * 70000])
        more = r.choice([[], ["content-length: 5"], ["transfer-encoding: identity"], ["transfer-encoding: chunked"]])
        return self.request("POST", r.choice(POSTS), ["transfer-encoding: " + r.choice(["chunked", "chunked, chunked", "xchunked", "gzip, chunked"]),
                                                      "content-type: application/json"] + more, f"{size}\r\n{tail}".encode(), length=False)

    def large_heads(self):
        r = self.rng
        return r.choice([lambda: self.request("GET", r.choice(GETS), ["x: " + "y" * r.choice([9000, 17000, 200000])]),
                         lambda: self.request("GET", r.choice(GETS), ["a: b"] * r.choice([70, 300, 3000])),
                         lambda: self.request("GET", "/" + "a" * r.choice([5000, 9000, 100000])),
                         lambda: self.request("GET", "/healthz?" + "a=b&" * r.choice([100, 3000])),
                         lambda: self.request(r.choice(["G" * 5000, "get", "BREW", "\x01", "PRI"]), "/"),
                         lambda: self.request("GET", "/", ["\x00bad: x", " folded: y", "no colon", "x:\x0b"][: r.randint(1, 4)])])()

    def forms(self):
        r = self.rng
        content = r.choice(BOMBS + [SMALL, b"x" * 300_000])
        name = r.choice(["image", "image[]", "mask", "prompt", "file", self.text(5).replace('"', ""), "a" * 5000])
        file_name = r.choice(PATHS + ["a.png", "a\\\"b.png"]).replace("\r", "")
        head = f'content-disposition: form-data; name="{name}"; filename="{file_name}"\r\ncontent-type: image/png'
        head = r.choice([head, "x: y", "content-disposition: form-data", head + "\r\na: b" * r.choice([1, 80]), "", head.replace('"', "")])
        parts = [('content-disposition: form-data; name="prompt"', b"a red circle"), (head, content)] * r.choice([1, 1, 1, 40])
        body = self.form(parts)
        cut = r.random()
        if cut < 0.4:
            body = body[: r.randint(0, len(body))]
        boundary = r.choice(["b"] * 6 + ["", "c", "b" * 100, '"b', "b; boundary=c", "\u00e9"])
        request = self.request("POST", r.choice(FORMS), [f"content-type: multipart/form-data; boundary={boundary}"], body)
        return request[: r.randint(len(request) // 2, len(request))] if cut > 0.8 else request

    def paths(self):
        r = self.rng
        bases = ["/", "/api/v1/assets/", "/api/v1/jobs/", "/v1/images/files/", "/result/", "/ui/", "/api/v1/models/", "/sdapi/v1/", "/ws/"]
        return self.request(r.choice(["GET", "DELETE", "HEAD", "PATCH", "OPTIONS"]), r.choice(bases) + r.choice(PATHS) + r.choice(["", "/file", "/images/0"]))

    def deep_json(self):
        r = self.rng
        n = r.choice([65, 200, 5000, 200_000])
        text = r.choice(["[" * n, '{"a":' * n, "[" * n + "]" * n, '{"prompt":' + "[" * n + "]" * n + "}", '{"a":1,' * n])
        return self.json_request(r.choice(POSTS), text.encode())

    def bad_json(self):
        r = self.rng
        text = r.choice([b"", b"nul", b"[]", b"{", b'{"a":1}{"b":2}', b'{"a":"\\ud800"}', b'{"a":"\xff\xfe"}', b'{"prompt":NaN}', b'{"seed":1e999}',
                         b"\xef\xbb\xbf{}", b'{"steps":' + b"9" * 5000 + b"}", b'"' + b"x" * 200_000 + b'"', b'{"prompt":"a","prompt":"b"}', b"\x00" * 100])
        return self.json_request(r.choice(POSTS), text)

    def spoiled_jobs(self):
        return self.json_request(self.rng.choice(POSTS), self.job())

    def bombs(self):
        r = self.rng
        image = base64.b64encode(r.choice(BOMBS)).decode()
        image = r.choice([image, "data:image/png;base64," + image, image[:-3], image + "!!", "=" * 1000])
        path, body = r.choice([("/sdapi/v1/img2img", {"prompt": "x", "init_images": [image] * r.choice([1, 1, 20]), "width": 64, "height": 64}),
                               ("/sdapi/v1/png-info", {"image": image}), ("/generate", {"prompt": "x", "input_image_base64": image}),
                               ("/api/v1/jobs", {"prompt": "x", "references": [image], "width": 64, "height": 64, "steps": 1})])
        return self.json_request(path, body)

    def keys(self):
        r = self.rng
        key = r.choice(["", "wrong", "x" * 5000, "\u00e9", KEY[:-1], KEY + " ", None])
        more = r.choice([[], ["authorization: Basic !!!!"], ["authorization: Basic " + base64.b64encode(b"u:" + KEY.encode() + b"x").decode()],
                         ["cookie: flux2=" + "A" * r.choice([1, 43, 9000])], ["x-api-key: wrong"], ["authorization: Bearer " + KEY]])
        return self.request(r.choice(["GET", "POST"]), r.choice(GETS + POSTS) + r.choice(["", "?key=wrong", "?api_key="]), more, key=key)

    def foreign(self):
        r = self.rng
        host = r.choice(["evil.example", "127.0.0.1.evil.example", "", "localhost:99999999", "[::1", "a b", "localhost@evil.example", "0", "LOCALHOST."])
        more = r.choice([[], ["origin: https://evil.example"], ["origin: null"], ["host: localhost"], ["x-forwarded-host: evil.example"],
                         ["access-control-request-method: POST", "origin: https://evil.example"]])
        return self.request(r.choice(["GET", "POST", "OPTIONS"]), r.choice(GETS + POSTS), more, host=host, key=r.choice([KEY, None]))

    def mutated(self):
        r = self.rng
        whole = bytearray(r.choice([self.spoiled_jobs, self.forms, self.paths, lambda: self.request("GET", r.choice(GETS))])())
        for _ in range(r.randint(1, 12)):
            at = r.randrange(len(whole))
            r.choice([lambda: whole.__setitem__(at, r.randrange(256)), lambda: whole.insert(at, r.choice(b"\r\n\x00 :;,\xff")),
                      lambda: whole.__delitem__(slice(at, at + r.randint(1, 30)))])()
            if not whole:
                whole = bytearray(b"\n")
        return bytes(whole)

    def pipelined(self):
        r = self.rng
        one = self.request("GET", r.choice(GETS)).replace(b"connection: close\r\n", b"")
        return one * r.choice([2, 50]) + r.choice([b"", b"GARBAGE\r\n\r\n", one[:-3]])

    def garbage(self):
        r = self.rng
        return r.choice([r.randbytes(r.randint(1, 3000)), b"\x16\x03\x01\x02\x00\x01" + r.randbytes(200), b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 1000,
                         b"GET /\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\nhost: localhost\n\n"])

    def websocket(self):
        r = self.rng
        head = self.request("GET", "/ws/" + r.choice(["0" * 32, "x", "../.."]), ["upgrade: websocket", "connection: upgrade",
                            "sec-websocket-version: " + r.choice(["13", "8", "x"]), "sec-websocket-key: " + r.choice(["AAAAAAAAAAAAAAAAAAAAAA==", "", "x" * 999])])
        return head + r.randbytes(r.choice([0, 2, 300]))

    KINDS = ["broken_chunks", "large_heads", "forms", "paths", "deep_json", "bad_json", "spoiled_jobs", "bombs", "keys", "foreign", "mutated",
             "pipelined", "garbage", "websocket"]

    def next(self):
        kind = self.rng.choice(self.KINDS)
        how = self.rng.choices(["whole", "pieces", "leave", "open"], [80, 8, 9, 3])[0]
        return kind, how, getattr(self, kind)()


def end_of_request(s):
    try:
        s.shutdown(socket.SHUT_WR)
    except OSError as e:
        if e.errno != errno.ENOTCONN:  # the server refused the request and closed the connection; its answer may still be read
            raise


def exchange(port, data, how, source="127.0.0.1", wait=60.0):
    """The statuses of the answers. Waits for the first answer only as long as the server may take."""
    with socket.socket() as s:
        s.settimeout(wait)
        s.bind((source, 0))
        s.connect(("127.0.0.1", port))
        try:
            if how == "pieces":
                for at in range(0, min(len(data), 4000), 500):
                    s.sendall(data[at:at + 500])
                    time.sleep(0.002)
                s.sendall(data[4000:])
            else:
                s.sendall(data)
            if how == "leave":
                return []
            if how == "open":
                s.settimeout(2)  # an unfinished request waits for more; the server gives it half a minute
            else:
                end_of_request(s)
            answer = b""
            while True:
                piece = s.recv(65536)
                if not piece:
                    break
                answer = (answer + piece)[-2_000_000:]
                if b"text/event-stream" in answer:
                    break
        except (ConnectionError, socket.timeout) as e:
            return ["timeout"] if isinstance(e, socket.timeout) and how != "open" else []
    return [int(x) for x in re.findall(rb"HTTP/1\.1 (\d\d\d) ", answer)]


def files_of(folder, without):
    return {str(p): p.stat().st_size for p in folder.rglob("*") if p.is_file() and without not in p.parents}


def start(program, folder, log):
    environment = dict(os.environ, HOME=str(folder / "home"), FLUX2_HOME=str(folder / "data"))
    environment.setdefault("FLUX2_BUNDLED", str(pathlib.Path(__file__).resolve().parents[2] / "models" / "pico"))
    server = subprocess.Popen([program, "serve", "--port", "0", "--data", str(folder / "data"), "--model", "pico", "--api-key", KEY, "--queue", "50"],
                              stdout=subprocess.PIPE, stderr=log, env=environment, text=True, cwd=folder / "home")
    found = re.search(r":(\d+)", server.stdout.readline())
    if not found:
        sys.exit("The server did not start.")
    return server, int(found.group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--count", type=int, default=10000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=12)
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="flux2-hostile-"))
    (folder / "home").mkdir()
    log = open(folder / "log", "w+")
    server, port = start(program, folder, log)
    before = files_of(folder, folder / "data")
    seen, failures, lock, began = collections.Counter(), [], threading.Lock(), time.monotonic()

    def some(number):
        for i in range(number, args.count, args.threads):
            rng = random.Random(args.seed * 1_000_003 + i)
            kind, how, data = Maker(rng).next()
            # Wrong keys lock their address out for a minute: each thread has many.
            source = f"127.{number + 1}.{rng.randrange(250)}.{rng.randrange(1, 250)}"
            try:
                statuses = exchange(port, data, how, source)
            except OSError as e:
                statuses = [f"{type(e).__name__}"]
            with lock:
                for status in statuses or ["closed"]:
                    seen[status] += 1
                    if not isinstance(status, int):
                        if status != "closed":
                            failures.append(f"request {i} ({kind}, {how}): {status}")
                    elif status >= 500 and status not in ALLOWED:
                        failures.append(f"request {i} ({kind}, {how}): status {status}: {data[:200]!r}")
            if server.poll() is not None:
                return

    slow_stop = threading.Event()

    def slow():
        """Senders that never finish: they must not keep the others from being served."""
        sockets = []
        for i in range(100):
            s = socket.create_connection(("127.0.0.1", port))
            s.sendall(b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n" + (b"\r\n{" if i % 2 else b"x:"))
            sockets.append(s)
        while not slow_stop.wait(1):
            for s in sockets:
                try:
                    s.send(b"x")
                except OSError:
                    pass
        for s in sockets:
            s.close()

    threads = [threading.Thread(target=some, args=(n,)) for n in range(args.threads)] + [threading.Thread(target=slow)]
    for thread in threads:
        thread.start()
    for thread in threads[:-1]:
        thread.join()
    slow_stop.set()
    threads[-1].join()
    seconds = time.monotonic() - began

    maker = Maker(random.Random(0))
    if server.poll() is not None:
        failures.append(f"the server ended with status {server.returncode}")
    else:
        exchange(port, maker.request("POST", "/api/v1/queue/resume"), "whole")
        exchange(port, maker.json_request("/api/v1/jobs/cancel", {"all": True}), "whole")
        if exchange(port, maker.request("GET", "/healthz"), "whole") != [200]:
            failures.append("/healthz does not answer")
        data = maker.json_request("/sdapi/v1/txt2img", {"prompt": "a red circle", "width": 64, "height": 64, "steps": 1})
        try:
            with socket.create_connection(("127.0.0.1", port)) as s:
                s.settimeout(240)
                s.sendall(data)
                answer = s.recv(65536)
        except OSError as e:
            answer = str(e).encode()
        if not answer.startswith(b"HTTP/1.1 200"):
            failures.append(f"no image after all this: {answer[:300]!r}")
        server.send_signal(signal.SIGTERM)
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            failures.append("the server does not end")
            server.kill()
            server.wait()
        if server.returncode not in (128 + signal.SIGTERM, 0):
            failures.append(f"the server ended with status {server.returncode}")
    log.flush()
    said = (folder / "log").read_text(errors="replace")
    for sign in ("Sanitizer", "runtime error", "terminate called"):
        if sign in said:
            failures.append(f"the server reported: {said[max(0, said.index(sign) - 300):said.index(sign) + 3000]}")
    after = files_of(folder, folder / "data")
    after.pop(str(folder / "log"), None), before.pop(str(folder / "log"), None)
    if after != before:
        failures.append(f"files outside the data folder: {sorted(set(after) ^ set(before))}")
    for failure in failures[:20]:
        print(failure)
    print("answers: " + ", ".join(f"{status}: {n}" for status, n in sorted(seen.items(), key=str)))
    print(f"{args.count} requests of seed {args.seed} in {seconds:.0f} s: {args.count - len(failures)} passed, {len(failures)} failed")
    if not failures:
        subprocess.run(["rm", "-rf", str(folder)], check=True)
    else:
        print(f"kept: {folder}")
    sys.exit(1 if failures else 0)


main()
