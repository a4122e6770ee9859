"""Checks of the tab Training."""
import re

from page_support import Held, check, clear_toasts, file_of, png, problems, reload, shown, tab, wait_until


def training(page, api):
    tab(page, "gallery")
    cells = page.locator(".cell:has(img)")
    wait_until(lambda: cells.count() >= 3)
    for n in range(3):
        cells.nth(n).click(modifiers=["Control"])
    page.locator(".gallery-tab > .toolbar").get_by_text("Train on them").click()
    captions = shown(page).locator(".captions textarea")
    check("images of the gallery are trained on, their prompts are captions", wait_until(lambda: captions.count() == 3 and captions.first.input_value() != ""), captions.count())
    shown(page).get_by_label("Name").fill("circles")
    shown(page).locator("input[type=file]").set_input_files([file_of("more.png", png(64, 64, lambda x, y: (4 * x, 4 * y, 99)))])
    check("and uploaded ones", wait_until(lambda: captions.count() == 4), captions.count())
    for n in range(captions.count()):
        captions.nth(n).fill(f"zorp number {n}")
    expected = len(problems)
    shown(page).get_by_label("Learning rate", exact=True).first.fill("0,001")
    shown(page).get_by_text("Forecast", exact=True).click()
    toasts = page.locator("#toasts")
    check("a learning rate that is no number is refused", wait_until(lambda: "learning_rate" in toasts.inner_text(), 20), toasts.inner_text())
    del problems[expected:]  # the refused request
    clear_toasts(page)
    page.get_by_role("banner").get_by_label("Model").select_option("pico")
    for label, value in (("Steps", "40"), ("Rank", "2"), ("Learning rate", "1e-3"), ("Save every … steps", "8"), ("Prompt for samples", "zorp")):
        shown(page).get_by_label(label, exact=True).first.fill(value)
    shown(page).get_by_text("Forecast", exact=True).click()
    check("the forecast of a run is shown", wait_until(lambda: "40 steps" in shown(page).locator("[role=status]").inner_text(), 60))
    page.reload()
    page.wait_for_selector("nav a")
    check("a reload keeps the captions", wait_until(lambda: captions.count() == 4 and captions.first.input_value() == "zorp number 0"))
    shown(page).get_by_text("Start training").dblclick()
    check("the run is for the chosen model, and a double click starts one", wait_until(lambda: [r["model"] for r in api.get("/api/v1/training")["items"]] == ["pico"]),
          api.get("/api/v1/training")["items"])
    page.get_by_role("banner").get_by_label("Model").select_option("")
    check("the curve is drawn while it trains", wait_until(lambda: shown(page).locator(".plot .line").count() >= 1, 120))
    points = lambda: len(shown(page).locator(".plot .line").first.get_attribute("d") or shown(page).locator(".plot .line").first.get_attribute("points"))
    before = points()
    check("and moves", wait_until(lambda: points() > before, 120))
    run = lambda: api.get("/api/v1/training")["items"][0]
    shown(page).get_by_role("button", name="Pause").click()
    check("a run is paused", wait_until(lambda: run()["state"] == "paused", 60), run()["state"])
    shown(page).get_by_role("button", name="Resume").click()
    check("and resumed", wait_until(lambda: run()["state"] in ("running", "completed", "caching", "preparing"), 60), run()["state"])
    reload(page)
    check("a reload in the middle of a run shows it again", wait_until(lambda: shown(page).locator(".plot .line").count() >= 1, 60))
    tries = shown(page).locator(".checkpoints").get_by_text("Try", exact=True)
    check("checkpoints appear", wait_until(lambda: tries.count() >= 1, 120))
    check("samples appear", wait_until(lambda: shown(page).locator(".strip figure").count() >= 1, 120))
    tries.first.click()
    check("a checkpoint is tried in Generate", wait_until(lambda: page.evaluate("location.hash") == "#generate" and "run:circles@" in shown(page).locator(".loras").inner_text()))
    shown(page).locator("[data-name=prompt]").fill("zorp")
    shown(page).locator("button.primary").click()
    wait_until(lambda: api.get("/api/v1/jobs?state=completed&kind=generate&limit=1")["items"][0]["request"]["prompt"] == "zorp", 180)
    job = api.get("/api/v1/jobs?kind=generate&limit=1")["items"][0]
    check("an image is made with it", job["state"] == "completed" and job["request"]["loras"][0]["name"].startswith("run:circles@"), job["error"])
    tab(page, "training")
    check("the run ends", wait_until(lambda: api.get("/api/v1/training")["items"][0]["state"] == "completed", 180))
    saved = lambda: [c["step"] for c in api.get(f"/api/v1/training/{run()['id']}/checkpoints")["items"]]
    check("its checkpoints are listed", wait_until(lambda: tries.count() == len(saved())), [tries.count(), saved()])
    before = saved()
    with page.expect_download() as download:
        shown(page).locator(".checkpoints a").first.click()
    check("a checkpoint is downloaded under a name of its own", re.fullmatch(r"circles-\d+\.safetensors", download.value.suggested_filename), download.value.suggested_filename)
    shown(page).locator(".checkpoints").get_by_label("Delete the checkpoint").last.click()
    question = page.locator("dialog")
    check("before a checkpoint is deleted, it is asked", wait_until(lambda: "cannot be undone" in question.inner_text()) and saved() == before, saved())
    question.get_by_role("button", name="Delete", exact=True).click()
    check("then it is deleted", wait_until(lambda: len(saved()) == len(before) - 1 == tries.count()), [saved(), tries.count()])


