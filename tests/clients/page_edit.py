"""Checks of the tabs Edit and Inpaint."""
import base64, json

from page_support import check, draft, file_of, finished, open_page, pixels, png, problems, reload, settle, shown, tab, wait_until


def inputs(browser, api):
    """What is not taken is said."""
    page = open_page(browser, api.url)
    tab(page, "edit")
    chooser, toasts = shown(page).locator("input[type=file]").first, page.locator("#toasts")
    chooser.set_input_files([file_of("notes.txt", b"no image", "text/plain")])
    check("a file that is no image is refused in words", wait_until(lambda: "notes.txt is not an image" in toasts.inner_text(), 10), toasts.inner_text())
    chooser.set_input_files([file_of("notes.txt", b"no image", "text/plain")])
    settle(page)
    check("the same message is shown once", toasts.inner_text().count("notes.txt") == 1, toasts.inner_text())
    expected = len(problems)
    chooser.set_input_files([file_of("broken.png", b"no image")])
    check("an image that the server refuses is named", wait_until(lambda: "broken.png:" in toasts.inner_text(), 10), toasts.inner_text())
    del problems[expected:]  # the answer 400
    most = api.get("/api/v1/info")["limits"]["references"]
    chooser.set_input_files([file_of("a.png", png(64, 64, lambda x, y: (0, 0, 255)))] * (most + 1))
    check("and images beyond the limit are", wait_until(lambda: f"At most {most} images" in toasts.inner_text(), 30) and shown(page).locator(".references li").count() == most,
          toasts.inner_text())
    page.context.close()


def editing(page, api):
    tab(page, "edit")
    shown(page).locator("[data-name=prompt]").fill("make it green")
    shown(page).locator("button.primary").click()
    check("editing needs an image", "image" in shown(page).locator(".error").first.inner_text())
    known = len(problems)
    settle(page, 900)  # the page waits until nobody types
    check("without an image no forecast is asked for", shown(page).locator(".forecast").inner_text() == "" and len(problems) == known, problems[known:])
    image = api.bytes(api.get("/api/v1/jobs?state=completed&limit=1")["items"][0]["images"][0]["url"])
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
    job = api.get("/api/v1/jobs?limit=1")["items"][0]
    check("strength goes to the server", job["request"].get("strength") == 0.8, job["request"])
    check("the edit used both images", job["kind"] == "edit" and len(job["request"]["references"]) == 2, job["request"])


def inpainting(page, api):
    tab(page, "generate")
    shown(page).locator("[data-name=prompt]").fill("a blue background")
    shown(page).locator("button.primary").click()
    wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["state"] == "completed", 60)
    shown(page).locator(".actions").get_by_text("Inpaint", exact=True).click()
    canvas = shown(page).locator("canvas")
    canvas.wait_for()
    source = api.get("/api/v1/jobs?limit=1")["items"][0]["images"][0]
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
    job = api.get("/api/v1/jobs?limit=1")["items"][0]
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
    check("the next seed is tried", wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["request"].get("seed") == job["images"][0]["seed"] + 1))
    wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["state"] == "completed")
    job = api.get("/api/v1/jobs?limit=1")["items"][0]
    shown(page).locator(f".stage img[src='{job['images'][0]['url']}']").wait_for()
    shown(page).get_by_text("Continue with this result").click()
    check("the result becomes the image to go on with", wait_until(lambda: json.loads(page.evaluate("localStorage['flux2.inpaint']"))["picture"]["url"] == job["images"][0]["url"]))
    canvas.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    check("the mask can be painted by keyboard", shown(page).get_by_label("Undo").is_enabled())


def mask_tools(page, api):
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
    job = api.get("/api/v1/jobs?limit=1")["items"][0]
    made = pixels(page, job["images"][0]["url"])
    kept = made["data"][4 * (100 * made["width"] + 20):][:3]
    check("the image is extended, and the old part is kept", (made["width"], made["height"], tuple(kept)) == (176, 144, blue), [made["width"], made["height"], kept])
    shown(page).locator(".actions").get_by_text("Compare").click()
    sides = lambda: page.locator("dialog .compare img").evaluate_all("(all) => all.map((e) => [e.naturalWidth, e.naturalHeight])")
    check("before and after of an extended image have one size", wait_until(lambda: sides() == [[176, 144], [176, 144]]), sides())
    page.keyboard.press("Escape")
