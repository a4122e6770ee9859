"""Our side: the program, called as a user calls it."""

import json
import pathlib
import subprocess
import tempfile

from safetensors.torch import load_file, save_file


class Program:
    def __init__(self, path, scratch):
        self.path = pathlib.Path(path).resolve()
        self.scratch = pathlib.Path(scratch)
        if not self.path.exists():
            raise SystemExit(f"{path} does not exist: run scripts/build.sh first")

    def run(self, *arguments, stdin=None):
        """Its standard output; an exit status other than 0 is an exception with its words."""
        command = [str(self.path), *map(str, arguments)]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=self.scratch, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr[-2000:]}")
        return done.stdout

    def generate(self, *arguments, tensors=None, command="generate"):
        """Every tensor of one generation in the exact profile. `tensors` are inputs: option → name → tensor."""
        with tempfile.TemporaryDirectory(dir=self.scratch) as folder:
            folder = pathlib.Path(folder)
            given = []
            for option, values in (tensors or {}).items():
                file = folder / f"{option}.safetensors"
                save_file({k: v.contiguous() for k, v in values.items()}, file)
                given += [f"--{option}", file]
            self.run(
                command, *arguments, *given, "--profile", "exact", "--device", "cpu", "--time-rounding", "exact",
                "--trace", folder / "trace.safetensors", "-o", folder / "picture.png", "--quiet",
            )  # fmt: skip
            return load_file(folder / "trace.safetensors")

    def sigmas(self, *arguments):
        plan = json.loads(self.run("generate", "a fox", *arguments, "--dry-run", "--quiet"))
        return plan["requests"][0]["plan"]["sigmas"]

    def tokenize(self, texts, *arguments):
        lines = "".join(json.dumps(text, ensure_ascii=False) + "\n" for text in texts)
        return [json.loads(line) for line in self.run("tokenize", "--jsonl", *arguments, stdin=lines).splitlines()]