def forecasts(page, api):
    """What a forecast says of memory, with the numbers of a small machine."""
    tab(page, "training")
    shown(page).get_by_text("New run").click()
    plan = {"items": 4, "steps": 40, "device_gib": None, "host_gib": 9, "fits": False, "limit_gib": 8, "eta_s": 60, "model": "pico", "device": "cpu", "warnings": ["four images are few"]}
    page.route("**/api/v1/training", lambda route: route.fulfill(json=plan) if route.request.method == "POST" else route.fallback())
    shown(page).get_by_text("Forecast", exact=True).click()
    said = lambda: shown(page).locator("[role=status]").inner_text()
    check("a run that does not fit is said to be too large", wait_until(lambda: "9.0 GiB of memory, more than there is" in said() and "8.0 GiB are available" in said()), said())
    check("with model, device and warnings", all(word in said() for word in ("pico · cpu", "four images are few")), said())
    shown(page).get_by_label("Steps", exact=True).fill("41")
    check("the forecast goes when the run is changed", wait_until(lambda: said() == ""), said())
    page.unroute("**/api/v1/training")
    tab(page, "generate")
    plan = {"fits": True, "total_seconds": 3, "peak_device": 0, "peak_host": 2 << 30, "limit_gib": 8, "model": "pico", "device": "cpu", "placement": "all networks stay in memory", "notes": ["a small model"]}
    page.route("**/api/v1/plan", lambda route: route.fulfill(json=plan))
    shown(page).locator("[data-name=prompt]").fill("a forecast with all its numbers")
    said = lambda: shown(page).locator(".forecast").inner_text()
    check("the forecast of an image says what there is, and where it runs", wait_until(lambda: all(word in said() for word in
          ("2.0 GiB of memory", "8.0 GiB are available", "pico · cpu · all networks stay in memory", "a small model"))), said())
    page.unroute("**/api/v1/plan")


def stop(page, api):
    tab(page, "training")
    expected = len(problems)
    with Held(page, "**/training/*/metrics?*") as held:
        shown(page).locator(".runs button").first.click()
        held.wait()
        shown(page).get_by_text("New run").click()
        held.release()
    check("a run whose curve comes late does not disturb a new one", shown(page).get_by_text("Start training").is_visible() and shown(page).locator(".run").is_hidden()
          and len(problems) == expected, problems[expected:])
    for label, value in (("Name", "stopped"), ("Steps", "100000"), ("Save every … steps", ""), ("Prompt for samples", "")):
        shown(page).get_by_label(label, exact=True).first.fill(value)
    shown(page).get_by_text("Start training").click()
    run = lambda: next((r for r in api.get("/api/v1/training")["items"] if r["name"] == "stopped"), {"state": "none", "step": 0})
    check("a long run trains", wait_until(lambda: run()["state"] == "running" and run()["step"] >= 3, 120), run())
    stop = shown(page).get_by_role("button", name="Stop and save")
    stop.click()
    check("a run is stopped", wait_until(lambda: run()["state"] == "stopped", 60), run())
    check("the page says so, and offers neither stop nor pause", wait_until(lambda: "Stopped" in shown(page).locator(".run").inner_text() and stop.count() == 0
          and shown(page).get_by_role("button", name="Pause").count() == 0), shown(page).locator(".run").inner_text())
    check("its state was saved: there is a checkpoint to try", wait_until(lambda: shown(page).locator(".checkpoints").get_by_text("Try", exact=True).count() == 1)
          and [c["step"] for c in api.get(f"/api/v1/training/{run()['id']}/checkpoints")["items"]] == [run()["step"]], run())
    address = re.compile(r"/training/run_\w+$")
    page.route(address, lambda route: route.fulfill(json={**route.fetch().json(), "state": "running"}))  # the end was missed
    shown(page).locator(".runs button").first.click()
    wait_until(lambda: stop.count() == 1)
    page.unroute(address)
    tab(page, "generate")
    tab(page, "training")
    check("a run whose end was missed is read again", wait_until(lambda: "Stopped" in shown(page).locator(".run").inner_text() and stop.count() == 0, 10),
          shown(page).locator(".run").inner_text())
    shown(page).get_by_role("button", name="Resume").click()
    check("a stopped run is resumed", wait_until(lambda: run()["state"] not in ("stopped", "failed"), 60), run())
    stop.click(timeout=60_000)
    wait_until(lambda: run()["state"] == "stopped", 60)
    check("the device is free again", wait_until(lambda: api.get("/api/v1/jobs?state=running")["items"] == []))
