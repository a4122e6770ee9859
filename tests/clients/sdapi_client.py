"""Checks the A1111 API of a running server with PyPI's webuiapi and with plain requests.

usage: sdapi_client.py URL
"""
import base64
import json
import sys
import threading
import time
import urllib.parse

import requests
import webuiapi
from PIL import Image, ImageDraw

from checks import Checks, opened, picture, png_bytes

URL = sys.argv[1].rstrip("/")
SDAPI = URL + "/sdapi/v1"
address = urllib.parse.urlparse(URL)
api = webuiapi.WebUIApi(host=address.hostname, port=address.port, steps=2)
checks = Checks("sdapi")
SMALL = {"prompt": "a house", "width": 128, "height": 128, "steps": 2, "seed": 5, "cfg_scale": 3.5}


def get(path):
    answer = requests.get(SDAPI + path, timeout=60)
    assert answer.status_code == 200, (path, answer.status_code, answer.text)
    return answer.json()


def post(path, body=None, status=200):
    answer = requests.post(SDAPI + path, json=body, timeout=300)
    assert answer.status_code == status, (path, answer.status_code, answer.text[:300])
    return answer.json()


def b64(image):
    return base64.b64encode(png_bytes(image)).decode()


def lists():
    model = api.get_sd_models()[0]
    assert model["title"] == f"{model['model_name']} [{model['hash']}]" and len(model["hash"]) == 10
    assert not model["filename"].startswith("/")
    assert {"Euler", "Heun", "DPM++ 2M"} <= set(api.util_get_sampler_names())
    assert "flux2" in api.util_get_scheduler_names()
    assert {"None", "Lanczos"} <= {u["name"] for u in api.get_upscalers()}
    for path in ("/sd-vae", "/sd-modules", "/loras", "/latent-upscale-modes", "/hypernetworks", "/prompt-styles", "/face-restorers",
                 "/realesrgan-models", "/script-info", "/extensions"):
        assert isinstance(get(path), list), path
    assert get("/embeddings") == {"loaded": {}, "skipped": {}}
    assert get("/scripts") == {"txt2img": [], "img2img": []}
    assert get("/cmd-flags") == {}
    assert api.get_memory()["ram"]["total"] > 0


def options():
    options = api.get_options()
    for name in ("sd_model_checkpoint", "sd_checkpoint_hash", "samples_format", "sd_vae", "CLIP_stop_at_last_layers",
                 "show_progress_every_n_steps", "live_previews_enable", "outdir_samples"):
        assert name in options, name
    assert not options["outdir_samples"].startswith("/")
    assert api.util_get_current_model() == api.get_sd_models()[0]["title"]
    assert post("/options", {"some_option": 3}) is None
    assert api.get_options()["some_option"] == 3
    answer = requests.post(SDAPI + "/options", json={"sd_model_checkpoint": "nobody"}, timeout=60)
    assert answer.status_code == 404 and answer.json()["detail"], answer.text


def set_model():
    title = api.get_sd_models()[0]["title"]
    api.util_set_model(title)
    api.util_wait_for_ready(check_interval=0.1)
    assert api.util_get_current_model() == title
    model = api.get_sd_models()[0]
    for name in (model["model_name"], model["hash"]):
        api.set_options({"sd_model_checkpoint": name})
        assert api.util_get_current_model() == title


def txt2img():
    result = api.txt2img(prompt="a house", negative_prompt="rain", width=128, height=128, seed=7, cfg_scale=3.5, batch_size=2)
    assert len(result.images) == 2 and all(i.size == (128, 128) and i.format == "PNG" for i in result.images)
    info = result.info
    assert info["all_seeds"] == [7, 8] and info["seed"] == 7 and info["steps"] == 2, info
    assert info["prompt"] == "a house" and info["sampler_name"] == "Euler" and info["cfg_scale"] == 3.5, info
    assert info["infotexts"][0] == result.images[0].info["parameters"]
    assert info["width"] == 128 and len(info["job_timestamp"]) == 14
    assert result.parameters["prompt"] == "a house"
    assert info["sd_model_name"] == api.get_sd_models()[0]["model_name"]


def minimal_client():
    answer = post("/txt2img", {"prompt": "a tree", "width": 128, "height": 128, "steps": 1, "batch_size": 1})
    assert opened(base64.b64decode(answer["images"][0])).size == (128, 128)
    assert json.loads(answer["info"])["steps"] == 1


