"""What the page does with a refusal: the dialog stays, says why and keeps what was typed; and what else happens while it is open."""
import os, subprocess

from page_support import Held, Server, check, clear_toasts, file_of, fill, finished, in_store, open_page, png, problems, settle, shown, tab, wait_until

MESSAGE, HINT = "Refused by the test.", "Try again later."


class Refused:
    """Answers requests of a method to an address with 409: `with Refused(page, "**/projects")`. With `holds`, not before release()."""

    def __init__(self, page, address, method="POST", holds=False):
        self.page, self.address, self.method, self.holds, self.held = page, address, method, holds, []

    def __enter__(self):
        self.known = len(problems)
        self.page.route(self.address, self._take)
        return self

    def __exit__(self, *_):
        self.page.unroute(self.address, self._take)
        settle(self.page, 50)
        problems[self.known:] = [p for p in problems[self.known:] if "409" not in p]

    def _take(self, route):
        if route.request.method != self.method:
            route.fallback()
        elif self.holds:
            self.held.append(route)
        else:
            self._refuse(route)

    def _refuse(self, route):
        route.fulfill(status=409, json={"error": {"code": "refused", "message": MESSAGE, "hint": HINT}})

    def release(self):
        for route in self.held:
            self._refuse(route)


def refusals(browser, program):
    with Server(program) as server:
        page = open_page(browser, server.url)
        project_id = prepare(page, server, program)
        for step in (new_project, new_things, gallery, models, deletions, sending_state, fields, messages, images_in_order):
            step(page, server)
        delete_project(page, project_id)
        page.context.close()


def prepare(page, server, program):
    folder = server.home / "data" / "models"
    subprocess.run([program, "models", "synth", "--out", str(folder / "toy")], check=True, stdout=subprocess.DEVNULL, env={**os.environ, "FLUX2_HOME": str(server.home / "data")})
    server.send("/api/v1/models/scan", {"add": True})
    server.send("/api/v1/projects/default/elements", {"name": "Ann", "type": "character", "description": "a girl with red hair"})
    scene = server.send("/api/v1/projects/default/scenes", {"name": "Forest"})
    server.send("/api/v1/projects/default/shots", {"action": "Birds sing", "scene_id": scene["id"]})
    fill(page, prompt="a red circle", steps=2, width=64, height=64)
    shown(page).locator("button.primary").click()
    finished(page)
    return server.send("/api/v1/projects", {"name": "To delete"})["id"]


def refused_then_taken(page, name, address, button, typed=None, method="POST"):
    """The dialog is open and filled in: its button is refused once and then works. `typed` are labels and values that must stay."""
    dialog = page.locator("dialog").last
    open_before = page.locator("dialog").count()
    press = dialog.get_by_role("button", name=button, exact=True)
    said = dialog.locator("form > [role=alert]")
    with Refused(page, address, method):
        press.click()
        check(f"{name}: a refusal is said inside the dialog", wait_until(lambda: MESSAGE in said.inner_text() and HINT in said.inner_text(), 10), dialog.inner_text())
    kept = {label: dialog.get_by_label(label, exact=True).input_value() for label in typed or {}}
    check(f"{name}: what was typed stays, and nothing is said elsewhere", kept == (typed or {}) and page.locator("#toasts .error").count() == 0 and press.is_enabled(),
          [kept, page.locator("#toasts").inner_text()])
    press.click()
    check(f"{name}: the next try closes it", wait_until(lambda: page.locator("dialog").count() < open_before or not dialog.locator("form > [role=alert]").count(), 20), page.locator("dialog").all_inner_texts())


def fill_in(page, typed):
    for label, value in typed.items():
        page.locator("dialog").get_by_label(label, exact=True).fill(value)


def new_project(page, server):
    page.get_by_label("Project", exact=True).select_option("+")
    check("the field of a small dialog has the focus", wait_until(lambda: page.evaluate("document.activeElement.matches('dialog input')")))
    fill_in(page, {"Name": "Comic"})
    refused_then_taken(page, "new project", "**/api/v1/projects", "Create", {"Name": "Comic"})
    check("the project is made once", [p["name"] for p in server.get("/api/v1/projects")["items"]].count("Comic") == 1)
    page.get_by_label("Project", exact=True).select_option("default")


