"""Uses the web page as a person would, in a real browser. Prints one line per check."""
import argparse, base64, json, pathlib, re, sys, time, traceback, urllib.request

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import sync_playwright

import page_dialogs, page_models, page_races, page_resilience, page_shots, page_studio, page_support, page_training
from page_support import Api, check, draft, file_of, fill, finished, pixels, png, problems, reload, shown, tab, wait_until

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("url")
arguments.add_argument("chromium")
arguments.add_argument("--locked", help="a server with the key \"a key of this test\"")
arguments.add_argument("--data", type=pathlib.Path, help="the server's data folder")
arguments.add_argument("--program", help="flux2, for checks that start servers of their own")
arguments.add_argument("--screenshots", type=pathlib.Path, help="a folder for images of every tab")
arguments.add_argument("--only", help="names of steps, with commas between them; for work on the page")
arguments = arguments.parse_args()
URL, CHROMIUM, SHOTS = arguments.url, arguments.chromium, arguments.screenshots
get = Api(URL).get


def open_page(browser, width=1280, height=800, **more):
    return page_support.open_page(browser, URL, width, height, **more)


def first_image(browser):
    page = open_page(browser)
    check("the page paints", page_support.first_paint(page) > 0)
    page.keyboard.press("Control+Enter")
    check("an empty prompt is refused in words", "prompt" in shown(page).locator(".error").first.inner_text())
    prompt = shown(page).locator("[data-name=prompt]")
    prompt.fill("a red circle on a blue background")
    check("the forecast is shown", wait_until(lambda: "memory" in shown(page).locator(".forecast").inner_text()))
    shown(page).locator("[data-name=seed]").fill("7")
    shown(page).locator("[data-name=steps]").fill("60")  # long enough for its previews to be seen
    page.keyboard.press("Control+Enter")
    shown(page).locator(".stage img.preview").wait_for(timeout=30_000)
    check("a preview comes before the image", True)
    finished(page)
    job = get("/api/v1/jobs?limit=1")["items"][0]
    check("the job has the settings of the form", job["request"]["seed"] == 7 and job["request"]["prompt"].startswith("a red circle"))
    check("the seed is shown", wait_until(lambda: "7" in shown(page).locator(".status").inner_text()))
    page.reload()
    page.wait_for_selector("nav a")
    check("a reload keeps what was typed", shown(page).locator("[data-name=prompt]").input_value() == "a red circle on a blue background")
    return page


def sizes_and_batches(page):
    shown(page).locator(".chip", has_text="16:9").click()
    width = int(shown(page).locator("[data-name=width]").input_value())
    height = int(shown(page).locator("[data-name=height]").input_value())
    check("16:9 gives a wide size in steps of 16", width > height and width % 16 == 0 and height % 16 == 0, f"{width}x{height}")
    page.get_by_label("Swap width and height").first.click()
    check("sizes are swapped", int(shown(page).locator("[data-name=width]").input_value()) == height)
    shown(page).locator(".chip", has_text="1:1").click()
    shown(page).locator("[data-name=count]").fill("2")
    shown(page).locator("[data-name=steps]").fill("4")
    shown(page).locator("button.primary").click()
    check("a batch shows all its images", wait_until(lambda: shown(page).locator(".strip img").count() == 2))
    shown(page).locator("[data-name=count]").fill("1")
    shown(page).locator("[data-name=prompt]").press("Alt+ArrowUp")
    check("Alt+Up brings back a prompt", shown(page).locator("[data-name=prompt]").input_value() != "")


def regions(page):
    shown(page).locator("[data-name=prompt]").fill("a white background")
    shown(page).locator("[data-name=steps]").fill("4")
    shown(page).get_by_text("Advanced", exact=True).click()
    shown(page).get_by_text("Add a region").click()
    region = shown(page).locator(".regions fieldset")
    region.get_by_label("Prompt of the region").fill("a red circle")
    for label, value in (("Left", "0"), ("Top", "0"), ("Width", "64")):
        region.get_by_label(label, exact=True).fill(value)
    shown(page).locator("button.primary").click()
    finished(page)
    check("a region that is not complete is left out", "regions" not in get("/api/v1/jobs?limit=1")["items"][0]["request"])
    region.get_by_label("Height", exact=True).fill("128")
    shown(page).locator("button.primary").click()
    sent = [{"prompt": "a red circle", "box": [0, 0, 64, 128]}]
    check("the request has the region", wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["request"].get("regions") == sent))
    finished(page)
    reload(page)
    check("a reload keeps the region", shown(page).locator(".regions textarea").input_value() == "a red circle")
    shown(page).get_by_text("Advanced", exact=True).click()
    shown(page).get_by_label("Remove region 1").click()
    check("a region can be removed", shown(page).locator(".regions fieldset").count() == 0)
    shown(page).get_by_text("Advanced", exact=True).click()


