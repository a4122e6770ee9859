"""Checks a running server with the official OpenAI client.

usage: openai_client.py URL [--key KEY] [--full-queue URL]

URL is the server's address without /v1. --key is the server's key, if it has one. --full-queue is another server whose queue
has one place, for the check of a full queue.
"""
import argparse
import base64
import io
import os
import sys
import tempfile
import threading
import time

import openai
import requests
from PIL import Image, ImageDraw

from checks import Checks, opened, picture, png_bytes

arguments = argparse.ArgumentParser()
arguments.add_argument("url")
arguments.add_argument("--key", default="any")
arguments.add_argument("--locked", default="", help="a server that has a key")
arguments.add_argument("--full-queue", default="", help="a server whose queue has one place")
arguments = arguments.parse_args()

URL = arguments.url.rstrip("/")
client = openai.OpenAI(base_url=URL + "/v1", api_key=arguments.key, timeout=300)
checks = Checks("openai")
SMALL = {"size": "128x128", "extra_body": {"steps": 2, "seed": 5}}


def image_of(item):
    return opened(base64.b64decode(item.b64_json))


def native(path):
    return requests.get(URL + "/api/v1" + path, headers={"Authorization": "Bearer " + arguments.key}, timeout=120).json()


def models():  # a
    listed = client.models.list().data
    assert listed, "no model"
    assert all(m.object == "model" and m.owned_by == "local" and m.created > 0 for m in listed)
    assert client.models.retrieve(listed[0].id).id == listed[0].id


def generate_two():  # b
    answer = client.images.generate(prompt="a red house", n=2, size="512x512", extra_body={"steps": 1, "seed": 41})
    assert len(answer.data) == 2
    images = [image_of(item) for item in answer.data]
    assert all(image.format == "PNG" and image.size == (512, 512) for image in images)
    assert images[0].tobytes() != images[1].tobytes()
    assert answer.data[1].seed == answer.data[0].seed + 1 == 42
    assert answer.size == "512x512" and answer.output_format == "png" and answer.background == "opaque"
    assert answer.quality in ("low", "medium", "high")
    assert abs(answer.created - time.time()) < 600
    assert answer.usage.output_tokens == 2 * 32 * 32
    assert answer.usage.input_tokens_details.text_tokens > 0 and answer.usage.input_tokens_details.image_tokens == 0
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens


def same_seed_same_bytes():  # c
    first, second = (client.images.generate(prompt="a tree", **SMALL).data[0].b64_json for _ in range(2))
    assert first == second


def random_seeds_differ():
    first, second = (client.images.generate(prompt="a tree", size="128x128", extra_body={"steps": 1}).data[0].seed
                     for _ in range(2))
    assert first != second


def formats():
    for name, format in (("jpeg", "JPEG"), ("webp", "WEBP")):
        answer = client.images.generate(prompt="a tree", output_format=name, output_compression=80, **SMALL)
        assert image_of(answer.data[0]).format == format and answer.output_format == name


def model_aliases():
    answer = client.images.generate(prompt="a tree", model="gpt-image-1", **SMALL)
    assert image_of(answer.data[0]).size == (128, 128)


def edit_file():  # d: one open file
    with tempfile.TemporaryDirectory() as folder:
        name = os.path.join(folder, "input.png")
        picture(160, 128).save(name)
        with open(name, "rb") as file:
            answer = client.images.edit(image=file, prompt="make it blue", extra_body={"steps": 2, "seed": 3})
    assert image_of(answer.data[0]).size == (160, 128), "size auto follows the first image"
    assert answer.usage.input_tokens_details.image_tokens == 10 * 8


def edit_list():  # d: a list of three
    files = [io.BytesIO(png_bytes(picture(shade=shade))) for shade in (0, 100, 200)]
    for index, file in enumerate(files):
        file.name = f"{index}.png"
    answer = client.images.edit(image=files, prompt="combine them", **SMALL)
    assert image_of(answer.data[0]).size == (128, 128)
    assert answer.usage.input_tokens_details.image_tokens == 3 * 64