def new_things(page, server):
    tab(page, "elements")
    typed = {"Name": "Nova", "Description": "a tall woman in a red coat"}
    shown(page).get_by_text("New element").click()
    fill_in(page, typed)
    refused_then_taken(page, "new element", "**/projects/*/elements", "Create", typed)
    page.locator("dialog").get_by_label("Trigger").wait_for()  # it is opened at once
    page.keyboard.press("Escape")
    tab(page, "shots")
    for button, typed, address in (("New scene", {"Name": "Night", "Notes": "It rains."}, "**/projects/*/scenes"), ("New shot", {"What happens": "Ann runs"}, "**/projects/*/shots")):
        shown(page).get_by_text(button, exact=True).click()
        fill_in(page, typed)
        refused_then_taken(page, button.lower(), address, "Create", typed)


def gallery(page, server):
    tab(page, "gallery")
    page.locator(".cell:has(img)").first.click(modifiers=["Control"])
    bar = page.locator(".gallery-tab > .toolbar")
    bar.get_by_text("Add tags").click()
    fill_in(page, {"Tags": "night, patience"})
    refused_then_taken(page, "tags", "**/api/v1/assets/bulk", "Add tags", {"Tags": "night, patience"})
    bar.get_by_text("Move to a board").click()
    fill_in(page, {"Or a new one": "Circles"})
    refused_then_taken(page, "board", "**/api/v1/assets/bulk", "Move", {"Or a new one": "Circles"})
    boards = server.get("/api/v1/projects/default/boards")["items"]
    check("the new board is made once, and the image is in it", [(b["name"], b["images"]) for b in boards] == [("Circles", 1)], boards)
    bar.get_by_text("Add to an element").click()
    refused_then_taken(page, "image of an element", "**/elements/*/images", "Add to an element")
    bar.get_by_text("Clear the selection").click()
    server.send("/api/v1/projects/default/boards", {"name": "From elsewhere"})
    page.get_by_text("Filters", exact=True).click()
    check("a board that another window made can be chosen", wait_until(lambda: page.get_by_label("Board", exact=True).locator("option", has_text="From elsewhere").count() == 1, 10))
    page.get_by_text("Filters", exact=True).click()


def models(page, server):
    tab(page, "models")
    page.get_by_text("Hub token", exact=True).click()
    fill_in(page, {"New token": "hf_test"})
    with Refused(page, "**/settings/hub-token", "PUT"):
        page.locator("dialog").get_by_text("Save", exact=True).click()
        said = page.locator("dialog form > [role=alert]")
        check("token: a refusal is said inside the dialog, and the token stays", wait_until(lambda: MESSAGE in said.inner_text(), 10) and page.locator("dialog").get_by_label("New token").input_value() == "hf_test")
    page.keyboard.press("Escape")
    page.get_by_label("Remove toy-vae", exact=True).click()
    refused_then_taken(page, "remove a model", "**/api/v1/models/*", "Remove, keep files", method="DELETE")
    names = lambda: [m["name"] for m in server.get("/api/v1/models")["items"]]
    check("the model is removed", wait_until(lambda: "toy-vae" not in names()), names())
    page.get_by_text("Select all shown").click()
    chosen = len([m for m in server.get("/api/v1/models")["items"] if m["key"]])
    shown(page).locator(".toolbar").nth(1).get_by_text("Remove", exact=True).click()
    tiny = server.get("/api/v1/models/tiny")["key"]
    with Refused(page, f"**/api/v1/models/{tiny}?*", "DELETE"):
        page.get_by_text("Remove, keep files").click()
        said = page.locator("dialog form > [role=alert]")
        check("of several models, one is refused, which is said", wait_until(lambda: MESSAGE in said.inner_text(), 10) and (chosen == 1 or f"{chosen - 1} done, 1 failed" in said.inner_text()), said.inner_text())
    page.get_by_text("Remove, keep files").click()
    check("the next try removes that one", wait_until(lambda: page.locator("dialog").count() == 0 and "tiny" not in names()), names())
    page.get_by_text("Search the model folders").click()
    page.locator("dialog .ticks li").first.wait_for()
    refused_then_taken(page, "registering", "**/api/v1/models/install", "Register")
    check("what was ticked is registered", wait_until(lambda: "tiny" in " ".join(names())), names())


