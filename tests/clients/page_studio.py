"""Checks of elements, of projects as files, and of the mask service."""
import http.server, io, json, pathlib, threading, zipfile

from page_support import Server, check, draft, file_of, fill, new_project, open_page, pixels, png, problems, shown, tab, wait_until


def new_element(page, name, kind, description):
    page.get_by_role("button", name="New element").click()  # waits until a dialog that is closing is gone
    dialog = page.locator("dialog")
    dialog.get_by_label("Name").fill(name)
    dialog.get_by_label("Type").select_option(kind)
    dialog.get_by_label("Description").fill(description)
    dialog.get_by_text("Create", exact=True).click()


def elements(page, api):
    tab(page, "elements")
    check("the tab says what elements are for", "look the same" in shown(page).inner_text())
    new_element(page, "Nova", "character", "a tall woman in a red coat")
    dialog = page.locator("dialog")
    check("an element is made with its trigger", wait_until(lambda: dialog.get_by_label("Trigger").count() == 1 and dialog.get_by_label("Trigger").input_value() == "@Nova"))
    one = lambda: api.get("/api/v1/projects/default/elements")["items"][0]
    dialog.locator("input[type=file]").set_input_files([file_of("a.png", png(64, 64, lambda x, y: (200, 4 * y, 0))), file_of("b.png", png(64, 64, lambda x, y: (0, 4 * y, 200)))])
    check("it gets images", wait_until(lambda: dialog.locator(".references li").count() == 2 and len(one()["images"]) == 2), one())
    first = one()["images"]
    dialog.get_by_label("Move image 2 up").click()
    check("another image becomes the main one", wait_until(lambda: one()["images"] == first[::-1]), one())
    page.keyboard.press("Escape")
    card = shown(page).locator(".card", has_text="Nova")
    check("its card shows trigger and image", wait_until(lambda: "@Nova" in card.inner_text() and card.locator("img").count() == 1))
    expected = len(problems)
    new_element(page, "Nova", "object", "")
    check("a trigger that is taken is said in the dialog, which keeps what was typed", wait_until(lambda: "@Nova" in dialog.locator("form [role=alert]").inner_text())
          and dialog.get_by_label("Name").input_value() == "Nova" and dialog.get_by_label("Type").input_value() == "object", dialog.inner_text())
    del problems[expected:]  # the answer 409
    page.keyboard.press("Escape")
    new_element(page, "Old Mill", "location", "a mill beside a river")
    dialog.get_by_label("Trigger").wait_for()
    page.keyboard.press("Escape")
    check("elements are grouped by their type", wait_until(lambda: shown(page).locator("h2").all_inner_texts() == ["Character", "Place"]), shown(page).locator("h2").all_inner_texts())

    tab(page, "generate")
    prompt = shown(page).locator("[data-name=prompt]")
    prompt.fill("portrait of ")
    prompt.press_sequentially("@no")
    choices = shown(page).locator(".completion li")
    check("@ offers the element with its image", wait_until(lambda: choices.count() >= 1 and "@Nova" in choices.first.inner_text() and choices.first.locator("img").count() == 1))
    prompt.press("Enter")
    check("the trigger is completed", prompt.input_value() == "portrait of @Nova ", prompt.input_value())
    report = shown(page).locator(".resolution")
    check("what becomes of the prompt is shown", wait_until(lambda: report.is_visible() and "a tall woman in a red coat" in report.inner_text() and report.locator("img").count() == 1))
    fill(page, steps=2, width=64, height=64)
    shown(page).locator("button.primary").click()
    check("the trigger goes to the server", wait_until(lambda: ((api.last_job() or {}).get("request") or {}).get("prompt", "").startswith("portrait of @Nova")))
    check("the image is made with description and reference", wait_until(lambda: api.last_job()["state"] == "completed") and "a tall woman in a red coat" in api.last_job()["resolved"]["prompt"]
          and len(api.last_job()["resolution"]["references"]) == 1, api.last_job())
    fill(page, steps=4, width="", height="")
    prompt.fill("")

    tab(page, "elements")
    shown(page).get_by_label("Edit Nova").click()
    dialog.get_by_text("Generate an image of it").click()
    check("an image of it is generated and added, and the open dialog shows it", wait_until(lambda: dialog.locator(".references li").count() == 3, 60), one())
    dialog.get_by_label("Remove image 3").click()
    check("an image is taken away", wait_until(lambda: len(one()["images"]) == 2))
    page.keyboard.press("Escape")
    shown(page).get_by_label("Edit Old Mill").click()
    dialog.get_by_text("Delete the element").click()
    page.locator("dialog .primary").last.click()
    check("an element is deleted", wait_until(lambda: shown(page).locator(".card").count() == 1 and page.locator("dialog").count() == 0))