def image_prompts(page):
    shown(page).locator("[data-name=prompt]").fill("a white background")
    shown(page).get_by_text("Advanced", exact=True).click()
    prompts = shown(page).get_by_role("group", name="Images as prompts")
    expected = len(problems)
    prompts.locator("input[type=file]").set_input_files([file_of("a.png", png(64, 64, lambda x, y: (200, 4 * y, 0)))])
    check("an image prompt is listed", wait_until(lambda: prompts.locator(".image-prompts img").count() == 1))
    prompts.get_by_label("Strength", exact=True).fill("0.5")
    shown(page).locator("button.primary").click()
    refused = lambda: "needs an image-prompt adapter" in page.locator("#toasts").inner_text()
    check("without an adapter the request is refused with what to do", wait_until(refused), page.locator("#toasts").inner_text())
    page.evaluate("document.getElementById('toasts').replaceChildren()")
    reload(page)
    shown(page).get_by_text("Advanced", exact=True).click()
    check("a reload keeps the image prompt", prompts.get_by_label("Strength", exact=True).input_value() == "0.5")
    prompts.get_by_label("Remove image prompt 1").click()
    check("an image prompt can be removed", prompts.locator(".image-prompts img").count() == 0)
    del problems[expected:]  # the refused request
    detail = shown(page).get_by_role("group", name="Detail pass")
    detail.get_by_label("Rectangles").fill("0,0,64,64 64,64,32,32")
    shown(page).locator("button.primary").click()
    sent = ["0,0,64,64", "64,64,32,32"]
    check("the request has the rectangles of the detail pass", wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["request"].get("detail_box") == sent))
    finished(page)
    detail.get_by_label("Rectangles").fill("")
    shown(page).get_by_text("Advanced", exact=True).click()


def prompt_tools(page):
    tab(page, "generate")
    prompt = shown(page).locator("[data-name=prompt]")
    prompt.fill("an old barn")
    shown(page).locator("[data-name=template]").select_option("watercolor")
    preview = shown(page).locator(".preview-text")
    check("the prompt inside a template is shown", "an old barn" in preview.inner_text() and "watercolor" in preview.inner_text(), preview.inner_text())
    shown(page).locator("[data-name=steps]").fill("")
    shown(page).locator("[data-name=preset]").select_option("draft")
    shown(page).locator("button.primary").click()
    check("template and preset go to the server", wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["request"].get("style") == "watercolor"))
    wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["state"] == "completed")
    job = get("/api/v1/jobs?limit=1")["items"][0]
    check("they are used", "watercolor painting of an old barn" in job["resolved"]["prompt"] and job["resolved"]["steps"] < 20, job["resolved"])
    shown(page).get_by_text("Put into the prompt").click()
    check("a template is put into the prompt", prompt.input_value() == job["resolved"]["prompt"] and draft(page, "draft.generate")["template"] == "")
    shown(page).get_by_role("button", name="Templates").click()
    page.get_by_label("Name").fill("tiny")
    page.get_by_label("Template", exact=True).fill("a tiny {prompt}, macro")
    page.get_by_text("Save the template").click()
    csv = 'name,positive_prompt,negative_prompt\n"two, words","{prompt} in ""quotes""",blurry\nplain,{prompt} at night,\n'
    page.locator("dialog input[type=file]").set_input_files([{"name": "t.csv", "mimeType": "text/csv", "buffer": csv.encode()}])
    check("templates are written and imported", wait_until(lambda: page.locator("dialog .checkpoints li").count() == 3))
    page.keyboard.press("Escape")
    shown(page).locator("[data-name=template]").select_option("two, words")
    prompt.fill("a cat")
    check("an own template is applied", preview.inner_text() == 'a cat in "quotes"', preview.inner_text())
    shown(page).locator("button.primary").click()
    check("an own template goes to the server", wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["request"]["prompt"] == 'a cat in "quotes"'))
    check("with its negative prompt", get("/api/v1/jobs?limit=1")["items"][0]["request"].get("negative") == "blurry")
    shown(page).locator("[data-name=template]").select_option("")
    shown(page).locator("[data-name=preset]").select_option("")
    shown(page).get_by_role("button", name="History").click()
    page.get_by_label("Search earlier prompts").fill("barn")
    page.locator("dialog .choices button").first.click()
    check("an earlier prompt is found", wait_until(lambda: "old barn" in prompt.input_value()), prompt.input_value())


def grid(page):
    tab(page, "generate")
    shown(page).locator("[data-name=prompt]").fill("a red house")
    shown(page).get_by_text("Grid of two settings").click()
    shown(page).get_by_label("Across", exact=True).select_option("steps")
    shown(page).get_by_label("Values across").fill("1, 2")
    shown(page).get_by_label("Down", exact=True).select_option("prompt")
    shown(page).get_by_label("Values down").fill("red, blue")
    shown(page).get_by_text("Generate the grid").click()
    images = shown(page).locator(".xy img")
    check("a grid of two settings is made", wait_until(lambda: images.count() == 4), images.count())
    jobs = get("/api/v1/jobs?limit=4")["items"]
    check("each image has its pair of values", {(j["request"]["steps"], j["request"]["prompt"]) for j in jobs} == {(s, f"a {c} house") for s in (1, 2) for c in ("red", "blue")}
          and len({j["request"]["seed"] for j in jobs}) == 1, [j["request"] for j in jobs])
    page.reload()
    page.wait_for_selector("nav a")
    check("a reload keeps the grid", wait_until(lambda: images.count() == 4), images.count())
    shown(page).locator(".xy button").click()