def same_pixels_as_others():
    ours = opened(base64.b64decode(post("/txt2img", SMALL)["images"][0]))
    body = {"prompt": "a house", "size": "128x128", "steps": 2, "seed": 5, "guidance": 3.5}
    other = requests.post(URL + "/v1/images/generations", json=body, timeout=300).json()
    assert ours.tobytes() == opened(base64.b64decode(other["data"][0]["b64_json"])).tobytes()
    body = {"prompt": "a house", "width": 128, "height": 128, "steps": 2, "seed": 5, "guidance": 3.5}
    job = requests.post(URL + "/api/v1/jobs", json=body, timeout=60).json()
    while job["state"] in ("queued", "running"):
        time.sleep(0.05)
        job = requests.get(URL + "/api/v1/jobs/" + job["id"], timeout=60).json()
    native = requests.get(URL + job["images"][0]["url"], timeout=60).content
    assert ours.tobytes() == opened(native).tobytes()


def batches():
    answer = post("/txt2img", SMALL | {"batch_size": 2, "n_iter": 2})
    assert len(answer["images"]) == 4
    assert json.loads(answer["info"])["all_seeds"] == [5, 6, 7, 8]
    single = post("/txt2img", SMALL | {"seed": 5, "batch_size": 1})
    assert opened(base64.b64decode(single["images"][0])).size == (128, 128)
    assert post("/txt2img", SMALL | {"send_images": False})["images"] == []


def overrides():
    title = api.get_sd_models()[0]["title"]
    answer = post("/txt2img", SMALL | {"override_settings": {"sd_model_checkpoint": title, "samples_format": "jpg"},
                                       "sampler_name": "Heun", "unknown_member": [1]})
    assert opened(base64.b64decode(answer["images"][0])).format == "JPEG"
    assert json.loads(answer["info"])["sampler_name"] == "Heun"
    assert answer["parameters"]["unknown_member"] == [1]


def infotext():
    text = opened(base64.b64decode(post("/txt2img", SMALL)["images"][0])).info["parameters"]
    again = post("/txt2img", {"infotext": text})
    assert json.loads(again["info"])["seed"] == 5
    assert again["images"] == post("/txt2img", SMALL)["images"]


def img2img():
    canvas = picture(160, 128)
    result = api.img2img(images=[canvas], prompt="make it blue", width=128, height=128, seed=3, cfg_scale=3.5)
    assert result.image.size == (128, 128)
    assert result.parameters["init_images"] is None
    again = api.img2img(images=[canvas], prompt="make it blue", width=128, height=128, seed=3, cfg_scale=3.5)
    assert result.image.tobytes() == again.image.tobytes()
    two = api.img2img(images=[canvas, picture(shade=200)], prompt="make it blue", width=128, height=128, seed=3, cfg_scale=3.5)
    assert two.image.tobytes() != result.image.tobytes(), "the second image has no effect"


def inpaint():
    canvas = picture()
    mask = Image.new("L", canvas.size, 0)
    ImageDraw.Draw(mask).rectangle((48, 48, 79, 79), fill=255)
    for more in ({"inpaint_full_res": False}, {"inpaint_full_res": True, "inpaint_full_res_padding": 16}):
        result = api.img2img(images=[canvas], mask_image=mask, prompt="a ball", width=128, height=128, seed=1, mask_blur=4,
                             inpainting_fill=1, denoising_strength=0.9, cfg_scale=3.5, **more).image.convert("RGB")
        assert result.size == canvas.size
        far = [(x, y) for x in range(128) for y in range(128) if not (24 <= x < 104 and 24 <= y < 104)]
        assert all(result.getpixel(at) == canvas.getpixel(at) for at in far), "kept pixels changed"
        assert result.tobytes() != canvas.tobytes(), "nothing was regenerated"
    inverted = api.img2img(images=[canvas], mask_image=mask, prompt="a ball", width=128, height=128, seed=1,
                           inpainting_mask_invert=1, denoising_strength=1.0, cfg_scale=3.5).image.convert("RGB")
    assert inverted.getpixel((64, 64)) == canvas.getpixel((64, 64))
    for mode in (0, 1, 2):
        resized = post("/img2img", SMALL | {"init_images": [b64(picture(192, 128))], "mask": b64(mask.resize((192, 128))),
                                            "resize_mode": mode})
        assert opened(base64.b64decode(resized["images"][0])).size == (128, 128), mode


