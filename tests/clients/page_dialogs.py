"""axe on every dialog of the page, on a wide screen and on a phone, light and dark."""
import os, subprocess

from axe_playwright_python.sync_playwright import Axe

from page_shots import FakeChat
from page_support import Server, check, fill, finished, open_page, shown, tab, wait_until

SIZES = (("light", (1280, 800)), ("dark", (360, 740)))


def dialogs(browser, program, shots):
    service = FakeChat()
    try:
        with Server(program, config=f'[upsample]\nurl = "{service.url}/v1"\nmodel = "tester"\n') as server:
            prepare(browser, server, program)
            for scheme, size in SIZES:
                look_at_all(open_page(browser, server.url, *size, color_scheme=scheme), scheme, size, shots)
    finally:
        service.close()


def prepare(browser, server, program):
    """Something of everything: an image, an element, a scene with shots, models, files without a model."""
    folder = server.home / "data" / "models"
    for name in ("toy", "old"):
        subprocess.run([program, "models", "synth", "--out", str(folder / name)], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "FLUX2_HOME": str(server.home / "data")})
        if name == "toy":
            server.send("/api/v1/models/scan", {"add": True})
    models = {m["name"]: m["key"] for m in server.get("/api/v1/models")["items"]}
    server.send(f"/api/v1/models/{models['toy-vae']}/related/{models['tiny']}", {}, "PUT")
    server.send("/api/v1/projects/default/elements", {"name": "Ann", "type": "character", "description": "a girl with red hair"})
    scene = server.send("/api/v1/projects/default/scenes", {"name": "Forest, day", "text": "The first morning after the storm."})
    for n, action in enumerate(("Birds sing in the high trees", "@Ann runs past the trees and does not look back", "Night falls")):
        shot = server.send("/api/v1/projects/default/shots", {"action": action, "scene_id": scene["id"], "steps": 8, "width": 256, "height": 160, "seed": n, **({"shot_type": "wide shot", "character": "Ann"} if n == 1 else {})})
        if n < 2:
            server.send(f"/api/v1/shots/{shot['id']}/generate", {})
    server.send("/api/v1/projects/default/match-elements", {})
    page = open_page(browser, server.url)
    fill(page, prompt="a red circle", steps=4)
    shown(page).locator("button.primary").click()
    finished(page)
    page.context.close()


def open_enlarge(page):
    page.locator(".cell:has(img)").first.click()
    page.locator("dialog").get_by_role("button", name="Enlarge").click()


def enlarge(page):
    open_enlarge(page)
    dialog = page.locator("dialog", has_text="Enlarge an image")
    check("without an upscaler, enlarging interpolates and says so", "No upscaler is installed" in dialog.inner_text())
    width = int(dialog.locator("form").inner_text().split("Result: ")[1].split(" ")[0]) // 2
    dialog.get_by_label("Scale").select_option("4")
    dialog.get_by_role("button", name="Enlarge").click()
    image = dialog.locator(".enlarged img")
    image.wait_for()
    check("an enlarged image has the size that was promised", wait_until(lambda: image.evaluate("i => i.naturalWidth") == 4 * width), width)
    with page.expect_download() as download:
        dialog.get_by_text("Download", exact=True).click()
    check("it can be downloaded under a name of its own", download.value.suggested_filename.endswith("-x4.png"), download.value.suggested_filename)
    dialog.get_by_text("Edit", exact=True).click()
    check("it can be edited", wait_until(lambda: page.locator("dialog").count() == 0 and page.evaluate("location.hash") == "#edit" and shown(page).locator("img").count() > 0))
    tab(page, "gallery")


def look_at_all(page, scheme, size, shots):
    axe = Axe()
    dialog = page.locator("dialog")
    press = lambda text: shown(page).get_by_text(text, exact=True).first.click()

    def look(name, open_it, ready=lambda: True):
        open_it()
        wait_until(lambda: dialog.count() == 1 and ready())
        if shots:
            page.screenshot(path=str(shots / f"dialog-{name.replace(' ', '-')}-{scheme}.png"))
        found = [v for v in axe.run(page).response["violations"] if v["impact"] in ("serious", "critical")]
        too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth || [...document.querySelectorAll('dialog')].some((d) => d.scrollWidth > d.clientWidth)")
        inside = page.evaluate("document.activeElement.closest('dialog') !== null")
        check(f"dialog {name}, {scheme}, {size[0]} px: accessible, has the focus, nothing overflows", dialog.count() == 1 and not found and not too_wide and inside,
              [(v["id"], [n["html"][:80] for n in v["nodes"]][:3]) for v in found] or f"{dialog.count()} dialogs, too wide: {too_wide}, focus inside: {inside}")
        page.keyboard.press("Escape")
        wait_until(lambda: dialog.count() == 0)

    tab(page, "generate")
    fill(page, prompt="a red circle")
    look("shortcuts", lambda: page.get_by_label("Keyboard shortcuts").first.click())
    look("new project", lambda: page.get_by_label("Project", exact=True).select_option("+"))
    look("project settings", lambda: page.get_by_label("Project settings").click())
    look("history", lambda: press("History"))
    look("templates", lambda: press("Templates"))
    look("expand", lambda: press("Expand"), lambda: dialog.get_by_label("Result").is_visible())
    tab(page, "gallery")
    page.locator(".cell:has(img)").first.wait_for()
    look("image", lambda: page.locator(".cell:has(img)").first.click(), lambda: dialog.locator("dt").count() > 3)
    look("enlarge", lambda: open_enlarge(page), lambda: dialog.get_by_label("Scale").is_visible())
    if scheme == "light":
        enlarge(page)
    tab(page, "elements")
    look("new element", lambda: press("New element"))
    look("element", lambda: shown(page).get_by_label("Edit Ann").click())
    tab(page, "shots")
    shown(page).locator(".shot").nth(2).wait_for()
    wait_until(lambda: shown(page).locator(".shot img").count() == 2, 60)
    if shots:
        page.screenshot(path=str(shots / f"shots-{scheme}-full.png"))
    look("new scene", lambda: press("New scene"))
    look("scene", lambda: shown(page).get_by_label("Edit Forest, day").click())
    look("new shot", lambda: press("New shot"))
    look("shot", lambda: shown(page).get_by_label("Edit Shot 2").click())
    look("delete a shot", lambda: shown(page).get_by_label("Delete Shot 2").click())
    look("image of a shot", lambda: shown(page).get_by_label("Open the image of Shot 1").click(), lambda: dialog.locator("dt").count() > 3)
    tab(page, "models")
    card = page.locator(".card", has=page.get_by_role("heading", name="toy-vae", exact=True))
    card.wait_for()
    look("model", lambda: card.get_by_text("Details").click())
    look("image model", lambda: page.locator(".card", has=page.get_by_role("heading", name="tiny", exact=True)).get_by_text("Details").click())
    look("remove a model", lambda: page.get_by_label("Remove toy-vae", exact=True).click())
    look("search the folders", lambda: press("Search the model folders"), lambda: dialog.locator(".ticks li").count() > 0)
    look("files without a model", lambda: press("Files that belong to no model"), lambda: dialog.locator(".ticks li").count() > 0)
    look("token", lambda: press("Hub token"))
    page.context.close()
