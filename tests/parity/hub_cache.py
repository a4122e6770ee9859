"""One cache, two libraries: what we download Python's huggingface_hub finds without a network, and the reverse. Our side is
build/tests/fetch_tool, which the tests' build makes. Alone: python hub_cache.py build/tests/fetch_tool"""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from small_hub import COMMIT, REPOSITORY, SmallHub

FILES = {
    "model_index.json": (b'{"_class_name": "Flux2KleinPipeline"}', False),
    "transformer/config.json": (b'{"num_layers": 5}', False),
    "transformer/diffusion_pytorch_model.safetensors": (os.urandom(9 << 20), True),
    "tokenizer/deep/er/merges.txt": (b"a b\n", False),
    "tokenizer/empty.txt": (b"", False),
}

# Run by a Python of its own: the library reads its variables when it is imported.
THEIRS = """
import hashlib, json, os, sys
import huggingface_hub as hub
root = hub.snapshot_download("owner/model")
found = {}
for folder, _, names in os.walk(root):
    for name in names:
        path = os.path.relpath(os.path.join(folder, name), root)
        found[path] = hashlib.sha256(open(hub.hf_hub_download("owner/model", path), "rb").read()).hexdigest()
scan = hub.scan_cache_dir()
repo = next(iter(scan.repos))
print(json.dumps({
    "root": root, "files": found, "warnings": [str(w) for w in scan.warnings], "repositories": [r.repo_id for r in scan.repos],
    "refs": {name: revision.commit_hash for name, revision in repo.refs.items()}, "bytes": repo.size_on_disk,
    "absent": str(hub.try_to_load_from_cache("owner/model", "nothing.json"))}))
"""


class Sides:
    def __init__(self, tool, scratch, hub):
        self.tool, self.scratch, self.hub = tool, scratch, hub

    def environment(self, home, offline):
        return {"PATH": os.environ["PATH"], "HOME": str(self.scratch), "HF_HOME": str(home), "HF_HUB_DISABLE_PROGRESS_BARS": "1",
                "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1",
                "HF_ENDPOINT": "http://127.0.0.1:9" if offline else self.hub.endpoint, "HF_HUB_OFFLINE": "1" if offline else "0"}

    def run(self, words, home, offline):
        done = subprocess.run(words, env=self.environment(home, offline), capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{words[0]} ended with {done.returncode}: {done.stderr[-2000:]}")
        return json.loads(done.stdout.splitlines()[-1])

    def ours(self, home, offline=False):
        report = self.run([self.tool, REPOSITORY], home, offline)
        return {"root": report["root"], "files": {f["path"]: f["sha256"] for f in report["files"]}}

    def theirs(self, home, offline=False):
        return self.run([sys.executable, "-c", THEIRS], home, offline)


def compare(check, tool, scratch):
    """check(name, ours, theirs) once for every claim."""
    hub = SmallHub(FILES)
    sides = Sides(tool, scratch, hub)
    wanted = {path: hashlib.sha256(content).hexdigest() for path, (content, _) in FILES.items()}
    try:
        first = scratch / "written-by-us"
        ours = sides.ours(first)
        theirs = sides.theirs(first, offline=True)
        check("our download is right", ours["files"], wanted)
        check("they find our snapshot offline", theirs["root"], ours["root"])
        check("they read our files", theirs["files"], wanted)
        check("their scan has no complaint", theirs["warnings"], [])
        check("their scan sees the repository", theirs["repositories"], [REPOSITORY])
        check("their scan sees the ref", theirs["refs"], {"main": COMMIT})
        check("their scan counts the bytes", theirs["bytes"], sum(len(content) for content, _ in FILES.values()))
        hub.transfers.clear()
        sides.theirs(first)
        check("they transfer nothing again", hub.transfers, [])

        second = scratch / "written-by-them"
        theirs = sides.theirs(second)
        ours = sides.ours(second, offline=True)
        check("we find their snapshot offline", ours["root"], theirs["root"])
        check("we read their files", ours["files"], wanted)
        hub.transfers.clear()
        check("we find their files online", sides.ours(second)["files"], wanted)
        check("we transfer nothing again", hub.transfers, [])

        names = [sorted(str(p.relative_to(home)) for p in (home / "hub").rglob("*") if p.suffix != ".lock" and ".locks" not in p.parts) for home in (first, second)]
        check("both caches hold the same names", names[0], names[1])
        links = [{str(p.relative_to(home)): os.readlink(p) for p in (home / "hub").rglob("*") if p.is_symlink()} for home in (first, second)]
        check("both caches hold the same links", links[0], links[1])
    finally:
        hub.close()


def compare_tls(check, tool, scratch):
    """A certificate nobody vouches for ends the conversation before the token is said; one that SSL_CERT_FILE names is good."""
    certificate, key = scratch / "certificate.pem", scratch / "key.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                    "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)  # fmt: skip
    hub = SmallHub(FILES, (certificate, key))
    try:
        environment = {"PATH": os.environ["PATH"], "HF_HOME": str(scratch / "tls"), "HF_ENDPOINT": hub.endpoint, "HF_TOKEN": "hf_secret"}
        stranger = subprocess.run([tool, REPOSITORY], env=environment, capture_output=True, text=True)
        check("an unknown certificate is refused", (stranger.returncode, "certificate" in stranger.stderr), (1, True))
        check("and hears no token", hub.tokens, set())
        known = subprocess.run([tool, REPOSITORY], env={**environment, "SSL_CERT_FILE": str(certificate)}, capture_output=True, text=True)
        check("a certificate we trust is taken", known.returncode, 0)
        check("and the token goes over https", hub.tokens, {"Bearer hf_secret"})
    finally:
        hub.close()


def run(report, program, scratch):
    tool = program.path.parent / "tests" / "fetch_tool"
    if not report.wants("hub cache"):
        return
    if not tool.exists():
        return report.skip("hub cache", "build/tests/fetch_tool is not built")
    with report.area("hub cache"):
        folder = scratch / "hub-cache"
        folder.mkdir()
        compare(report.equal, tool, folder)
        compare_tls(report.equal, tool, folder)


def main():
    wrong = 0

    def check(name, ours, theirs):
        nonlocal wrong
        wrong += ours != theirs
        print(f"{'ok' if ours == theirs else 'FAILED'}  {name}" + ("" if ours == theirs else f"\n  {ours}\n  {theirs}"))

    with tempfile.TemporaryDirectory() as scratch:
        for part in (compare, compare_tls):
            part(check, pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(scratch))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