def archives(page, api):
    """The project that is shown is written to a file and read back under a new id."""
    top = page.get_by_label("Project", exact=True)
    project = new_project(page, "Film")
    tab(page, "elements")
    new_element(page, "Robot", "object", "a small robot")
    page.locator("dialog").get_by_label("Trigger").wait_for()
    page.keyboard.press("Escape")
    tab(page, "generate")
    fill(page, prompt="@Robot in the rain", steps=2)
    shown(page).locator("button.primary").click()
    wait_until(lambda: api.get(f"/api/v1/assets?project={project}")["total"] == 1)
    page.get_by_label("Project settings").click()
    with page.expect_download() as download:
        page.get_by_text("Export as zip").click()
    data = pathlib.Path(download.value.path()).read_bytes()
    names = zipfile.ZipFile(io.BytesIO(data)).namelist()
    check("a project is exported as a zip with its images", any(n.endswith(".png") for n in names) and any(n.endswith(".json") for n in names), names)
    expected = len(problems)
    page.get_by_label("Import a zip").set_input_files([file_of("x.zip", b"not a zip", "application/zip")])
    check("another file is refused in words", wait_until(lambda: page.locator("#toasts .error").count() == 1), page.locator("#toasts").inner_text())
    del problems[expected:]  # the answer 400
    page.get_by_label("Import a zip").set_input_files([file_of("Film.zip", data, "application/zip")])
    check("an imported project is chosen", wait_until(lambda: draft(page, "project")["id"] not in (project, "default") and page.locator("dialog").count() == 0), draft(page, "project"))
    copy = draft(page, "project")["id"]
    of = lambda what, id: api.get(f"/api/v1/{what.format(id)}")["items"]
    check("it has the same images and elements", [a["sha256"] for a in of("assets?project={}", copy)] == [a["sha256"] for a in of("assets?project={}", project)]
          and [e["trigger"] for e in of("projects/{}/elements", copy)] == ["@Robot"], of("projects/{}/elements", copy))
    top.select_option("default")
    fill(page, prompt="@Robot in the rain")
    check("an element of another project is suggested and not used", wait_until(lambda: "Film" in shown(page).locator(".resolution").inner_text()), shown(page).locator(".resolution").inner_text())
    fill(page, prompt="", steps=4)


def masks(browser, program):
    """A mask service that comes late, finds things by words and by a click, and goes again."""
    service = FakeMasks()
    try:
        with Server(program, "--sam-url", service.url) as server:
            service.is_away = True
            page = open_page(browser, server.url)
            tab(page, "inpaint")
            shown(page).locator(".work input[type=file]").set_input_files([file_of("a.png", png(64, 64, lambda x, y: (x, y, 90)))])
            words = shown(page).get_by_label("Select by words")
            check("a mask service that is offline is said in words", wait_until(lambda: "offline" in shown(page).locator(".finder").inner_text()) and words.is_disabled()
                  and shown(page).get_by_label("Select by a click").is_disabled(), shown(page).locator(".finder").inner_text())
            service.is_away = False
            tab(page, "generate")
            tab(page, "inpaint")
            check("it can be used when it is there", wait_until(lambda: words.is_enabled()))
            painted = lambda: sum(v > 0 for v in pixels(page, draft(page, "mask")["text"])["data"][3::4]) if draft(page, "mask").get("text") else 0
            words.fill("the left half")
            words.press("Enter")
            check("words select", wait_until(lambda: painted() == 32 * 64), painted())
            check("the service gets words and image", service.asked[-1][0] == "/segment/text" and b"the left half" in service.asked[-1][1])
            shown(page).get_by_text("Clear", exact=True).click()
            wait_until(lambda: painted() == 0)
            shown(page).get_by_label("Select by a click").click()
            shown(page).locator("canvas").click()
            check("a click selects", wait_until(lambda: painted() == 32 * 64) and service.asked[-1][0] == "/predict/mask", painted())
            shown(page).get_by_label("Undo").click()
            check("that can be undone", wait_until(lambda: painted() == 0), painted())
            expected = len(problems)
            service.is_away = True
            words.fill("anything")
            words.press("Enter")
            check("a service that has gone is said in words", wait_until(lambda: "mask service" in page.locator("#toasts").inner_text() and words.is_disabled()), page.locator("#toasts").inner_text())
            del problems[expected:]  # the answer 424 of this call
            page.context.close()
    finally:
        service.close()


class FakeMasks:
    """A mask service that finds the left half of every image."""

    def __init__(self):
        self.asked = []
        self.is_away = False
        masks = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                if masks.is_away:
                    return self.send_error(503)
                self.answer(json.dumps({"status": "running", "model_loaded": True, "processor_ready": True}).encode(), "application/json")

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if masks.is_away:
                    return self.send_error(503)
                masks.asked.append((self.path, body))
                start = body.index(b"\x89PNG")
                width, height = (int.from_bytes(body[start + at:start + at + 4], "big") for at in (16, 20))
                self.answer(png(width, height, lambda x, y: (255, 255, 255) if x < width // 2 else (0, 0, 0)), "image/png")

            def answer(self, body, kind):
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