def deletions(page, server):
    tab(page, "shots")
    shown(page).get_by_label("Delete Shot 1").click()
    refused_then_taken(page, "delete a shot", "**/api/v1/shots/*", "Delete", method="DELETE")
    shown(page).get_by_label("Delete Forest").click()
    refused_then_taken(page, "delete a scene", "**/api/v1/scenes/*", "Delete", method="DELETE")
    tab(page, "elements")
    shown(page).get_by_label("Edit Nova").click()
    page.locator("dialog").get_by_text("Delete the element").click()
    wait_until(lambda: page.locator("dialog").count() == 2)
    refused_then_taken(page, "delete an element", "**/api/v1/elements/*", "Delete the element", method="DELETE")
    check("the element is deleted, and both dialogs close", wait_until(lambda: page.locator("dialog").count() == 0 and shown(page).get_by_label("Edit Nova").count() == 0))
    tab(page, "gallery")
    page.locator(".cell:has(img)").first.click(modifiers=["Control"])
    delete = page.locator(".gallery-tab > .toolbar").get_by_text("Delete", exact=True)
    clear_toasts(page)
    delete.click()
    check("an image that an element needs is not deleted, and stays", wait_until(lambda: "belongs to Ann" in page.locator("#toasts").inner_text() and page.locator(".cell:has(img)").count() == 1, 10)
          and "in the trash" not in page.locator("#toasts").inner_text(), page.locator("#toasts").inner_text())
    ann = next(e for e in server.get("/api/v1/projects/default/elements")["items"] if e["name"] == "Ann")
    server.send(f"/api/v1/elements/{ann['id']}/images/{ann['images'][0]}", None, "DELETE")
    clear_toasts(page)
    if not delete.count():
        page.locator(".cell:has(img)").first.click(modifiers=["Control"])
    delete.click()
    page.get_by_label("Trash", exact=True).click()
    page.locator(".cell:has(img)").first.wait_for()
    page.locator(".cell:has(img)").first.click()
    page.locator("dialog .detail dt").first.wait_for()
    page.locator("dialog").focus()
    page.keyboard.press("Delete")
    wait_until(lambda: page.locator("dialog").count() == 2)
    page.keyboard.press("Delete")
    page.keyboard.press("p")
    settle(page)
    check("keys are those of the question, not of the image below it", page.locator("dialog").count() == 2 and page.evaluate("location.hash") == "#gallery", page.locator("dialog").count())
    with Refused(page, "**/api/v1/assets/bulk"):
        page.locator("dialog").last.get_by_text("Delete permanently").last.click()
        check("an image that is not deleted stays", wait_until(lambda: MESSAGE in page.locator("dialog").last.inner_text(), 10) and server.get("/api/v1/assets?trash=1")["total"] == 1)
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")
    wait_until(lambda: page.locator("dialog").count() == 0)
    page.get_by_text("Empty the trash", exact=True).click()
    refused_then_taken(page, "empty the trash", "**/api/v1/trash?*", "Empty the trash", method="DELETE")
    check("the trash is empty", wait_until(lambda: server.get("/api/v1/assets?trash=1")["total"] == 0))
    page.get_by_label("Trash", exact=True).click()


def delete_project(page, project_id):
    page.get_by_label("Project", exact=True).select_option(project_id)
    page.get_by_label("Project settings").click()
    page.get_by_text("Delete the project").click()
    wait_until(lambda: page.locator("dialog").count() == 2)
    refused_then_taken(page, "delete a project", "**/api/v1/projects/*", "Delete, keep the images", method="DELETE")
    check("the project is deleted, and both dialogs close", wait_until(lambda: page.locator("dialog").count() == 0 and in_store(page, "project") == "default"))