def queue(page):
    api = lambda path, body: urllib.request.urlopen(urllib.request.Request(URL + path, json.dumps(body).encode(), {"content-type": "application/json"}))
    api("/api/v1/queue/pause", {})
    for n in range(3):
        shown(page).locator("[data-name=prompt]").fill(f"waiting {n}")
        shown(page).locator("button.primary").click()
        wait_until(lambda: len(get("/api/v1/queue")["order"]) == n + 1)
    page.click("#queue-button")
    rows = page.locator("#queue li", has_text="waiting")
    check("waiting jobs are listed", wait_until(lambda: rows.count() == 3), rows.count())
    before = get("/api/v1/queue")["order"]
    rows.nth(2).get_by_label("Sooner").click()
    check("a job moves up", wait_until(lambda: get("/api/v1/queue")["order"] == [before[0], before[2], before[1]]))
    rows.nth(0).get_by_label("Cancel").click()
    check("a job is cancelled", wait_until(lambda: get(f"/api/v1/jobs/{before[0]}")["state"] == "cancelled"))
    check("the count is shown", wait_until(lambda: page.locator("#queue-button .count").inner_text() == "2"))
    page.get_by_text("Resume", exact=True).click()
    check("the queue goes on", wait_until(lambda: not get("/api/v1/queue")["order"], 60))
    wait_until(lambda: all(get(f"/api/v1/jobs/{id}")["state"] == "completed" for id in before[1:]), 60)
    page.click("#queue-button")


def cancelling(page):
    shown(page).locator("[data-name=steps]").fill("200")
    shown(page).locator("[data-name=prompt]").fill("a long one")
    shown(page).locator("button.primary").click()
    shown(page).locator(".status").get_by_text("Cancel").wait_for()
    page.locator("main").focus()
    page.keyboard.press("Shift+X")
    check("Shift+X cancels", wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["state"] == "cancelled"))
    shown(page).locator("[data-name=steps]").fill("4")


def editing(page):
    tab(page, "edit")
    shown(page).locator("[data-name=prompt]").fill("make it green")
    shown(page).locator("button.primary").click()
    check("editing needs an image", "image" in shown(page).locator(".error").first.inner_text())
    image = urllib.request.urlopen(URL + get("/api/v1/jobs?state=completed&limit=1")["items"][0]["images"][0]["url"]).read()
    blue = png(64, 64, lambda x, y: (0, 0, 255))
    shown(page).locator("input[type=file]").first.set_input_files([file_of("a.png", image), file_of("b.png", blue)])
    check("chosen images are listed in order", wait_until(lambda: shown(page).locator(".references li").count() == 2))
    order = lambda: [p["asset"] for p in draft(page, "references").get("pictures", [])]
    before = order()
    shown(page).get_by_label("Move image 2 up").click()
    check("references change their order", order() == before[::-1], [before, order()])
    shown(page).get_by_label("Remove image 2").click()
    check("an image is removed", wait_until(lambda: shown(page).locator(".references li").count() == 1))
    page.evaluate("""async (b64) => {
      const bytes = Uint8Array.from(atob(b64), (c) => c.charCodeAt(0));
      const data = new DataTransfer(); data.items.add(new File([bytes], "pasted.png", { type: "image/png" }));
      document.dispatchEvent(new ClipboardEvent("paste", { clipboardData: data, bubbles: true }));
    }""", base64.b64encode(image).decode())
    check("a pasted image is added", wait_until(lambda: shown(page).locator(".references li").count() == 2))
    shown(page).locator(".drop").first.evaluate("""(area, b64) => {
      const bytes = Uint8Array.from(atob(b64), (c) => c.charCodeAt(0));
      const data = new DataTransfer(); data.items.add(new File([bytes], "dropped.png", { type: "image/png" }));
      area.dispatchEvent(new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true }));
    }""", base64.b64encode(image).decode())
    check("a dropped image is added once", wait_until(lambda: shown(page).locator(".references li").count() == 3), shown(page).locator(".references li").count())
    reload(page)
    check("a reload keeps the references", shown(page).locator(".references li").count() == 3, shown(page).locator(".references li").count())
    shown(page).get_by_label("Remove image 3").click()
    shown(page).locator("[data-name=steps]").fill("4")
    shown(page).locator("[data-name=strength]").fill("0.8")
    shown(page).locator("button.primary").click()
    finished(page)
    job = get("/api/v1/jobs?limit=1")["items"][0]
    check("strength goes to the server", job["request"].get("strength") == 0.8, job["request"])
    check("the edit used both images", job["kind"] == "edit" and len(job["request"]["references"]) == 2, job["request"])


