"""How fast we download beside curl: one file from this machine, from a server that answers as the hub does, each program in
turn, several rounds.
  python3 bench/download_rate.py --tool build/tests/fetch_tool [--gigabytes 2] [--rounds 5] [--parts 4] [--folder FOLDER]
curl writes the bytes to a file; we write, hash and check them. Prints the rates, their medians and the
ratio of the medians; exit status 1 when it is below 0.7."""
import argparse
import hashlib
import http.server
import json
import os
import pathlib
import shutil
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 64


def handler(path, size, sha256):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def reply(self, body):
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            if "/revision/" in self.path:
                return self.reply(json.dumps({"sha": COMMIT, "gated": False}).encode())
            if "/tree/" in self.path:
                return self.reply(json.dumps([{"type": "file", "path": "m.safetensors", "size": size, "oid": "0" * 40,
                                               "lfs": {"oid": sha256, "size": size}}]).encode())
            first, last, status = 0, size - 1, 200
            if wanted := self.headers.get("Range"):
                first, last = (int(n) for n in wanted.removeprefix("bytes=").split("-"))
                status = 206
            self.send_response(status)
            self.send_header("Content-Length", str(last - first + 1))
            self.send_header("Content-Range", f"bytes {first}-{last}/{size}")
            self.send_header("ETag", f'"{sha256}"')
            self.send_header("X-Repo-Commit", COMMIT)
            self.end_headers()
            if self.command == "HEAD":
                return
            with open(path, "rb") as file:
                while first <= last:
                    sent = os.sendfile(self.connection.fileno(), file.fileno(), first, min(last - first + 1, 8 << 20))
                    if sent == 0:
                        break
                    first += sent

    return Handler


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--tool", default="build/tests/fetch_tool")
    p.add_argument("--gigabytes", type=float, default=2)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--parts", default="4")
    p.add_argument("--folder", help="on the disk to be measured")
    a = p.parse_args()
    with tempfile.TemporaryDirectory(dir=a.folder) as scratch:
        scratch = pathlib.Path(scratch)
        source, block, digest = scratch / "source", os.urandom(1 << 24), hashlib.sha256()
        size = int(a.gigabytes * 1e9)
        with open(source, "wb") as file:
            for at in range(0, size, len(block)):
                piece = at.to_bytes(8, "little") + block[8:min(len(block), size - at)]
                file.write(piece)
                digest.update(piece)
        server = Server(("127.0.0.1", 0), handler(source, size, digest.hexdigest()))
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}"
        environment = {"PATH": os.environ["PATH"], "HOME": str(scratch), "HF_HOME": str(scratch / "hf"), "HF_ENDPOINT": endpoint}
        commands = {
            "curl": ["curl", "-s", "-f", "-o", str(scratch / "copy"), f"{endpoint}/owner/model/resolve/main/m.safetensors"],
            "flux2": [a.tool, "owner/model", "--parts", a.parts],
        }
        rates = {name: [] for name in commands}
        for _ in range(a.rounds):
            for name, words in commands.items():
                os.sync()
                start = time.perf_counter()
                subprocess.run(words, env=environment, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                rates[name].append(size / (time.perf_counter() - start) / 1e6)
                shutil.rmtree(scratch / "hf", ignore_errors=True)
                (scratch / "copy").unlink(missing_ok=True)
        for name, values in rates.items():
            print(f"{name:6} median {statistics.median(values):7.0f} MB/s   " + "  ".join(f"{v:.0f}" for v in values))
        ratio = statistics.median(rates["flux2"]) / statistics.median(rates["curl"])
        print(f"ratio  {ratio:.2f} of curl, {a.gigabytes:g} GB, {os.cpu_count()} cores, {a.parts} parts")
        return 0 if ratio >= 0.7 else 1


if __name__ == "__main__":
    sys.exit(main())