def edit_tuples():  # d: bytes without an extension
    answer = client.images.edit(image=[("first", png_bytes(picture())), ("second", png_bytes(picture(shade=90)))],
                                prompt="combine them", **SMALL)
    assert image_of(answer.data[0]).size == (128, 128)


def edit_order_matters():
    one, two = png_bytes(picture(shade=0)), png_bytes(picture(shade=255))
    answers = [client.images.edit(image=[("a", a), ("b", b)], prompt="combine them", **SMALL).data[0].b64_json
               for a, b in ((one, two), (two, one))]
    assert answers[0] != answers[1]


def edit_with_mask():  # e
    canvas = picture()
    mask = Image.new("RGBA", canvas.size, (0, 0, 0, 255))
    ImageDraw.Draw(mask).rectangle((48, 48, 79, 79), fill=(0, 0, 0, 0))
    answer = client.images.edit(image=("canvas", png_bytes(canvas)), mask=("mask", png_bytes(mask)), prompt="a ball",
                                extra_body={"steps": 2, "seed": 1})
    result = image_of(answer.data[0]).convert("RGB")
    assert result.size == canvas.size
    far = [(x, y) for x in range(128) for y in range(128) if not (24 <= x < 104 and 24 <= y < 104)]
    assert all(result.getpixel(at) == canvas.getpixel(at) for at in far), "kept pixels changed"
    assert result.tobytes() != canvas.tobytes(), "nothing was regenerated"


def mask_of_another_size():
    try:
        client.images.edit(image=("c", png_bytes(picture())), mask=("m", png_bytes(picture(64, 64))), prompt="x")
    except openai.BadRequestError as error:
        assert error.code == "invalid_mask_size" and error.param == "mask", error
    else:
        raise AssertionError("no error")


def extensions():  # f
    for answer in (client.images.generate(prompt="a", size="128x128", extra_body={"flux2": {"steps": 2, "seed": 9}}),
                   client.images.edit(image=("x", png_bytes(picture())), prompt="a", size="128x128",
                                      extra_body={"flux2": {"steps": 2, "seed": 9}})):
        text = image_of(answer.data[0]).info["parameters"]
        assert "Steps: 2," in text and "Seed: 9," in text, text


def check_stream(events, kind):
    names = [event.type for event in events]
    assert names == [f"{kind}.partial_image", f"{kind}.partial_image", f"{kind}.completed"], names
    assert [event.partial_image_index for event in events[:2]] == [0, 1]
    for event in events:
        image = opened(base64.b64decode(event.b64_json))
        assert image.format == "PNG"
        assert event.size == "128x128" and event.output_format == "png" and event.background == "opaque"
        assert event.created_at > 0 and event.quality in ("low", "medium", "high")
    assert events[-1].usage.output_tokens == 64 and opened(base64.b64decode(events[-1].b64_json)).size == (128, 128)


def stream_generate():  # g
    stream = client.images.generate(prompt="a house", size="128x128", stream=True, partial_images=2,
                                    extra_body={"steps": 4, "seed": 5})
    check_stream(list(stream), "image_generation")


def stream_equals_answer():
    stream = client.images.generate(prompt="a house", stream=True, **SMALL)
    events = list(stream)
    assert [event.type for event in events] == ["image_generation.completed"]
    assert events[0].b64_json == client.images.generate(prompt="a house", **SMALL).data[0].b64_json


def stream_edit():  # h
    stream = client.images.edit(image=("x", png_bytes(picture())), prompt="a house", size="128x128", stream=True, partial_images=2,
                                extra_body={"steps": 4, "seed": 5})
    check_stream(list(stream), "image_edit")


