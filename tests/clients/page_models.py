"""Checks of the tab Models: installing from a hub, scanning, details, several at once."""
import json, os, pathlib, subprocess, tempfile

from fake_hub import FakeHub
from page_support import Held, Server, check, file_of, in_store, open_page, open_window, png, problems, reload, shown, tab, wait_until


def card(page, name):
    return page.locator(".card", has=page.get_by_role("heading", name=name, exact=True))


def installing(browser, program):
    """A repository of a fake hub: paused, dropped, resumed, seen from two windows, and then used."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, "models", "synth", "--layout", "diffusers", "--out", f"{folder}/toy"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "FLUX2_HOME": f"{folder}/home"})
        hub = FakeHub(f"{folder}/toy")
    with Server(program, environment={"HF_ENDPOINT": hub.endpoint}) as server:
        try:
            install_steps(browser, server, hub)
        finally:
            hub.close()


def install_steps(browser, server, hub):
    page = open_page(browser, server.url)
    tab(page, "models")
    check("the bundled model is listed", wait_until(lambda: card(page, "pico").count() == 1))
    check("starter models are offered with their size", wait_until(lambda: "GiB" in page.locator(".card", has_text="klein").first.inner_text()))
    source = page.get_by_label("Repository, address, or path on the server")
    source.fill("owner/nothing")
    page.get_by_role("button", name="Install", exact=True).first.click()
    row = page.locator(".installs > li")
    check("an unknown repository is said in words", wait_until(lambda: "owner/nothing" in row.first.inner_text() and row.first.get_attribute("data-state") == "error"), row.all_inner_texts())
    row.first.get_by_label("Close").click()
    check("a failed installation is removed from the list", wait_until(lambda: row.count() == 0))

    hub.bytes_per_s = 1_500_000
    source.fill("owner/model")
    page.get_by_text("Choose files").click()
    files = page.locator("dialog .ticks li")
    check("the files of a repository are listed", wait_until(lambda: files.count() == len(hub.files)), files.count())
    page.get_by_label("Search files").fill("transformer")
    check("they are searched", page.locator("dialog .ticks li:visible").count() == 2)
    page.get_by_text("Install the chosen files").click()
    install = lambda: server.get("/api/v1/models/installs")["items"][0]
    check("the amount is shown as it grows", wait_until(lambda: row.get_by_role("progressbar").count() == 1 and float(row.get_by_role("progressbar").get_attribute("value")) > 100_000))
    hub.bytes_per_s = 100_000  # it lasts as long as the next steps do, also on a slow machine
    with Held(page, "**/models/installs") as held:
        tab(page, "generate")
        tab(page, "models")
        held.wait()
        row.get_by_text("Pause", exact=True).click()
        check("a pause is shown at once", row.get_attribute("data-state") == "paused", row.get_attribute("data-state"))
        held.release(1)
        check("an older answer does not undo it", row.get_attribute("data-state") == "paused", row.get_attribute("data-state"))
    check("it is paused", wait_until(lambda: install()["state"] == "paused"))
    other = open_window(page.context, server.url)
    tab(other, "models")
    check("another window shows it", wait_until(lambda: other.locator(".installs > li").get_attribute("data-state") == "paused"))
    hub.ranges.clear()
    other.locator(".installs > li").get_by_text("Resume", exact=True).click()
    check("another window resumes it, and this one shows it", wait_until(lambda: row.get_attribute("data-state") == "downloading"), row.get_attribute("data-state"))
    check("it asks for the missing bytes only", wait_until(lambda: any(hub.ranges)), hub.ranges)
    other.close()
    hub.hang_up = 3
    check("connections that drop are made again by themselves", wait_until(lambda: hub.hang_up == 0) and row.get_attribute("data-state") == "downloading", row.inner_text())
    row.get_by_text("Pause", exact=True).click()
    wait_until(lambda: install()["state"] == "paused")
    hub.refuses = True
    row.get_by_text("Resume", exact=True).click()
    check("a hub that refuses is an error in words", wait_until(lambda: row.get_attribute("data-state") == "error" and len(row.locator(".error").inner_text()) > 10), row.inner_text())
    reload(page)
    check("a reload keeps it", wait_until(lambda: row.count() == 1 and row.get_attribute("data-state") == "error"))
    hub.refuses, hub.bytes_per_s = False, 0
    hub.ranges.clear()
    row.get_by_text("Try again").click()
    check("after another try it is complete", wait_until(lambda: row.get_attribute("data-state") == "completed"), row.inner_text())
    check("what was there was not downloaded again", any(hub.ranges), hub.ranges)
    check("the model is in the list without a reload", wait_until(lambda: page.locator(".models").first.locator(".card").count() == 5), page.locator(".card h3").all_inner_texts())
    several_models(page, server, hub)
    page.context.close()


def several_models(page, server, hub):
    models = page.locator(".models").first.locator(".card")
    page.get_by_label("Order", exact=True).select_option("size")
    first = models.first.inner_text()
    page.get_by_label("Reverse the order").click()
    check("models are ordered both ways", models.first.inner_text() != first and models.last.inner_text() == first)
    page.get_by_label("Type of model").select_option("vae")
    check("models are filtered by type", models.count() == 1)
    page.get_by_label("Type of model").select_option("")
    page.get_by_text("Select all shown").click()
    check("all registered models are selected", wait_until(lambda: "4 selected" in shown(page).inner_text()))
    bar = shown(page).locator(".toolbar").nth(1)
    bar.get_by_text("Identify again").click()
    check("several models are identified again, with the result in words", wait_until(lambda: "4 done, 0 failed" in page.locator("#toasts").inner_text()), page.locator("#toasts").inner_text())
    bar.get_by_text("Remove", exact=True).click()
    page.get_by_text("Remove, keep files").click()
    check("several models are removed", wait_until(lambda: models.count() == 1 and server.get("/api/v1/models")["total"] == 1))
    for name, content in hub.files.items():
        path = server.home / "data" / "models" / "toy" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    page.get_by_text("Search the model folders").click()
    ticks = page.locator("dialog .ticks input")
    check("the model folders are searched", wait_until(lambda: ticks.count() == 4), ticks.count())
    page.get_by_text("Tick none").click()
    page.locator("dialog .ticks label", has_text="Autoencoder").click()
    page.get_by_text("Register", exact=True).click()
    check("what is ticked is registered where it is", wait_until(lambda: [m["type"] for m in server.get("/api/v1/models")["items"] if m["key"]] == ["vae"]), server.get("/api/v1/models")["items"])
    check("and the dialog closes", wait_until(lambda: page.locator("dialog").count() == 0))
    page.get_by_text("Search the model folders").click()
    check("and is shown as installed then", wait_until(lambda: ticks.count() == 4 and page.locator("dialog .ticks input:disabled").count() == 1))
    page.keyboard.press("Escape")


def details(page, api, data):
    """The adapter that the training step made is registered, described and used."""
    run = api.get("/api/v1/training")["items"][0]
    checkpoint = api.get(f"/api/v1/training/{run['id']}/checkpoints")["items"][0]
    api.send("/api/v1/models/install", {"source": str(data.resolve() / run["folder"] / checkpoint["path"]), "name": "circles", "in_place": True})
    check("a trained adapter is registered", wait_until(lambda: [l["name"] for l in api.get("/api/v1/loras")["items"]] == ["circles"]))
    tab(page, "models")
    card(page, "circles").get_by_text("Details").click()
    page.get_by_label("Notes").fill("round things")
    page.get_by_label("Trigger words").fill("zorp")
    page.get_by_label("Trigger words").press("Enter")
    page.locator("dialog .chips button").wait_for()
    page.get_by_label("Trigger words").fill("zorp")
    page.get_by_label("Trigger words").press("Enter")
    check("a trigger is not added twice", wait_until(lambda: "already" in page.locator("#toasts").inner_text()))
    page.get_by_label("Weight", exact=True).fill("0.7")
    page.get_by_label("Weight", exact=True).press("Tab")
    cover = png(64, 64, lambda x, y: (x * 4, y * 4, 0))
    page.get_by_label("Choose a cover").set_input_files([file_of("c.png", cover)])
    known = lambda: api.get("/api/v1/models/circles")
    check("notes, triggers, defaults and cover of a model are stored", wait_until(lambda: known()["description"] == "round things" and known()["trigger_phrases"] == ["zorp"]
          and known()["defaults"].get("lora_weight") == 0.7 and known()["cover_asset"]), known())
    page.locator("dialog .cover").wait_for()
    with page.expect_download() as download:
        page.get_by_text("Export settings").click()
    exported = json.loads(pathlib.Path(download.value.path()).read_text())
    check("the settings of a model are exported with the cover", exported["trigger_phrases"] == ["zorp"] and exported["default_settings"] == {"lora_weight": 0.7}
          and exported["cover_image"].startswith("data:image/"), exported)
    exported.update(description="imported", cover_image="data:,x")
    page.get_by_label("Import settings").set_input_files([file_of("c.json", json.dumps(exported).encode(), "application/json")])
    check("and imported, saying what was left out", wait_until(lambda: known()["description"] == "imported" and "cover_image" in page.locator("#toasts").inner_text()))
    page.keyboard.press("Escape")
    tab(page, "generate")
    check("it is offered without a reload", wait_until(lambda: shown(page).get_by_label("LoRAs").is_visible() and shown(page).locator("datalist option[value=circles]").count() == 1))
    prompt = shown(page).locator("[data-name=prompt]")
    switched_on = shown(page).locator(".loras .lora button")
    while switched_on.count():  # the checkpoint that was tried
        switched_on.first.click()
    wait_until(lambda: in_store(page, "loras.map((l) => [l.name, l.trigger_phrases[0], l.defaults.lora_weight])") == [["circles", "zorp", 0.7]])
    prompt.fill("a picture of ")
    prompt.press_sequentially("@circ")
    check("@ offers a LoRA", wait_until(lambda: "circles" in shown(page).locator(".completion").inner_text()))
    prompt.press("Enter")
    check("it is switched on with its weight, and its trigger is in the prompt", prompt.input_value() == "a picture of zorp" and "circles" in shown(page).locator(".loras").inner_text()
          and "0.70" in shown(page).locator(".loras").inner_text(), [prompt.input_value(), shown(page).locator(".loras").inner_text()])
    shown(page).locator(".loras .lora button").first.click()


def upkeep(browser, program):
    """Models that belong together, a file that was moved by hand, files without a record."""
    with Server(program) as server:
        folder = server.home / "data" / "models"
        synth = lambda name: subprocess.run([program, "models", "synth", "--out", str(folder / name)], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "FLUX2_HOME": str(server.home / "data")})
        synth("toy")
        server.send("/api/v1/models/scan", {"add": True})
        page = open_page(browser, server.url)
        tab(page, "models")
        wait_until(lambda: card(page, "toy-vae").count() == 1)
        in_memory(page, server)
        related(page, server)
        moved(page, server, folder)
        orphans(page, server, folder, synth)
        page.context.close()


def in_memory(page, server):
    """Several models can be in memory. One that comes or goes changes nothing about the others."""
    loaded = lambda name: "In memory" in card(page, name).inner_text()
    for name in ("pico", "tiny"):
        server.send(f"/api/v1/models/{name}/load", {})
        check(f"{name} is loaded, and shown so", wait_until(lambda: loaded(name)), card(page, name).inner_text())
    check("two models are in memory", loaded("pico") and len(server.get("/api/v1/models/loaded")["items"]) == 2, server.get("/api/v1/models/loaded"))
    card(page, "tiny").get_by_text("Details").click()
    check("the detail of a model says what it needs, and of how much", wait_until(lambda: "It needs" in page.locator("dialog").inner_text()), page.locator("dialog").inner_text())
    with page.expect_response("**/verify"):
        page.locator("dialog").get_by_text("Check the files").click()
    check("the end of a job without images is announced as that", wait_until(lambda: page.locator("#announcer").inner_text() == "The job is finished.", 30), page.locator("#announcer").inner_text())
    page.keyboard.press("Escape")
    server.send("/api/v1/models/unload", {})
    check("and none when they are unloaded", wait_until(lambda: not loaded("pico") and not loaded("tiny")))


def related(page, server):
    known = lambda name: server.get(f"/api/v1/models/{name}")
    dialog = page.locator("dialog")
    card(page, "toy-vae").get_by_text("Details").click()
    dialog.get_by_label("Add a model").select_option(known("tiny")["key"])
    dialog.get_by_text("Link", exact=True).click()
    check("two models are linked, for both of them", wait_until(lambda: known("toy-vae")["related"] == [known("tiny")["key"]] and known("tiny")["related"] == [known("toy-vae")["key"]]), known("toy-vae")["related"])
    check("the detail shows it", wait_until(lambda: dialog.get_by_label("Remove the link to tiny").count() == 1))
    dialog.get_by_role("button", name="tiny", exact=True).click()
    check("a related model is opened, and shows the other", wait_until(lambda: dialog.count() == 1 and dialog.get_by_label("Remove the link to toy-vae").count() == 1), dialog.all_inner_texts())
    dialog.get_by_label("Remove the link to toy-vae").click()
    check("a link is removed", wait_until(lambda: known("toy-vae")["related"] == [] and dialog.get_by_label("Remove the link to toy-vae").count() == 0))
    page.keyboard.press("Escape")


def moved(page, server, folder):
    known = lambda: server.get("/api/v1/models/toy-vae")
    dialog = page.locator("dialog")
    key = known()["key"]
    server.send(f"/api/v1/models/{key}", {"description": "mine"}, "PATCH")
    target = folder / "elsewhere" / "renamed.safetensors"
    target.parent.mkdir()
    os.rename(known()["path"], target)
    reload(page)
    check("a file that was moved is missing", wait_until(lambda: "is not there" in card(page, "toy-vae").inner_text()), card(page, "toy-vae").inner_text())
    card(page, "toy-vae").get_by_text("Details").click()
    path = dialog.get_by_label("New path on the server")
    check("its detail asks for the path", wait_until(lambda: path.is_visible()))
    expected = len(problems)
    said = lambda: dialog.locator("form [role=alert]").inner_text()
    path.fill(server.get("/api/v1/models/tiny")["path"])
    path.press("Enter")
    check("another kind of model is refused in words", wait_until(lambda: "another kind" in said()), dialog.inner_text())
    path.fill("/etc/hostname")
    path.press("Enter")
    check("and a path outside the model folders", wait_until(lambda: "another kind" not in said() and said() != ""), dialog.inner_text())
    del problems[expected:]  # the answers 400
    path.fill(str(target))
    path.press("Enter")
    check("the new path is used; key and notes stay", wait_until(lambda: known()["path"] == str(target.resolve()) and known()["state"] == "ready") and known()["key"] == key and known()["description"] == "mine", known())
    page.keyboard.press("Escape")
    check("the model is ready again", wait_until(lambda: "missing" not in card(page, "toy-vae").inner_text()), card(page, "toy-vae").inner_text())


def orphans(page, server, folder, synth):
    dialog = page.locator("dialog")
    button = page.get_by_text("Files that belong to no model", exact=True).first
    button.click()
    check("without such files it says so", wait_until(lambda: "belongs to a model" in dialog.inner_text()), dialog.inner_text())
    page.keyboard.press("Escape")
    synth("old")
    (folder / "loras").mkdir()
    (folder / "loras" / "left.safetensors").write_bytes(b"x" * 2048)
    outside = server.home / "precious.safetensors"
    outside.write_bytes(b"y")
    (folder / "loras" / "link.safetensors").symlink_to(outside)
    button.click()
    rows = dialog.locator(".ticks li")
    check("files without a record are listed with counts and sizes", wait_until(lambda: rows.count() == 3) and "files" in rows.last.inner_text() and "2 KiB" in dialog.inner_text(), dialog.inner_text())
    check("nothing is ticked at first", dialog.get_by_text("Delete what is ticked").is_disabled() and dialog.locator(".ticks input:checked").count() == 0)
    dialog.get_by_label("old/").focus()
    page.keyboard.press("Space")
    dialog.get_by_label("loras/link.safetensors").check()
    check("what is ticked is counted", wait_until(lambda: "2 ticked" in dialog.locator("form [role=status]").inner_text()), dialog.inner_text())
    dialog.get_by_text("Delete what is ticked").click()
    check("what is ticked is deleted, and nothing else", wait_until(lambda: not (folder / "old").exists()) and not (folder / "loras" / "link.safetensors").is_symlink()
          and (folder / "loras" / "left.safetensors").exists() and outside.exists() and len(list((folder / "toy").iterdir())) > 0, sorted(str(p) for p in folder.rglob("*")))
    check("the result is said", wait_until(lambda: "2 deleted" in page.locator("#toasts").inner_text()), page.locator("#toasts").inner_text())
