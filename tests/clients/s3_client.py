"""Checks a server that keeps its images in an S3-compatible store.

    s3_client.py URL PROGRAM     with the keys and the address of the store in the usual variables

The store (PyPI moto's server) checks every signature with botocore's own implementation.
"""
import os
import subprocess
import sys
import time

import boto3
import requests
from checks import Checks

BUCKET, FOLDER = "images", "a/folder"


def generate(url, **more):
    body = {"prompt": "a red circle", "width": 64, "height": 64, "steps": 2, "seed": 5, **more}
    answer = requests.post(f"{url}/api/v1/jobs?wait=60", json=body, timeout=120)
    job = answer.json()
    for _ in range(600):
        job = requests.get(f"{url}/api/v1/jobs/{job['id']}", timeout=60).json()
        if job["state"] in ("completed", "failed", "cancelled"):
            break
        time.sleep(0.1)
    return job


def start_fails(program, variables, address):
    environment = {**os.environ, **variables}
    done = subprocess.run([program, "serve", "--port", "0", "--images", address], env=environment, capture_output=True, text=True,
                          timeout=120, check=False)
    return done.returncode, done.stderr


def main():
    url, program = sys.argv[1], sys.argv[2]
    checks = Checks("s3")

    def check(what, holds, detail):
        def look():
            assert holds, str(detail)[:500]
        checks.run(what, look)

    store = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])

    def keys():
        found = []
        for page in store.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=FOLDER + "/"):
            found += [o["Key"] for o in page.get("Contents", [])]
        return found

    job = generate(url)
    check("a job completes", job["state"] == "completed", job)
    image = job["images"][0]
    asset = requests.get(f"{url}/api/v1/assets/{image['asset_id']}", timeout=60).json()
    key = f"{FOLDER}/generated/{asset['id'][4:]}.png"
    check("its image is an object", key in keys(), keys())
    stored = store.get_object(Bucket=BUCKET, Key=key)
    check("with its type", stored["ContentType"] == "image/png", stored["ContentType"])
    whole = stored["Body"].read()

    answer = requests.get(f"{url}{asset['url']}", timeout=60)
    check("the server gives the same bytes", answer.content == whole, answer.status_code)
    part = requests.get(f"{url}{asset['url']}", headers={"range": "bytes=10-19"}, timeout=60)
    check("and parts of them", part.status_code == 206 and part.content == whole[10:20], part.status_code)
    same = requests.get(f"{url}{asset['url']}", headers={"if-none-match": answer.headers["etag"]}, timeout=60)
    check("and says when they are known", same.status_code == 304, same.status_code)
    thumb = requests.get(f"{url}{asset['thumb_url']}", timeout=60)
    check("a small version is an object too", thumb.ok and any("/thumbs/" in k for k in keys()), thumb.status_code)

    upload = requests.post(f"{url}/api/v1/uploads", files={"file": ("x.png", whole)}, timeout=60).json()
    check("an upload is an object", any(upload["id"][4:] in k for k in keys()), upload)
    edited = generate(url, kind="edit", references=[upload["image"]])
    check("a job reads an upload", edited["state"] == "completed", edited)

    requests.delete(f"{url}/api/v1/assets/{asset['id']}?permanent=1", timeout=60)
    check("a deleted image is no object any more", not any(asset["id"][4:] in k for k in keys()), keys())

    code, said = start_fails(program, {"AWS_SECRET_ACCESS_KEY": "wrong"}, f"s3://{BUCKET}/x")
    check("a wrong key is explained", code != 0 and "AWS_SECRET_ACCESS_KEY" in said and "SignatureDoesNotMatch" in said, said)
    check("without quoting it", os.environ["AWS_SECRET_ACCESS_KEY"] not in said, "the secret was printed")
    code, said = start_fails(program, {}, "s3://no-such-bucket")
    check("a missing bucket is explained", code != 0 and "bucket \"no-such-bucket\" not found" in said, said)
    code, said = start_fails(program, {"AWS_ACCESS_KEY_ID": ""}, f"s3://{BUCKET}")
    check("missing keys are explained", code != 0 and "AWS_ACCESS_KEY_ID" in said, said)
    return checks.finish()


if __name__ == "__main__":
    sys.exit(main())