def expect(error_class, code, param, call):
    try:
        call()
    except error_class as error:
        assert error.code == code and error.param == param, (error.code, error.param, str(error))
    else:
        raise AssertionError("no error")


def bad_requests():  # i
    generate = client.images.generate
    expect(openai.BadRequestError, "missing_required_parameter", "prompt", lambda: generate(prompt=""))
    expect(openai.BadRequestError, "invalid_value", "n", lambda: generate(prompt="a", n=11))
    expect(openai.BadRequestError, "invalid_value", "size", lambda: generate(prompt="a", size="huge"))
    expect(openai.BadRequestError, "unsupported_value", "background", lambda: generate(prompt="a", background="transparent"))
    expect(openai.BadRequestError, "invalid_type", "seed", lambda: generate(prompt="a", extra_body={"seed": "x"}))
    expect(openai.BadRequestError, "invalid_image_file", "image",
           lambda: client.images.edit(image=("x", b"no image"), prompt="a"))
    expect(openai.BadRequestError, "invalid_value", "image",
           lambda: client.images.edit(image=[("x", png_bytes(picture(64, 64)))] * 17, prompt="a"))


def raw_errors():
    headers = {"Authorization": "Bearer " + arguments.key}
    answer = requests.post(URL + "/v1/images/generations", data="{", headers=headers | {"content-type": "application/json"}, timeout=30)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "invalid_json", answer.text
    answer = requests.post(URL + "/v1/images/edits", data="x", headers=headers | {"content-type": "text/plain"}, timeout=30)
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "invalid_content_type", answer.text
    answer = requests.post(URL + "/v1/images/edits", files={"prompt": (None, "a")}, headers=headers, timeout=30)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "image", answer.text
    answer = requests.get(URL + "/v1/nothing", headers=headers, timeout=30)
    assert answer.status_code == 404 and answer.json()["error"]["code"] == "unknown_url", answer.text
    answer = requests.get(URL + "/v1/images/generations", headers=headers, timeout=30)
    assert answer.status_code == 405 and answer.json()["error"]["code"] == "method_not_allowed", answer.text
    assert answer.headers["x-request-id"]


def json_edit():
    body = {"prompt": "make it blue", "images": [{"b64_json": base64.b64encode(png_bytes(picture())).decode()}], "size": "128x128",
            "steps": 2, "seed": 4}
    answer = requests.post(URL + "/v1/images/edits", json=body, headers={"Authorization": "Bearer " + arguments.key}, timeout=300)
    assert answer.status_code == 200, answer.text
    assert opened(base64.b64decode(answer.json()["data"][0]["b64_json"])).size == (128, 128)


def unknown_model():  # j
    expect(openai.NotFoundError, "model_not_found", "model", lambda: client.images.generate(prompt="a", model="nobody"))
    try:
        client.models.retrieve("nobody")
    except openai.NotFoundError as error:
        assert error.code == "model_not_found"
    else:
        raise AssertionError("no error")


def wrong_key():  # k
    wrong = openai.OpenAI(base_url=arguments.locked.rstrip("/") + "/v1", api_key="wrong")
    try:
        wrong.models.list()
    except openai.AuthenticationError as error:
        assert error.code == "invalid_api_key", error
    else:
        raise AssertionError("no error")


def full_queue():  # l
    busy = openai.OpenAI(base_url=arguments.full_queue.rstrip("/") + "/v1", api_key="any", max_retries=0, timeout=300)
    stream = busy.images.generate(prompt="slow", size="512x512", stream=True, extra_body={"steps": 200})
    try:
        retrying = openai.OpenAI(base_url=arguments.full_queue.rstrip("/") + "/v1", api_key="any", max_retries=1, timeout=300)
        began = time.time()
        try:
            retrying.images.generate(prompt="no place", **SMALL)
        except openai.RateLimitError as error:
            assert error.code == "queue_full" and error.response.headers["retry-after"], error
            assert time.time() - began > 0.4, "the client did not retry"
        else:
            raise AssertionError("no error")
    finally:
        stream.close()


