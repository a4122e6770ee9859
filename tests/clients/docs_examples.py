"""Runs every curl example of docs/serving.md against a server: python3 docs_examples.py URL. Each must succeed: status 2xx and output
where a file is named."""
import pathlib
import re
import subprocess
import sys
import tempfile


def blocks(text):
    return re.findall(r"```sh\n(.*?)```", text, re.S)


def main():
    url = sys.argv[1]
    page = pathlib.Path(__file__).resolve().parents[2] / "docs" / "serving.md"
    script = ["set -euo pipefail", "curl() { command curl --fail-with-body --max-time 120 \"$@\"; }"]
    count = 0
    for block in blocks(page.read_text()):
        if block.lstrip().startswith("flux2 "):
            continue  # starts a server
        block = re.sub(r"^URL=.*$", f"URL={url}", block, flags=re.M)
        # A continued line is one command.
        for line in block.replace("\\\n", " ").splitlines():
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            if "curl " in line:
                count += 1
                # A stream that never ends is cut off by its own --max-time.
                script.append(f"echo {count}: >&2")
            script.append(line)
            if "/events" in line and "$JOB" in line:
                script.append("echo >&2")
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(["bash", "-c", "\n".join(script)], cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        print(done.stdout[-2000:], done.stderr[-2000:], sep="\n")
        sys.exit("an example of docs/serving.md failed; the number before it counts the curl commands")
    print(f"{count} curl examples of docs/serving.md work")


if __name__ == "__main__":
    main()
