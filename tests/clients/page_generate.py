"""Checks of the tab Generate: settings, prompts, grids, the queue."""
from page_support import check, draft, file_of, finished, first_paint, open_page, png, problems, reload, shown, tab, wait_until


def first_image(browser, api):
    page = open_page(browser, api.url)
    check("the page paints", first_paint(page) > 0)
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
    job = api.get("/api/v1/jobs?limit=1")["items"][0]
    check("the job has the settings of the form", job["request"]["seed"] == 7 and job["request"]["prompt"].startswith("a red circle"))
    check("the seed is shown", wait_until(lambda: "7" in shown(page).locator(".status").inner_text()))
    page.reload()
    page.wait_for_selector("nav a")
    check("a reload keeps what was typed", shown(page).locator("[data-name=prompt]").input_value() == "a red circle on a blue background")
    return page


def sizes_and_batches(page, api):
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


def regions(page, api):
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
    check("a region that is not complete is left out", "regions" not in api.get("/api/v1/jobs?limit=1")["items"][0]["request"])
    region.get_by_label("Height", exact=True).fill("128")
    shown(page).locator("button.primary").click()
    sent = [{"prompt": "a red circle", "box": [0, 0, 64, 128]}]
    check("the request has the region", wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["request"].get("regions") == sent))
    finished(page)
    reload(page)
    check("a reload keeps the region", shown(page).locator(".regions textarea").input_value() == "a red circle")
    shown(page).get_by_text("Advanced", exact=True).click()
    shown(page).get_by_label("Remove region 1").click()
    check("a region can be removed", shown(page).locator(".regions fieldset").count() == 0)
    shown(page).get_by_text("Advanced", exact=True).click()


def image_prompts(page, api):
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
    forecast = shown(page).locator(".forecast")
    check("the forecast says what is missing as well", wait_until(lambda: "adapter" in forecast.inner_text()), forecast.inner_text())
    prompts.get_by_label("Remove image prompt 1").click()
    check("an image prompt can be removed", prompts.locator(".image-prompts img").count() == 0)
    wait_until(lambda: "memory" in forecast.inner_text())
    del problems[expected:]  # the refused requests
    detail = shown(page).get_by_role("group", name="Detail pass")
    detail.get_by_label("Rectangles").fill("0,0,64,64 64,64,32,32")
    shown(page).locator("button.primary").click()
    sent = ["0,0,64,64", "64,64,32,32"]
    check("the request has the rectangles of the detail pass", wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["request"].get("detail_box") == sent))
    finished(page)
    detail.get_by_label("Rectangles").fill("")
    shown(page).get_by_text("Advanced", exact=True).click()


def prompt_tools(page, api):
    tab(page, "generate")
    prompt = shown(page).locator("[data-name=prompt]")
    prompt.fill("an old barn")
    shown(page).locator("[data-name=template]").select_option("watercolor")
    preview = shown(page).locator(".preview-text")
    check("the prompt inside a template is shown", "an old barn" in preview.inner_text() and "watercolor" in preview.inner_text(), preview.inner_text())
    shown(page).locator("[data-name=steps]").fill("")
    shown(page).locator("[data-name=preset]").select_option("draft")
    shown(page).locator("button.primary").click()
    check("template and preset go to the server", wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["request"].get("style") == "watercolor"))
    wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["state"] == "completed")
    job = api.get("/api/v1/jobs?limit=1")["items"][0]
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
    check("an own template goes to the server", wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["request"]["prompt"] == 'a cat in "quotes"'))
    check("with its negative prompt", api.get("/api/v1/jobs?limit=1")["items"][0]["request"].get("negative") == "blurry")
    shown(page).locator("[data-name=template]").select_option("")
    shown(page).locator("[data-name=preset]").select_option("")
    shown(page).get_by_role("button", name="History").click()
    page.get_by_label("Search earlier prompts").fill("barn")
    page.locator("dialog .choices button").first.click()
    check("an earlier prompt is found", wait_until(lambda: "old barn" in prompt.input_value()), prompt.input_value())