def inpainting(page):
    tab(page, "generate")
    shown(page).locator("[data-name=prompt]").fill("a blue background")
    shown(page).locator("button.primary").click()
    wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["state"] == "completed", 60)
    shown(page).locator(".actions").get_by_text("Inpaint", exact=True).click()
    canvas = shown(page).locator("canvas")
    canvas.wait_for()
    source = get("/api/v1/jobs?limit=1")["items"][0]["images"][0]
    shown(page).locator("[data-name=prompt]").fill("a yellow square")
    shown(page).locator("[data-name=steps]").fill("4")
    shown(page).locator("button.primary").click()
    check("inpainting needs a mask", "Paint" in shown(page).locator(".error").first.inner_text())
    box = canvas.bounding_box()
    shown(page).get_by_label("Rectangle").click()
    page.mouse.move(box["x"] + box["width"] * 0.25, box["y"] + box["height"] * 0.25)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5, steps=4)
    page.mouse.up()
    shown(page).get_by_label("Undo").click()
    shown(page).get_by_label("Redo").click()
    wait_until(lambda: page.evaluate("JSON.parse(localStorage['flux2.mask'] || '{}').text || ''") != "")
    page.reload()
    page.wait_for_selector("nav a")
    canvas.wait_for()
    missing = shown(page).locator(".side > .error")
    wait_until(lambda: shown(page).locator("button.primary").click() or not missing.inner_text())  # the mask is decoded first
    finished(page)
    job = get("/api/v1/jobs?limit=1")["items"][0]
    check("a reload keeps the mask, and an inpainting job ran", job["kind"] == "inpaint" and job["state"] == "completed", job)
    a, b = pixels(page, source["url"]), pixels(page, job["images"][0]["url"])
    width, height = a["width"], a["height"]
    reach = 24  # grow and feather of the request's defaults, and a block of the autoencoder
    outside = [(x, y) for y in range(height) for x in range(width)
               if not (width * 0.25 - reach <= x <= width * 0.5 + reach and height * 0.25 - reach <= y <= height * 0.5 + reach)]
    same = all(a["data"][4 * (y * width + x):4 * (y * width + x) + 3] == b["data"][4 * (y * width + x):4 * (y * width + x) + 3] for x, y in outside)
    check("pixels outside the mask are equal", same and len(outside) > 1000)
    check("pixels inside the mask changed", a["data"] != b["data"])
    shown(page).locator(".actions").get_by_text("Compare").click()
    check("before and after can be compared", wait_until(lambda: page.locator("dialog .compare img").count() == 2))
    page.keyboard.press("Escape")
    shown(page).get_by_text("Next seed").click()
    check("the next seed is tried", wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["request"].get("seed") == job["images"][0]["seed"] + 1))
    wait_until(lambda: get("/api/v1/jobs?limit=1")["items"][0]["state"] == "completed")
    job = get("/api/v1/jobs?limit=1")["items"][0]
    shown(page).locator(f".stage img[src='{job['images'][0]['url']}']").wait_for()
    shown(page).get_by_text("Continue with this result").click()
    check("the result becomes the image to go on with", wait_until(lambda: json.loads(page.evaluate("localStorage['flux2.inpaint']"))["picture"]["url"] == job["images"][0]["url"]))
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    check("the mask can be painted by keyboard", shown(page).get_by_label("Undo").is_enabled())


def mask_tools(page):
    """The left half is blue, the right half red with a blue spot."""
    tab(page, "inpaint")
    blue, red = (20, 40, 200), (140, 40, 80)
    image = png(128, 128, lambda x, y: blue if x < 64 or (96 <= x < 104 and 96 <= y < 104) else red)
    shown(page).locator(".work input[type=file]").set_input_files([{"name": "halves.png", "mimeType": "image/png", "buffer": image}])
    canvas = shown(page).locator("canvas")
    wait_until(lambda: (draft(page, "inpaint").get("picture") or {}).get("width") == 128)
    at = lambda x, y: canvas.click(position={"x": canvas.bounding_box()["width"] * x / 128, "y": canvas.bounding_box()["height"] * y / 128})
    seen = lambda x, y: page.evaluate("([x, y]) => [...document.querySelector('main > :not([hidden]) canvas').getContext('2d').getImageData(x, y, 1, 1).data]", [x, y])

    clear = lambda: shown(page).get_by_text("Clear", exact=True).click()
    wait_until(lambda: clear() or (seen(20, 20)[:3] == list(blue) and seen(120, 20)[:3] == list(red)))  # the image is open

    def painted():
        text = draft(page, "mask").get("text")
        return page.evaluate("""async (url) => {
          const image = new Image(); image.src = url; await image.decode();
          const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight), context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
          return context.getImageData(0, 0, canvas.width, canvas.height).data.filter((v, i) => i % 4 === 3 && v > 0).length;
        }""", text) if text else 0

    becomes = lambda wanted: wait_until(lambda: painted() == wanted)  # the draft is written with a delay

    shown(page).get_by_label("Magic wand").click()
    at(20, 20)
    check("the wand takes the connected area of one colour", becomes(64 * 128), painted())
    shown(page).get_by_label("Undo").click()
    shown(page).get_by_label("Connected areas only").uncheck()
    at(20, 20)
    check("the wand takes a colour everywhere", becomes(64 * 128 + 64), painted())
    shown(page).get_by_label("Tolerance").fill("128")
    shown(page).get_by_label("Undo").click()
    canvas.focus()
    page.keyboard.press("Space")
    check("the wand works by keyboard, and its tolerance counts", becomes(128 * 128), painted())
    shown(page).get_by_text("Clear", exact=True).click()
    shown(page).get_by_label("Tolerance").fill("24")
    shown(page).get_by_label("Connected areas only").check()
    at(20, 20)
    for label in ("Grow", "Feather"):
        shown(page).get_by_label(label, exact=True).fill("0")
    check("without grow and feather nothing is tinted beside the mask", wait_until(lambda: seen(70, 50)[:3] == list(red)), seen(70, 50))
    shown(page).get_by_label("Grow", exact=True).fill("16")
    check("grow is shown around the mask", wait_until(lambda: seen(70, 50)[:3] != list(red) and seen(85, 50)[:3] == list(red)), seen(70, 50))
    shown(page).get_by_label("Feather", exact=True).fill("12")
    check("feather is shown as a soft edge", wait_until(lambda: seen(70, 50) != seen(80, 50) != seen(85, 50) and seen(120, 50)[:3] == list(red)), seen(85, 50))
    for label in ("Grow", "Feather"):
        shown(page).get_by_label(label, exact=True).fill("")

    width = lambda: canvas.bounding_box()["width"]
    before = width()
    canvas.hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -400)
    page.keyboard.up("Control")
    check("Ctrl and the wheel zoom in", wait_until(lambda: width() > before * 1.1), width())
    canvas.focus()
    for _ in range(6):
        page.keyboard.press("+")
    scroller = shown(page).locator(".scroller")
    place = lambda: scroller.evaluate("(e) => [e.scrollLeft, e.scrollTop]")
    here = place()
    page.keyboard.press("Control+ArrowRight")
    page.keyboard.press("Control+ArrowDown")
    check("the keyboard zooms and pans", width() > before * 2 and place()[0] > here[0] and place()[1] > here[1], [width(), here, place()])
    here = place()
    page.mouse.wheel(0, 60)
    check("the wheel pans", wait_until(lambda: place()[1] > here[1]), place())
    page.keyboard.press("0")
    check("0 fits the image", wait_until(lambda: abs(width() - before) < 2), width())
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 3
    fingers = page.context.new_cdp_session(page)
    touch = lambda kind, distance: fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [] if kind == "touchEnd" else [
        {"x": x - distance, "y": y, "id": 0}, {"x": x + distance, "y": y, "id": 1}]})
    becomes(64 * 128)
    area = painted()
    touch("touchStart", 30)
    for distance in range(30, 70, 5):
        touch("touchMove", distance)
    touch("touchEnd", 0)
    check("two fingers zoom and paint nothing", wait_until(lambda: width() > before * 1.5) and painted() == area, [width() / before, painted(), area])
    canvas.focus()
    page.keyboard.press("0")

    shown(page).get_by_text("Clear", exact=True).click()
    handle = shown(page).get_by_label("Extend to the right").bounding_box()
    page.mouse.move(handle["x"] + 12, handle["y"] + 24)
    page.mouse.down()
    page.mouse.move(handle["x"] + 12 + 48 * before / 128, handle["y"] + 24, steps=6)
    page.mouse.up()
    margins = lambda: draft(page, "inpaint").get("extend")
    check("the frame is dragged larger", wait_until(lambda: margins() == [0, 0, 48, 0]), margins())
    shown(page).get_by_label("Extend upwards").focus()
    page.keyboard.press("ArrowUp")
    check("the frame grows by keyboard", wait_until(lambda: margins() == [0, 16, 48, 0]), margins())
    page.reload()
    page.wait_for_selector("nav a")
    check("a reload keeps the frame", wait_until(lambda: page.evaluate("document.querySelector('canvas')?.width") == 176))
    shown(page).locator("[data-name=prompt]").fill("more of it")
    shown(page).locator("[data-name=steps]").fill("4")
    shown(page).locator("button.primary").click()
    finished(page)
    job = get("/api/v1/jobs?limit=1")["items"][0]
    made = pixels(page, job["images"][0]["url"])
    kept = made["data"][4 * (100 * made["width"] + 20):][:3]
    check("the image is extended, and the old part is kept", (made["width"], made["height"], tuple(kept)) == (176, 144, blue), [made["width"], made["height"], kept])
    shown(page).locator(".actions").get_by_text("Compare").click()
    sides = lambda: page.locator("dialog .compare img").evaluate_all("(all) => all.map((e) => [e.naturalWidth, e.naturalHeight])")
    check("before and after of an extended image have one size", wait_until(lambda: sides() == [[176, 144], [176, 144]]), sides())
    page.keyboard.press("Escape")


