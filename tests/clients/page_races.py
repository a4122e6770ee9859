"""Answers that come late: they must not undo what the person or an event has changed since they were requested."""
from page_support import Held, Server, check, file_of, fill, finished, in_store, open_page, png, problems, settle, shown, tab, wait_until


def late_answers(browser, program):
    with Server(program) as server:
        page = open_page(browser, server.url)
        fill(page, prompt="the first", steps=2, width=64, height=64)
        page.keyboard.press("Control+Enter")
        finished(page)
        for check_one in (forecast, grid, jobs, results, opening, queue, elements, gallery, tags, inpainting):
            check_one(page, server)
        page.context.close()


def forecast(page, server):
    text = lambda: shown(page).locator(".forecast").inner_text()
    with Held(page, "**/api/v1/plan", "POST") as held:
        fill(page, prompt="a forecast that takes long")
        held.wait()
        fill(page, prompt="")
        wait_until(lambda: text() == "")
        page.wait_for_timeout(700)  # the page waits until nobody types
        held.release()
        check("a forecast that comes late is not shown", wait_until(lambda: text() == "", 10), text())


def grid(page, server):
    """The last answer comes when the first jobs have ended."""
    fill(page, prompt="a red house")
    shown(page).get_by_text("Grid of two settings").click()
    shown(page).get_by_label("Across", exact=True).select_option("steps")
    shown(page).get_by_label("Values across").fill("1, 2")
    shown(page).get_by_label("Down", exact=True).select_option("prompt")
    shown(page).get_by_label("Values down").fill("red")
    ended = lambda: [j["state"] for j in server.get("/api/v1/jobs?limit=2")["items"] if "red house" in j["request"]["prompt"]]
    with Held(page, "**/api/v1/jobs", "POST") as held:
        shown(page).get_by_text("Generate the grid").click()
        held.wait()
        wait_until(lambda: ended() == ["completed"])
        page.wait_for_timeout(300)
        held.release()
        held.wait()
        wait_until(lambda: ended() == ["completed", "completed"])
        page.wait_for_timeout(300)
    images = shown(page).locator(".xy img")
    check("a grid shows jobs that ended before the answers came", wait_until(lambda: images.count() == 2, 10), shown(page).locator(".xy").inner_text())
    shown(page).locator(".xy button").click()


def jobs(page, server):
    """A job ends while the page reads which jobs are running."""
    count = page.locator("#queue-button .count")
    fill(page, prompt="ends meanwhile", steps=60, width=256, height=256)
    page.keyboard.press("Control+Enter")
    wait_until(lambda: server.get("/api/v1/jobs?state=running")["items"] != [])
    with Held(page, "**/api/v1/jobs?state=running*") as held:
        refresh(page)
        held.wait()
        finished(page)
        wait_until(lambda: count.inner_text() == "")
        held.release()
        check("a job that has ended does not run again", count.inner_text() == "" and shown(page).locator(".status progress").count() == 0, count.inner_text())
    fill(page, steps=2, width=64, height=64)


def results(page, server):
    """The store forgets old jobs, and the end of a job may be missed. The tab goes on to show the image."""
    fill(page, prompt="stays", steps=2, width=64, height=64)
    page.keyboard.press("Control+Enter")
    finished(page)
    job = server.last_job()["id"]
    image = shown(page).locator(".stage img:not(.preview)")
    in_store(page, f"jobs.set('{job}', {{ ...store.jobs.get('{job}'), state: 'running', images: [] }}) && store.refresh() && null")
    check("a job whose end was missed shows its image", wait_until(lambda: image.count() == 1 and in_store(page, f"jobs.get('{job}')?.state") == "completed", 10),
          shown(page).locator(".stage").inner_text())
    in_store(page, f"jobs.delete('{job}') && store.dispatchEvent(new CustomEvent('jobs'))")
    check("and still when the job is forgotten", image.count() == 1 and shown(page).get_by_text("Use these settings").count() == 1)


def opening(page, server):
    """A job ends while a new window reads which jobs are running: its event stream is open by then."""
    job = server.send("/api/v1/jobs", {"prompt": "ends while a window opens", "steps": 100, "width": 256, "height": 256})["id"]
    wait_until(lambda: server.get(f"/api/v1/jobs/{job}")["state"] == "running")
    window = page.context.new_page()
    with Held(window, "**/api/v1/jobs?state=running*") as held:
        window.goto(server.url)
        held.wait()
        check("the held answer says that the job runs", job in held.answers[0][1].text())
        wait_until(lambda: server.get(f"/api/v1/jobs/{job}")["state"] == "completed")
        settle(window)
        held.release()
        window.wait_for_selector("nav a")
        count = window.locator("#queue-button .count")
        check("a job that ends while the page opens does not run there", wait_until(lambda: count.inner_text() == "", 10), count.inner_text())
    window.close()


def refresh(page):
    """As after a lost connection."""
    in_store(page, "refresh() && null")