def grid(page, api):
    tab(page, "generate")
    shown(page).locator("[data-name=prompt]").fill("a red house")
    shown(page).get_by_text("Grid of two settings").click()
    shown(page).get_by_label("Across", exact=True).select_option("steps")
    shown(page).get_by_label("Values across").fill("1, 2")
    shown(page).get_by_label("Down", exact=True).select_option("prompt")
    last = api.last_job()["id"]
    problem = shown(page).locator("details .error")
    for label, value, said in (("across", "1; 2", '"1; 2" is not a number'), ("down", "green, blue", 'does not contain "green"')):
        shown(page).get_by_label("Values down").fill("red")
        shown(page).get_by_label("Values " + label).fill(value)
        shown(page).get_by_text("Generate the grid").click()
        check(f"a grid with the values {value} is refused", wait_until(lambda: said in problem.inner_text(), 10) and api.last_job()["id"] == last, problem.inner_text())
        shown(page).get_by_label("Values across").fill("1, 2")
    shown(page).get_by_label("Values down").fill("red, blue")
    shown(page).get_by_text("Generate the grid").click()
    images = shown(page).locator(".xy img")
    check("a grid of two settings is made", wait_until(lambda: images.count() == 4), images.count())
    jobs = api.get("/api/v1/jobs?limit=4")["items"]
    check("each image has its pair of values", {(j["request"]["steps"], j["request"]["prompt"]) for j in jobs} == {(s, f"a {c} house") for s in (1, 2) for c in ("red", "blue")}
          and len({j["request"]["seed"] for j in jobs}) == 1, [j["request"] for j in jobs])
    page.reload()
    page.wait_for_selector("nav a")
    check("a reload keeps the grid", wait_until(lambda: images.count() == 4), images.count())
    shown(page).locator(".xy button").click()


def queue(page, api):
    api.send("/api/v1/queue/pause", {})
    for n in range(3):
        shown(page).locator("[data-name=prompt]").fill(f"waiting {n}")
        shown(page).locator("button.primary").click()
        wait_until(lambda: len(api.get("/api/v1/queue")["order"]) == n + 1)
    page.click("#queue-button")
    rows = page.locator("#queue li", has_text="waiting")
    check("waiting jobs are listed", wait_until(lambda: rows.count() == 3), rows.count())
    before = api.get("/api/v1/queue")["order"]
    rows.nth(2).get_by_label("Sooner").click()
    check("a job moves up", wait_until(lambda: api.get("/api/v1/queue")["order"] == [before[0], before[2], before[1]]))
    rows.nth(0).get_by_label("Cancel").click()
    check("a job is cancelled", wait_until(lambda: api.get(f"/api/v1/jobs/{before[0]}")["state"] == "cancelled"))
    check("the count is shown", wait_until(lambda: page.locator("#queue-button .count").inner_text() == "2"))
    page.get_by_text("Resume", exact=True).click()
    check("the queue goes on", wait_until(lambda: not api.get("/api/v1/queue")["order"], 60))
    wait_until(lambda: all(api.get(f"/api/v1/jobs/{id}")["state"] == "completed" for id in before[1:]), 60)
    page.click("#queue-button")


def cancelling(page, api):
    shown(page).locator("[data-name=steps]").fill("200")
    shown(page).locator("[data-name=prompt]").fill("a long one")
    shown(page).locator("button.primary").click()
    shown(page).locator(".status").get_by_text("Cancel").wait_for()
    page.locator("main").focus()
    page.keyboard.press("Shift+X")
    check("Shift+X cancels", wait_until(lambda: api.get("/api/v1/jobs?limit=1")["items"][0]["state"] == "cancelled"))
    shown(page).locator("[data-name=steps]").fill("4")