def gallery(page):
    tab(page, "gallery")
    cells = page.locator(".cell:has(img)")
    search = page.get_by_label("Search prompts")
    check("the gallery shows images", wait_until(lambda: cells.count() >= 5), cells.count())
    search.fill("yellow square")
    check("the search narrows", wait_until(lambda: cells.count() == 2), cells.count())  # the result, and that of the next seed
    cells.first.click()
    detail = page.locator("dialog .detail")
    check("the settings of an image are shown", wait_until(lambda: "a yellow square" in detail.inner_text() and "Steps" in detail.inner_text()), detail.inner_text())
    check("what it was made from is shown", wait_until(lambda: "Made from" in detail.inner_text()), detail.inner_text())
    with page.expect_download() as download:
        detail.get_by_text("Download", exact=True).click()
    check("an image is downloaded with its settings", b"yellow square" in pathlib.Path(download.value.path()).read_bytes())
    with page.expect_download() as download:
        detail.get_by_text("Download without settings").click()
    check("and without them", b"yellow square" not in pathlib.Path(download.value.path()).read_bytes())
    if not detail.count():
        cells.first.click()
    detail.get_by_text("Use these settings").click()
    check("its settings are used", wait_until(lambda: page.evaluate("location.hash") == "#generate" and shown(page).locator("[data-name=prompt]").input_value() == "a yellow square"))
    tab(page, "gallery")
    cells.first.click()
    page.keyboard.press("p")
    check("a key uses the prompt of an open image", wait_until(lambda: page.evaluate("location.hash") == "#generate" and page.locator("dialog").count() == 0))
    tab(page, "gallery")
    search.fill("waiting")
    wait_until(lambda: [c.startswith("waiting") for c in cells.evaluate_all("(all) => all.map((c) => c.ariaLabel)")] == [True, True])
    cells.nth(0).click(modifiers=["Control"])
    cells.nth(1).click(modifiers=["Control"])
    bar = page.locator(".gallery-tab > .toolbar")
    check("images are selected", wait_until(lambda: "2 selected" in bar.inner_text()), bar.inner_text())
    bar.get_by_text("Compare").click()
    check("two images are compared", wait_until(lambda: page.locator("dialog .compare img").count() == 2))
    page.get_by_label("Slide between before and after").fill("20")
    check("the slider moves between them", "80%" in page.locator("dialog .compare img").nth(1).get_attribute("style"))
    page.keyboard.press("Escape")
    bar.get_by_text("Favourite", exact=True).click()
    check("favourites are marked", wait_until(lambda: page.locator(".cell .star").count() == 2))
    bar.get_by_text("Add tags").click()
    page.locator("dialog input").fill("night, patience")
    page.keyboard.press("Enter")
    check("tags are stored", wait_until(lambda: {i["tag"] for i in get("/api/v1/tags?project=default")["items"]} >= {"night", "patience"}))
    bar.get_by_text("Move to a board").click()
    page.get_by_label("Or a new one").fill("Queue tests")
    page.keyboard.press("Enter")
    check("a board is made and used", wait_until(lambda: [b["images"] for b in get("/api/v1/projects/default/boards")["items"] if b["name"] == "Queue tests"] == [2]))
    search.fill("patience")
    check("tags are searched", wait_until(lambda: cells.count() == 2), cells.count())
    search.fill("")
    page.get_by_label("Favourites only").click()
    check("favourites are filtered", wait_until(lambda: cells.count() == 2), cells.count())
    page.get_by_label("Favourites only").click()
    page.get_by_text("Filters", exact=True).click()
    page.get_by_label("Board", exact=True).select_option(label="Queue tests (2)")
    check("a board is filtered", wait_until(lambda: cells.count() == 2), cells.count())
    page.get_by_label("Board", exact=True).select_option("")
    page.get_by_text("Filters", exact=True).click()
    search.fill("waiting")
    wait_until(lambda: cells.count() == 2)
    cells.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    check("the keyboard moves and opens", wait_until(lambda: detail.is_visible()))
    page.keyboard.press("Delete")
    check("an image is deleted", wait_until(lambda: cells.count() == 1), cells.count())
    page.keyboard.press("Escape")
    page.get_by_text("Undo", exact=True).click()
    check("and comes back with Undo", wait_until(lambda: cells.count() == 2), cells.count())
    cells.first.click(modifiers=["Control"])
    bar.get_by_text("Delete", exact=True).click()
    wait_until(lambda: cells.count() == 1)
    page.get_by_label("Trash", exact=True).click()
    check("it is in the trash", wait_until(lambda: cells.count() == 1 and "Empty the trash" in bar.inner_text()), bar.inner_text())
    bar.get_by_text("Empty the trash").click()
    page.locator("dialog .primary").click()
    check("the trash is emptied", wait_until(lambda: get("/api/v1/assets?trash=1")["total"] == 0))
    page.get_by_label("Trash", exact=True).click()
    search.fill("")