def closing_cancels():  # m
    stream = client.images.generate(prompt="slow", size="256x256", stream=True, partial_images=3,
                                    extra_body={"steps": 250, "flux2": {"preview": "linear"}})
    next(iter(stream))  # it runs
    job = native("/jobs?limit=1")["items"][0]
    assert job["state"] == "running", job["state"]
    stream.close()
    closed = time.time()
    while native("/jobs/" + job["id"])["state"] not in ("cancelled", "completed", "failed"):
        assert time.time() - closed < 60, "the job goes on"
        time.sleep(0.05)
    state = native("/jobs/" + job["id"])
    assert state["state"] == "cancelled", state["state"]


def leaving_cancels():
    def leave():
        try:
            requests.post(URL + "/v1/images/generations", json={"prompt": "left alone", "size": "512x512", "steps": 250},
                          headers={"Authorization": "Bearer " + arguments.key}, timeout=1.0)
        except requests.exceptions.Timeout:
            pass

    leave()
    deadline = time.time() + 60
    while True:
        job = native("/jobs?limit=1")["items"][0]
        if job["state"] == "cancelled" and job["request"]["prompt"] == "left alone":  # not the one before: a loaded server takes it later
            return
        assert time.time() < deadline, job["state"]
        time.sleep(0.05)


def url_answers():  # n
    answer = client.images.generate(prompt="a tree", response_format="url", **SMALL)
    item = answer.data[0]
    assert item.b64_json is None and item.url.startswith(URL), item.url
    got = requests.get(item.url, timeout=30)  # without a key, as such addresses are used
    assert got.status_code == 200 and got.headers["content-type"] == "image/png"
    assert opened(got.content).size == (128, 128)
    assert requests.get(item.url.replace("-0.png", "-7.png"), timeout=30).status_code == 404


def variations():
    answer = client.images.create_variation(image=("x", png_bytes(picture())), n=2, size="128x128", extra_body={"steps": 1})
    assert len(answer.data) == 2 and image_of(answer.data[0]).size == (128, 128)


def several_at_once():
    answers = [None] * 6

    def ask(index):
        answers[index] = client.images.generate(prompt="a tree", size="128x128", extra_body={"steps": 1, "seed": index})

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(answers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.data[0].seed for answer in answers] == list(range(len(answers)))


checks.run("a: models", models)
checks.run("b: two images of 512x512", generate_two)
checks.run("c: the same seed gives the same bytes", same_seed_same_bytes)
checks.run("random seeds differ", random_seeds_differ)
checks.run("jpeg and webp", formats)
checks.run("names of OpenAI's models mean the default one", model_aliases)
checks.run("d: edit with an open file", edit_file)
checks.run("d: edit with three files", edit_list)
checks.run("d: edit with tuples", edit_tuples)
checks.run("the order of references matters", edit_order_matters)
checks.run("e: edit with a mask", edit_with_mask)
checks.run("a mask of another size is refused", mask_of_another_size)
checks.run("edit as JSON", json_edit)
checks.run("variations", variations)
checks.run("f: flux2 in JSON and in forms", extensions)
checks.run("g: streaming generate", stream_generate)
checks.run("a stream without partial images", stream_equals_answer)
checks.run("h: streaming edit", stream_edit)
checks.run("i: bad requests", bad_requests)
checks.run("errors of raw requests", raw_errors)
checks.run("j: unknown model", unknown_model)
if arguments.locked:
    checks.run("k: wrong key", wrong_key)
if arguments.full_queue:
    checks.run("l: full queue", full_queue)
checks.run("m: closing a stream cancels its job", closing_cancels)
checks.run("a client that leaves cancels its job", leaving_cancels)
checks.run("n: response_format url", url_answers)
checks.run("six clients at once", several_at_once)
sys.exit(checks.finish())