def sending_state(page, server):
    """While the server works."""
    names = lambda: [p["name"] for p in server.get("/api/v1/projects")["items"]]
    dialog = page.locator("dialog")
    create = dialog.get_by_role("button", name="Create", exact=True)
    page.get_by_label("Project", exact=True).select_option("+")
    fill_in(page, {"Name": "Once"})
    with Held(page, "**/api/v1/projects", "POST") as held:
        page.keyboard.press("Enter")
        held.wait()
        page.keyboard.press("Enter")
        settle(page)
        check("while it is sent, the dialog is open and the button cannot be pressed", dialog.count() == 1 and create.is_disabled() and len(held.answers) == 1, len(held.answers))
    check("it closes with the answer, and was sent once", wait_until(lambda: dialog.count() == 0) and names().count("Once") == 1, names())
    page.get_by_label("Project", exact=True).select_option("+")
    fill_in(page, {"Name": "Too late"})
    with Refused(page, "**/api/v1/projects", holds=True) as held:
        page.keyboard.press("Enter")
        wait_until(lambda: page.wait_for_timeout(20) or held.held)
        page.keyboard.press("Escape")
        wait_until(lambda: dialog.count() == 0)
        held.release()
        check("a refusal that comes after the dialog was closed is said", wait_until(lambda: MESSAGE in page.locator("#toasts").inner_text(), 10), page.locator("#toasts").inner_text())
    clear_toasts(page)
    page.get_by_label("Project", exact=True).select_option("default")


def fields(page, server):
    """Fields that are stored when they change: rename an element, a model, a project."""
    dialog = page.locator("dialog")

    def look(what, label, address, stored):
        box = dialog.get_by_label(label, exact=True)
        said = dialog.locator(".field .error")
        with Refused(page, address, "PATCH"):
            box.fill("Another name")
            box.press("Tab")
            check(f"a refused name of {what} stays, with the reason beside it", wait_until(lambda: said.count() == 1 and MESSAGE in said.inner_text(), 10)
                  and box.input_value() == "Another name" and box.get_attribute("aria-invalid") == "true", dialog.inner_text())
        box.fill("A good name")
        box.press("Tab")
        check(f"the next name of {what} is stored, and the reason goes", wait_until(lambda: stored() == "A good name" and said.count() == 0), [stored(), dialog.inner_text()])
        page.keyboard.press("Escape")

    tab(page, "elements")
    ann = next(e["id"] for e in server.get("/api/v1/projects/default/elements")["items"] if e["name"] == "Ann")
    shown(page).get_by_label("Edit Ann").click()
    look("an element", "Name", "**/api/v1/elements/*", lambda: server.get(f"/api/v1/elements/{ann}")["name"])
    page.get_by_label("Project", exact=True).select_option(label="Once")
    page.get_by_label("Project settings").click()
    project = in_store(page, "project")
    look("a project", "Name", "**/api/v1/projects/*", lambda: server.get(f"/api/v1/projects/{project}")["name"])
    page.get_by_label("Project", exact=True).select_option("default")


def messages(page, server):
    """A message that comes while a dialog is open can be seen, read out and closed."""
    tab(page, "elements")
    shown(page).get_by_label("Edit A good name").click()
    with Refused(page, "**/elements/*/visualize"):
        page.locator("dialog").get_by_text("Generate an image of it").click()
        wait_until(lambda: page.locator("#toasts .error").count() == 1)
    inside = page.evaluate("['toasts', 'announcer'].every((id) => document.getElementById(id).closest('dialog'))")
    page.locator("#toasts").get_by_label("Close").click(timeout=5000)
    check("messages are inside an open dialog, where they can be read and closed", inside and page.locator("#toasts .error").count() == 0)
    page.keyboard.press("Escape")
    check("and outside when it has closed", wait_until(lambda: page.evaluate("['toasts', 'announcer'].every((id) => document.getElementById(id)?.parentElement === document.body)"), 10))


def images_in_order(page, server):
    """References are moved by keyboard: the focus goes with the image."""
    tab(page, "edit")
    shown(page).locator(".side input[type=file]").first.set_input_files([file_of(f"{n}.png", png(64, 64, lambda x, y, n=n: (80 * n, 4 * y, 0))) for n in range(3)])
    rows = shown(page).locator(".references li")
    wait_until(lambda: rows.count() == 3)
    sources = lambda: rows.locator("img").evaluate_all("(all) => all.map((i) => i.src)")
    first = sources()
    shown(page).get_by_label("Move image 3 up").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    check("an image is moved twice by the same key", wait_until(lambda: sources() == [first[2], first[0], first[1]], 10), sources())
    check("and the focus is still on it", page.evaluate("[...document.activeElement.closest('ol').children].indexOf(document.activeElement.closest('li'))") == 0)