def training(page):
    page_training.training(page, Api(URL))


def training_stop(page):
    page_training.stop(page, Api(URL))


def model_details(page):
    page_models.details(page, Api(URL), arguments.data)


def shots(page):
    page_shots.shots(page, Api(URL))


def dialogs(browser):
    page_dialogs.dialogs(browser, arguments.program, SHOTS)


def elements(page):
    page_studio.elements(page, Api(URL))


def archives(page):
    page_studio.archives(page, Api(URL))


def projects(page):
    tab(page, "generate")
    top = page.get_by_label("Project", exact=True)
    top.select_option("+")
    page.locator("dialog").get_by_label("Name").fill("Comic")
    page.keyboard.press("Enter")
    check("a project is made and chosen", wait_until(lambda: top.locator("option:checked").inner_text() == "Comic"))
    page.get_by_label("Project settings").click()
    page.get_by_label("Style, added to every prompt").fill("ink drawing")
    page.get_by_label("Style, added to every prompt").press("Tab")
    project = draft(page, "project")["id"]
    check("its style is stored", wait_until(lambda: get(f"/api/v1/projects/{project}")["style_prompt"] == "ink drawing"))
    page.keyboard.press("Escape")
    shown(page).locator("[data-name=prompt]").fill("a tower")
    shown(page).locator("[data-name=steps]").fill("2")
    shown(page).locator("button.primary").click()
    check("its images belong to it", wait_until(lambda: [a["prompt"].startswith("a tower") for a in get(f"/api/v1/assets?project={project}")["items"]] == [True]),
          get(f"/api/v1/assets?project={project}")["items"])
    tab(page, "gallery")
    check("the gallery shows the project", wait_until(lambda: page.locator(".cell:has(img)").count() == 1), page.locator(".cell").count())
    top.select_option("default")
    check("and another one", wait_until(lambda: page.locator(".cell:has(img)").count() > 1), page.locator(".cell").count())
    top.select_option(project)
    page.get_by_label("Project settings").click()
    page.get_by_text("Delete the project").click()
    page.get_by_text("Delete, keep the images").click()
    check("a project is deleted", wait_until(lambda: top.locator("option:checked").inner_text() == "Default"))


def tabs(page):
    return page.eval_on_selector_all("nav a", "(all) => all.map((a) => a.hash.slice(1))")