def errors():
    answer = post("/img2img", {"prompt": "a"}, 404)
    assert answer["detail"] == "Init image not found" and set(answer) == {"error", "detail", "body", "errors"}, answer
    assert "steps" in post("/txt2img", {"prompt": "a", "steps": "many"}, 422)["detail"]
    assert "tiling" in post("/txt2img", {"prompt": "a", "tiling": "often"}, 422)["detail"]
    assert "init_images" in post("/img2img", {"init_images": ["????"]}, 400)["detail"]
    assert requests.get(SDAPI + "/nothing", timeout=60).json()["error"]
    assert requests.get(SDAPI + "/nothing", timeout=60).status_code == 404


def png_info():
    result = api.txt2img(prompt="a house, with a door", width=128, height=128, seed=11, cfg_scale=3.5)
    info = post("/png-info", {"image": b64_keep(result.image)})
    assert info["info"] == result.info["infotexts"][0]
    assert info["parameters"]["Prompt"] == "a house, with a door" and info["parameters"]["Seed"] == "11"
    assert info["parameters"]["Size-1"] == "128"
    assert post("/png-info", {"image": b64(picture(16, 16))})["info"] == ""


def b64_keep(image):
    from PIL.PngImagePlugin import PngInfo
    import io
    chunks = PngInfo()
    for key, value in image.info.items():
        if isinstance(value, str):
            chunks.add_text(key, value)
    buffer = io.BytesIO()
    image.save(buffer, "PNG", pnginfo=chunks)
    return base64.b64encode(buffer.getvalue()).decode()


def upscale():
    result = api.extra_single_image(image=picture(32, 16), upscaler_1="Lanczos", upscaling_resize=2.5)
    assert result.image.size == (80, 40)
    result = api.extra_single_image(image=picture(32, 16), resize_mode=1, upscaling_resize_w=64, upscaling_resize_h=64,
                                    upscaling_crop=True, upscaler_1="None")
    assert result.image.size == (64, 64)
    several = api.extra_batch_images(images=[picture(16, 16), picture(32, 16)], upscaler_1="Lanczos", upscaling_resize=2)
    assert [image.size for image in several.images] == [(32, 32), (64, 32)]
    assert "Lanczos" in post("/extra-single-image", {"image": b64(picture()), "upscaler_1": "magic"}, 422)["detail"]
    post("/extra-single-image", {"image": b64(picture()), "upscaling_resize": 1000}, 422)


def progress_and_interrupt():
    idle = api.get_progress()
    assert idle["progress"] == 0 and idle["state"]["job_count"] == 0, idle
    found = {}

    def generate():
        found["answer"] = requests.post(SDAPI + "/txt2img", json=SMALL | {"width": 256, "height": 256, "steps": 200}, timeout=300)

    thread = threading.Thread(target=generate)
    thread.start()
    seen = None
    deadline = time.time() + 60
    while time.time() < deadline:
        progress = api.get_progress()
        if progress["current_image"] and progress["state"]["sampling_step"] > 0:
            seen = progress
            break
        time.sleep(0.05)
    assert seen, "no progress with an image"
    assert 0 < seen["progress"] < 1 and seen["state"]["job_count"] == 1 and seen["state"]["sampling_steps"] == 200, seen
    opened(base64.b64decode(seen["current_image"]))
    assert get("/progress?skip_current_image=true")["current_image"] is None
    assert api.interrupt() == {}
    thread.join(60)
    assert not thread.is_alive(), "the interrupted call does not return"
    assert found["answer"].status_code == 200 and found["answer"].json()["images"] == [], found["answer"].text[:200]
    idle = api.get_progress()
    assert idle["progress"] == 0 and idle["state"]["job_count"] == 0, idle
    assert api.skip() == {}


def refresh_and_unload():
    for path in ("/refresh-checkpoints", "/refresh-loras", "/refresh-vae"):
        assert post(path) is None
    assert post("/unload-checkpoint") == {}
    assert post("/reload-checkpoint") == {}
    api.util_wait_for_ready(check_interval=0.1)


checks.run("lists", lists)
checks.run("options", options)
checks.run("choosing a model", set_model)
checks.run("txt2img", txt2img)
checks.run("a client that sends little", minimal_client)
checks.run("the same pixels as the OpenAI and the native API", same_pixels_as_others)
checks.run("batches", batches)
checks.run("override_settings", overrides)
checks.run("infotext", infotext)
checks.run("img2img", img2img)
checks.run("masks", inpaint)
checks.run("errors", errors)
checks.run("png-info", png_info)
checks.run("upscaling", upscale)
checks.run("progress and interrupt", progress_and_interrupt)
checks.run("refresh and unload", refresh_and_unload)
sys.exit(checks.finish())
