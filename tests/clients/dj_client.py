"""Checks the API of dj-flux2 on a running server, as its own client uses it.

usage: dj_client.py URL
"""
import asyncio
import base64
import json
import sys
import time

import requests

from checks import Checks, opened, picture, png_bytes

URL = sys.argv[1].rstrip("/")
checks = Checks("dj-flux2")
SMALL = {"prompt": "a house", "width": 128, "height": 128, "steps": 2, "seed": 5}
STATUS = {"token", "status", "prompt", "model", "width", "height", "seed", "created_at", "started_at", "completed_at", "error",
          "progress_message", "queue_position"}


def submit(body):
    answer = requests.post(URL + "/generate", json=body, timeout=60)
    assert answer.status_code == 201, answer.text
    token = answer.json()["token"]
    assert len(token) == 32 and int(token, 16) >= 0
    return token


def wait(token, seconds=120):
    deadline = time.time() + seconds
    while time.time() < deadline:
        status = requests.get(f"{URL}/status/{token}", timeout=60).json()
        if status["status"] in ("completed", "failed", "cancelled"):
            return status
        time.sleep(0.05)
    raise AssertionError("the job does not end")


def generate():
    token = submit(SMALL)
    status = wait(token)
    assert set(status) == STATUS, status
    assert status["status"] == "completed" and status["seed"] == 5 and status["token"] == token, status
    assert status["prompt"] == "a house" and status["width"] == 128 and status["completed_at"], status
    result = requests.get(f"{URL}/result/{token}", timeout=60)
    assert result.status_code == 200 and result.headers["content-type"] == "image/png"
    assert opened(result.content).size == (128, 128)


def edit():
    image = base64.b64encode(png_bytes(picture())).decode()
    for images in (image, [image, image]):
        token = submit(SMALL | {"input_image_base64": images})
        assert wait(token)["status"] == "completed"
        assert opened(requests.get(f"{URL}/result/{token}", timeout=60).content).size == (128, 128)


def upscale():
    token = submit(SMALL | {"upscale": 2, "upscale_method": "lanczos"})
    assert wait(token)["status"] == "completed"
    assert opened(requests.get(f"{URL}/result/{token}", timeout=60).content).size == (256, 256)


def queue_and_cancel():
    first = submit(SMALL | {"steps": 200, "width": 256, "height": 256})
    second = submit(SMALL)
    listed = requests.get(URL + "/queue", timeout=60).json()
    assert {first, second} <= {status["token"] for status in listed}
    assert requests.get(f"{URL}/result/{second}", timeout=60).status_code == 409
    for token in (second, first):
        answer = requests.post(f"{URL}/cancel/{token}", timeout=60)
        assert answer.status_code == 200 and answer.json() == {"success": True, "message": "Cancelled"}, answer.text
    assert wait(first)["status"] == "cancelled" and wait(second)["status"] == "cancelled"
    assert requests.post(f"{URL}/cancel/{first}", timeout=60).status_code == 409


def errors():
    for body, status in (({}, 422), ({"prompt": "a", "width": 4096, "height": 64}, 400), ({"prompt": "a", "model": "nobody"}, 404),
                         ({"prompt": "a", "upscale": 2, "upscale_method": "realesrgan"}, 400)):
        answer = requests.post(URL + "/generate", json=body, timeout=60)
        assert answer.status_code == status and isinstance(answer.json()["detail"], str), (body, answer.status_code, answer.text)
    for path in ("/status/", "/result/"):
        answer = requests.get(URL + path + "0" * 32, timeout=60)
        assert answer.status_code == 404 and answer.json()["detail"], answer.text


def models():
    models = requests.get(URL + "/models", timeout=60).json()
    assert models["supported"] and set(models) == {"supported", "loaded", "vram_usage"}, models


def socket():
    import websockets

    async def follow(token):
        seen = []
        async with websockets.connect(URL.replace("http", "ws", 1) + "/ws/" + token) as connection:
            async for message in connection:
                seen.append(json.loads(message))
        return seen

    token = submit(SMALL | {"steps": 20})
    seen = asyncio.run(asyncio.wait_for(follow(token), 120))
    assert seen and all(set(status) == STATUS for status in seen)
    assert seen[-1]["status"] == "completed", seen[-1]
    assert all(a != b for a, b in zip(seen, seen[1:])), "a status was sent twice"
    try:
        asyncio.run(follow("0" * 32))
    except websockets.exceptions.InvalidStatus as error:
        assert error.response.status_code == 404, error
    else:
        raise AssertionError("an unknown token was accepted")


checks.run("generate", generate)
checks.run("edit", edit)
checks.run("upscale", upscale)
checks.run("queue and cancel", queue_and_cancel)
checks.run("errors", errors)
checks.run("models", models)
checks.run("WebSocket", socket)
sys.exit(checks.finish())