def looks(browser):
    axe = Axe()
    for scheme in ("light", "dark"):
        for size in ((1280, 800), (360, 740)):
            page = open_page(browser, *size, color_scheme=scheme)
            for name in tabs(page):  # each reads what it shows when it is opened first
                tab(page, name)
            for name in tabs(page):
                tab(page, name)
                if SHOTS:
                    page.screenshot(path=str(SHOTS / f"{name}-{scheme}-{'wide' if size[0] > 600 else 'phone'}.png"))
                too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
                found = [v for v in axe.run(page).response["violations"] if v["impact"] in ("serious", "critical")]
                check(f"{name}, {scheme}, {size[0]} px: accessible, nothing overflows", not found and not too_wide,
                      [(v["id"], [n["html"][:80] for n in v["nodes"]][:3]) for v in found] or "too wide")
            page.context.close()
    for size, locale in (((3840, 2160), "en-US"), ((360, 740), "de-DE")):
        page = open_page(browser, *size, locale=locale)
        wide = []
        for name in tabs(page):
            tab(page, name)
            if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                wide.append(name)
        check(f"{size[0]} px, {locale}: nothing overflows", not wide, wide)
        page.context.close()


def weight(browser):
    page_resilience.policy(Api(URL))
    page = open_page(browser)
    for name in tabs(page):
        tab(page, name)
    files = page.evaluate("performance.getEntriesByType('resource').filter((e) => e.name.includes('/ui/')).map((e) => e.encodedBodySize)")
    check(f"the page is less than 400 KB ({sum(files) / 1000:.0f} KB in {len(files)} files)", 0 < sum(files) < 400_000)
    page.context.close()
    paints, plain = [], []
    while len(paints) < 5 and (not paints or min(paints) >= 300):  # other programs on the machine may disturb one of them
        page = open_page(browser)
        paints.append(page_support.first_paint(page))
        page.context.close()
        plain.append(page_support.plain_paint(browser, URL))
    check(f"the first paint takes less than 300 ms ({min(paints):.0f} ms; one word: {min(plain):.0f} ms)", min(paints) < max(300, 3 * min(plain)), [paints, plain])


def keyboard_only(browser):
    page = open_page(browser)
    at = lambda: page.evaluate("document.activeElement.dataset.name || document.activeElement.className || document.activeElement.tagName")

    def reach(selector, most=80):
        for _ in range(most):
            page.keyboard.press("Tab")
            if page.evaluate("(s) => document.activeElement.matches(s)", selector):
                return True
        return False

    page.keyboard.press("Tab")
    check("the first stop is the skip link", at() == "skip", at())
    page.keyboard.press("Enter")
    check("Tab reaches the prompt", reach("[data-name=prompt]"), at())
    page.keyboard.type("a green triangle")
    reach("[data-name=steps]")
    page.keyboard.type("4")
    page.keyboard.press("Control+Enter")
    finished(page)
    check("an image is made by keyboard", True)
    page.locator(".actions").get_by_text("Inpaint", exact=True).wait_for()
    check("Tab reaches what can be done with it", reach(".actions button"), at())
    for _ in range(10):
        if page.evaluate("document.activeElement.textContent") == "Inpaint":
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    shown(page).locator("canvas").wait_for()
    check("Tab reaches the canvas", reach("canvas"), at())
    page.keyboard.press("Space")
    shown(page).locator("[data-name=prompt]").focus()
    page.keyboard.type("a dot")
    reach("[data-name=steps]")
    page.keyboard.type("4")
    page.keyboard.press("Control+Enter")
    finished(page)
    check("a part is regenerated by keyboard", get("/api/v1/jobs?limit=1")["items"][0]["kind"] == "inpaint")
    page.locator("main").focus()
    page.keyboard.press("?")
    check("? shows the shortcuts", wait_until(lambda: page.locator("dialog kbd").count() > 5))
    page.keyboard.press("Escape")
    page.keyboard.press("Shift+Q")
    check("Shift+Q shows the queue", wait_until(lambda: page.locator("#queue").is_visible()))
    page.context.close()


def connection(browser):
    page = open_page(browser)
    expected = len(problems)
    page.route("**/api/v1/events*", lambda route: route.abort())
    page.reload()
    banner = page.locator(".banner")
    check("a lost connection is said", wait_until(lambda: banner.is_visible()))
    shown(page).locator("[data-name=prompt]").fill("typed while away")
    page.unroute("**/api/v1/events*")
    check("it comes back by itself", wait_until(lambda: not banner.is_visible(), 30))
    check("what was typed is there", shown(page).locator("[data-name=prompt]").input_value() == "typed while away")
    del problems[expected:]  # the failed requests of this step
    page.context.close()


def two_windows(page):
    """Two people, and two windows of one person."""
    other = open_page(page.context.browser)
    tab(page, "generate")
    fill(page, prompt="seen by both", steps=200, width=320, height=320)
    shown(page).locator("button.primary").click()
    other.click("#queue-button")
    row = other.locator("#queue li", has_text="seen by both")
    check("another window sees the job", wait_until(lambda: row.count() == 1))
    check("and its progress", wait_until(lambda: float(row.get_by_role("progressbar").get_attribute("value") or 0) > 0))
    row.get_by_label("Cancel").click()
    check("what one window cancels, the other shows", wait_until(lambda: "Cancelled" in shown(page).locator(".status").inner_text()), shown(page).locator(".status").inner_text())
    check("the queue offers to try again", wait_until(lambda: row.get_by_label("Try again").count() == 1))
    row.get_by_label("Try again").click()
    check("a job is tried again", wait_until(lambda: get("/api/v1/jobs?state=running")["items"] != []))
    other.locator("#queue li", has_text="seen by both").first.get_by_label("Cancel").click()
    wait_until(lambda: get("/api/v1/jobs?state=running")["items"] == [])
    second = page_support.open_window(page.context, URL)
    tab(second, "gallery")
    tab(page, "gallery")
    page.locator(".cell:has(img)").first.click(modifiers=["Control"])
    page.locator(".gallery-tab > .toolbar").get_by_text("Favourite", exact=True).click()
    check("what one window marks, the other shows", wait_until(lambda: second.locator(".cell").first.locator(".star").count() == 1))
    page.locator(".gallery-tab > .toolbar").get_by_text("Delete", exact=True).click()
    check("what one window deletes, leaves the other", wait_until(lambda: second.locator(".cell:has(img)").first.locator(".star").count() == 0))
    page.get_by_text("Undo", exact=True).click()
    check("and Undo brings it back, in both", wait_until(lambda: all(w.locator(".cell:has(img)").first.locator(".star").count() == 1 for w in (page, second))))
    second.close()
    other.context.close()
    tab(page, "generate")
    fill(page, steps=4, width="", height="")