def queue(page, server):
    order = lambda: server.get("/api/v1/queue")["order"]
    server.send("/api/v1/queue/pause", {})
    for n in range(3):
        server.send("/api/v1/jobs", {"prompt": f"waiting {n}", "steps": 1, "width": 64, "height": 64})
    page.click("#queue-button")
    rows = page.locator("#queue li", has_text="waiting")
    listed = lambda: [text.split("\n")[0] for text in rows.all_inner_texts()]
    wait_until(lambda: listed() == ["waiting 0", "waiting 1", "waiting 2"])
    page.wait_for_timeout(700)  # its order has been read
    with Held(page, "**/api/v1/queue") as held:
        refresh(page)
        held.wait()
        rows.nth(2).get_by_label("Sooner").click()
        rows.nth(1).get_by_label("Sooner").click()
        moved = ["waiting 2", "waiting 0", "waiting 1"]
        check("jobs are moved, and shown at once", listed() == moved, listed())
        held.release(1)
        check("an order that was read before does not undo it", listed() == moved, listed())
        held.wait()
    names = lambda: [server.get(f"/api/v1/jobs/{id}")["request"]["prompt"] for id in order()]
    check("the server has the last order", wait_until(lambda: names() == moved) and listed() == moved, [names(), listed()])
    server.send("/api/v1/queue/resume", {})
    wait_until(lambda: not order())
    page.click("#queue-button")


def elements(page, server):
    element = server.send("/api/v1/projects/default/elements", {"name": "Nova", "type": "character", "description": "a tall woman"})
    stored = lambda: server.get(f"/api/v1/elements/{element['id']}")
    tab(page, "elements")
    shown(page).get_by_label("Edit Nova").click()
    dialog = page.locator("dialog")
    dialog.locator("input[type=file]").set_input_files([file_of(f"{n}.png", png(64, 64, lambda x, y, n=n: (80 * n, 4 * y, 0))) for n in range(3)])
    wait_until(lambda: dialog.locator(".references li").count() == 3 and len(stored()["images"]) == 3)
    page.wait_for_timeout(500)
    images = stored()["images"]
    listed = lambda: dialog.locator(".references img").evaluate_all("(all) => all.map((i) => i.src.split('/').at(-2))")
    moved = [images[2], images[0], images[1]]
    with Held(page, "**/elements?*") as held:
        refresh(page)
        held.wait()
        dialog.get_by_label("Move image 3 up").click()
        dialog.get_by_label("Move image 2 up").click()
        check("images of an element are moved, and shown at once", listed() == moved, [listed(), moved])
        wait_until(lambda: stored()["images"] == moved)
        held.release(1)
        check("elements that were read before do not undo it", listed() == moved, [listed(), moved])
    check("the server has the last order of the images", wait_until(lambda: stored()["images"] == moved) and listed() == moved, stored())
    with Held(page, "**/api/v1/elements/*", "PATCH") as held:
        trigger = dialog.get_by_label("Description")
        trigger.fill("a tall woman in a red coat")
        trigger.press("Tab")
        held.wait()
        trigger.fill("somebody else")
        held.release()
        check("what is typed while a change is stored stays", trigger.input_value() == "somebody else", trigger.input_value())
    page.keyboard.press("Escape")


def gallery(page, server):
    tab(page, "gallery")
    cells = page.locator(".cell:has(img)")
    total = server.get("/api/v1/assets?kind=image&limit=1")["total"]
    check("the gallery shows every image", wait_until(lambda: cells.count() == total), [cells.count(), total])
    bar = page.locator(".gallery-tab > .toolbar")
    with Held(page, "**/api/v1/assets?*") as held:
        page.get_by_label("Search prompts").fill(" ")  # the same search again
        held.wait()
        cells.nth(0).click(modifiers=["Control"])
        bar.get_by_text("Favourite", exact=True).click()
        bar.get_by_text("Clear the selection").click()
        cells.nth(1).click(modifiers=["Control"])
        bar.get_by_text("Delete", exact=True).click()
        wait_until(lambda: cells.count() == total - 1)
        wait_until(lambda: server.get("/api/v1/assets?trash=1")["total"] == 1)
        held.release()
        check("a deleted image does not come back with an older answer", cells.count() == total - 1, cells.count())
        check("and a favourite stays one", page.locator(".cell .star").count() == 1)


def tags(page, server):
    tab(page, "gallery")
    with Held(page, "**/api/v1/jobs/*") as held:
        page.locator(".cell:has(img)").first.click()
        held.wait()
        box = page.locator("dialog").get_by_label("Tags")
        box.fill("half writ")
        held.release()
        check("tags that are being written stay when the settings come", wait_until(lambda: "Steps" in page.locator("dialog").inner_text()) and box.input_value() == "half writ", box.input_value())
        box.press("Escape")
    wait_until(lambda: page.locator("dialog").count() == 0)


def inpainting(page, server):
    """The first image comes when the second one is open."""
    tab(page, "inpaint")
    size = lambda: page.evaluate("(({ width, height }) => [width, height])(document.querySelector('main > :not([hidden]) canvas'))")
    chooser = shown(page).locator(".work input[type=file]")
    expected = len(problems)
    held = []
    page.route("**/api/v1/assets/*/file", lambda route: held.append(route) if route.request.resource_type == "image" and not held else route.fallback())
    chooser.set_input_files([file_of("first.png", png(96, 64, lambda x, y: (x, y, 0)))])
    wait_until(lambda: page.wait_for_timeout(20) or held)
    chooser.set_input_files([file_of("second.png", png(128, 64, lambda x, y: (0, x, y)))])
    wait_until(lambda: size() == [128, 64])
    held[0].continue_()
    page.wait_for_timeout(300)
    check("an image that comes late does not replace the one that was opened after it", size() == [128, 64] and len(problems) == expected, [size(), problems[expected:]])
    page.unroute("**/api/v1/assets/*/file")