def language(browser):
    texts = {name: json.loads((page_support.REPOSITORY / "webui" / "lang" / f"{name}.json").read_text()) for name in ("en", "de")}
    places = lambda text: sorted(re.findall(r"\{(\w+)\}", text))
    differing = sorted(set(texts["en"]) ^ set(texts["de"])) + [k for k in texts["en"] if places(texts["en"][k]) != places(texts["de"].get(k, ""))]
    check(f"both languages have the same {len(texts['en'])} texts with the same places", not differing, differing)
    code = "".join(path.read_text() for path in (page_support.REPOSITORY / "webui").rglob("*.js"))
    used = set(re.findall(r"\bt\(\"([\w.]+)\"", code))
    check("every text that the page uses exists", used and used <= set(texts["en"]), sorted(used - set(texts["en"])))
    made = [re.escape(text).replace("ANY", ".+") for text in (re.sub(r"\$\{[^}]*\}", "ANY", part) for part in re.findall(r"\bt\(`([^`]*)`", code)) if text.count("ANY") < 2]
    unused = [k for k in texts["en"] if f'"{k}"' not in code and f'"{k.split(".")[0]}"' not in code and not any(re.fullmatch(m, k) for m in made)]
    check("no text is left over", not unused, unused)
    words = lambda text: re.sub(r"\{\w+\}|[^\w]", "", text)
    same = [k for k in texts["en"] if texts["en"][k] == texts["de"][k] and len(words(texts["en"][k])) > 12]
    check("no long text is left in English", not same, same)
    page = open_page(browser, locale="de-DE")
    check("the page speaks German", page.locator("nav a").first.inner_text() == "Erzeugen")
    page.context.close()


def locked_server(browser):
    page = browser.new_context().new_page()
    page.goto(arguments.locked)
    page.locator("dialog input[type=password]").fill("not the key")
    page.keyboard.press("Enter")
    check("a wrong key is refused in words", wait_until(lambda: "key" in page.locator("dialog .error").inner_text().lower()))
    page.locator("dialog input[type=password]").fill("a key of this test")
    page.get_by_text("Sign in").click()
    shown(page).locator("[data-name=prompt]").fill("a red circle")
    shown(page).locator("[data-name=steps]").fill("2")
    shown(page).locator("button.primary").click()
    finished(page)
    check("the right key opens the page, and an image is shown", wait_until(lambda: page.evaluate("document.querySelector('.stage img').naturalWidth") > 0))
    page.reload()
    check("the key is asked for once", wait_until(lambda: page.locator("nav a").count() > 0) and page.locator("dialog").count() == 0)
    page.context.close()


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
    page = None
    alone = {keyboard_only, connection, weight, language, looks, dialogs, locked_server}  # they open pages of their own
    own_server = {page_races.late_answers, page_models.installing, page_models.upkeep, page_studio.masks, page_shots.rewriting, page_resilience.new_person, page_resilience.many_generations, page_resilience.many_images}
    steps = [first_image, sizes_and_batches, regions, image_prompts, prompt_tools, grid, queue, cancelling, editing, inpainting, mask_tools, gallery, training, model_details, training_stop, projects, elements, archives, shots, two_windows,
             keyboard_only, connection, page_races.late_answers, page_resilience.new_person, page_models.installing, page_models.upkeep, page_studio.masks, page_shots.rewriting, page_resilience.many_images, page_resilience.many_generations, weight, language, looks, dialogs, locked_server]
    # Steps that need what not every build has.
    needs = {elements: "/api/v1/resolve", shots: "/api/v1/shots/{id}", dialogs: "/api/v1/shots/{id}", archives: "/api/v1/projects/import", page_studio.masks: "/api/v1/mask/text"}
    paths = get("/api/v1/openapi.json")["paths"]
    for step in steps:
        if step in needs and needs[step] not in paths:
            print(f"       {step.__name__}: this server does not answer {needs[step]}")
            continue
        if arguments.only and step.__name__ not in arguments.only.split(",") or step is locked_server and not arguments.locked:
            continue
        started = time.time()
        try:
            if step is first_image:
                page = first_image(browser)
            elif step in own_server:
                step(browser, arguments.program)
            elif step in alone:
                step(browser)
            else:
                page = page or open_page(browser)
                step(page)
        except Exception as error:  # the other steps are tried as well, with a new page
            traceback.print_exc(limit=-3)
            check(f"{step.__name__} comes to its end", False, str(error).splitlines()[0])
            page = None
        print(f"       {step.__name__}: {time.time() - started:.1f} s", flush=True)
    check("no error in the console, no request to another machine", not problems, problems[:5])
    browser.close()
print(f"{page_support.passed} passed, {page_support.failed} failed")
sys.exit(page_support.failed > 0)
