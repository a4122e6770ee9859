"""Checks of the tab Shots, and of prompts that a language model rewrites."""
import http.server, json, threading

from page_support import Held, Server, check, clear_toasts, file_of, fill, new_project, open_page, open_window, png, problems, reload, settle, shown, tab, wait_until

ANSWER = "A red fox in deep snow, morning light."


def shots(page, api):
    project = new_project(page, "Story")
    api.send(f"/api/v1/projects/{project}", {"width": 64, "height": 64}, "PATCH")
    api.send(f"/api/v1/projects/{project}/elements", {"name": "Ann", "type": "character", "description": "a girl with red hair"})
    stored = lambda: api.get(f"/api/v1/projects/{project}/shots")["items"]
    scenes = lambda: api.get(f"/api/v1/projects/{project}/scenes")["items"]
    tab(page, "shots")
    cards, dialog = shown(page).locator(".shot"), page.locator("dialog")
    check("an empty project says what shots are for", wait_until(lambda: "what happens" in shown(page).locator(".empty").inner_text()))
    shown(page).get_by_text("New scene").click()
    dialog.get_by_label("Name").fill("Forest, day")
    page.keyboard.press("Enter")
    check("a scene is made", wait_until(lambda: shown(page).locator(".scene h2").all_inner_texts() == ["Forest, day"]))

    def new_shot(action):
        count = cards.count()
        shown(page).get_by_text("New shot", exact=True).click()
        dialog.get_by_label("What happens").fill(action)
        dialog.get_by_text("Create", exact=True).click()
        wait_until(lambda: cards.count() == count + 1 and dialog.count() == 0)

    new_shot("Birds sing")
    shown(page).get_by_text("New shot", exact=True).click()
    dialog.get_by_label("What happens").press_sequentially("@an")
    check("@ offers the elements", wait_until(lambda: "@Ann" in dialog.locator(".completion").inner_text()))
    page.keyboard.press("Enter")
    dialog.get_by_label("What happens").press_sequentially("runs past the trees")
    dialog.get_by_text("Create", exact=True).click()
    wait_until(lambda: cards.count() == 2 and dialog.count() == 0)
    new_shot("Night falls")
    check("shots are made in the scene", [s["action"] for s in stored()] == ["Birds sing", "@Ann runs past the trees", "Night falls"]
          and all(s["scene_id"] == scenes()[0]["id"] for s in stored()), stored())
    moving(page, api, stored)
    reload(page)
    check("a reload shows the same order", wait_until(lambda: cards.count() == 3 and "Ann" in cards.first.inner_text()))

    shown(page).get_by_label("Edit Shot 1").click()
    dialog.get_by_label("Kind of shot").fill("close-up")
    dialog.get_by_label("Steps").fill("2")
    dialog.get_by_label("Steps").press("Tab")
    check("what is changed is stored at once", wait_until(lambda: stored()[0]["shot_type"] == "close-up" and stored()[0]["steps"] == 2), stored()[0])
    expected = len(problems)
    dialog.get_by_label("Width").fill("5")
    dialog.get_by_label("Width").press("Tab")
    said = dialog.locator(".field .error")
    check("a wrong value is refused beside it and stays", wait_until(lambda: said.count() == 1 and "width" in said.inner_text()) and dialog.get_by_label("Width").input_value() == "5"
          and dialog.get_by_label("Width").get_attribute("aria-invalid") == "true", dialog.inner_text())
    del problems[expected:]  # the answer 400
    dialog.get_by_label("Width").fill("")
    dialog.get_by_label("Width").press("Tab")
    check("the words go when it is right", wait_until(lambda: said.count() == 0), dialog.inner_text())
    page.keyboard.press("Escape")
    check("the card shows it", wait_until(lambda: "close-up" in cards.first.inner_text()), cards.first.inner_text())
    shown(page).get_by_text("Find elements").click()
    check("elements are found in shots", wait_until(lambda: cards.first.locator(".facts span", has_text="Ann").count() == 1), cards.first.inner_text())

    shown(page).get_by_label("Generate Shot 1").click()
    check("an image of a shot is generated and shown", wait_until(lambda: cards.first.locator("img").count() == 1, 60) and api.last_job(kind="shot")["state"] == "completed", cards.first.inner_text())
    prompt = api.last_job(kind="shot")["resolved"]["prompt"]
    check("its prompt has the scene, the kind of shot and the element", all(part in prompt for part in ("Forest, day", "close-up", "a girl with red hair")), prompt)
    check("it can be generated again", wait_until(lambda: shown(page).get_by_label("Generate Shot 1").is_enabled()))
    shown(page).get_by_label("Open the image of Shot 1").click()
    check("its image opens with its settings", wait_until(lambda: dialog.locator("img").count() >= 1 and "Forest, day" in dialog.inner_text()))
    page.keyboard.press("Escape")
    for shot in stored():
        api.send(f"/api/v1/shots/{shot['id']}", {"steps": 2}, "PATCH")
    shown(page).get_by_text("Generate missing images").click()
    check("missing images are generated together", wait_until(lambda: cards.locator("img").count() == 3, 90), cards.all_inner_texts())
    check("then there is nothing missing", wait_until(lambda: shown(page).get_by_text("Generate missing images").is_hidden()))

    other = open_window(page.context, api.url)
    tab(other, "shots")
    wait_until(lambda: shown(other).locator(".shot").count() == 3)
    api.send(f"/api/v1/shots/{stored()[2]['id']}", {"action": "The moon rises"}, "PATCH")
    check("every window shows a change", wait_until(lambda: all("The moon rises" in shown(w).inner_text() for w in (page, other))), shown(page).inner_text())
    other.close()

    shown(page).get_by_text("New scene").click()
    dialog.get_by_label("Name").fill("Harbour")
    page.keyboard.press("Enter")
    wait_until(lambda: len(scenes()) == 2)
    shown(page).get_by_label("Move Harbour up").click()
    check("scenes are moved", wait_until(lambda: [s["name"] for s in scenes()] == ["Harbour", "Forest, day"]) and shown(page).locator(".scene h2").first.inner_text() == "Harbour", scenes())
    shown(page).get_by_label("Edit Shot 3").click()
    dialog.get_by_label("Scene", exact=True).select_option(label="Harbour")
    wait_until(lambda: stored()[0]["action"] == "The moon rises")
    page.keyboard.press("Escape")
    check("a shot goes to another scene", wait_until(lambda: "The moon rises" in shown(page).get_by_role("region", name="Harbour").inner_text()), shown(page).inner_text())
    shown(page).get_by_label("Delete Forest, day").click()
    dialog.get_by_text("Delete", exact=True).click()
    check("a scene is deleted, its shots stay", wait_until(lambda: len(scenes()) == 1 and len(stored()) == 3 and "Without a scene" in shown(page).inner_text()), shown(page).inner_text())
    shown(page).get_by_label("Delete Shot 1").click()
    dialog.get_by_text("Delete", exact=True).click()
    check("a shot is deleted", wait_until(lambda: len(stored()) == 2 and cards.count() == 2), stored())
    page.get_by_label("Project", exact=True).select_option("default")
    check("another project has its own shots", wait_until(lambda: cards.count() == 0), cards.count())


def moving(page, api, stored):
    """Shots are moved while older answers are on their way, and while changes are."""
    shots, cards = "**/projects/*/shots", shown(page).locator(".shot")
    listed = lambda: [text[:4] for text in cards.locator("p:first-of-type").all_inner_texts()]
    kept = lambda: [s["action"][:4] for s in stored()]
    touch = lambda: api.send(f"/api/v1/shots/{stored()[2]['id']}", {"dialogue": "Good night"}, "PATCH")  # its event makes the page read

    def press(label):
        shown(page).get_by_label(label).focus()
        page.keyboard.press("Enter")

    with Held(page, shots) as held:
        touch()
        held.wait()
        press("Move Shot 2 up")
        check("a shot is moved by keyboard, and shown at once", listed() == ["@Ann", "Bird", "Nigh"], listed())
        wait_until(lambda: kept() == ["@Ann", "Bird", "Nigh"])
        held.release(1)
        check("an order that was read before does not undo it", listed() == ["@Ann", "Bird", "Nigh"], listed())
    check("the server keeps the order", wait_until(lambda: kept() == ["@Ann", "Bird", "Nigh"]), stored())
    check("the first shot cannot go up", wait_until(lambda: shown(page).get_by_label("Move Shot 1 up").is_disabled()))
    page.wait_for_timeout(500)  # no read is on its way
    with page.expect_response(shots):
        touch()
    page.wait_for_timeout(300)
    press("Move Shot 3 up")
    check("also after a read that changed nothing", listed() == ["@Ann", "Nigh", "Bird"], listed())
    press("Move Shot 2 down")
    check("and back, before the server has answered", listed() == ["@Ann", "Bird", "Nigh"], listed())
    check("the server has the last order", wait_until(lambda: kept() == ["@Ann", "Bird", "Nigh"]) and listed() == kept(), [listed(), kept()])
    page.wait_for_timeout(500)

    late = []
    hold_one = lambda route: late.append(route) if route.request.method == "PATCH" and not late else route.fallback()
    press("Move Shot 2 up")
    wait_until(lambda: kept() == ["Bird", "@Ann", "Nigh"])
    page.wait_for_timeout(500)
    page.route("**/api/v1/shots/*", hold_one)
    press("Move Shot 2 up")
    settle(page, 700)  # the event of the other shot makes the page read
    check("a move that is half stored is not shown", listed() == ["@Ann", "Bird", "Nigh"] and kept() == ["Bird", "@Ann", "Nigh"] and len(late) == 1, [listed(), kept()])
    late[0].continue_()
    page.unroute("**/api/v1/shots/*", hold_one)
    check("then it is stored", wait_until(lambda: kept() == ["@Ann", "Bird", "Nigh"]) and wait_until(lambda: listed() == kept()), [listed(), kept()])

    api.send("/api/v1/queue/pause", {})
    generate = shown(page).get_by_label("Generate Shot 3")
    with Held(page, shots) as held:
        touch()
        held.wait()
        generate.click()
        wait_until(lambda: stored()[2]["status"] == "queued")
        check("a shot that is generated says so", wait_until(lambda: generate.is_disabled()))
        held.release(1)
        check("and an older answer does not undo it", generate.is_disabled(), cards.nth(2).inner_text())
    api.send(f"/api/v1/jobs/{stored()[2]['last_job_id']}/cancel", {})
    api.send("/api/v1/queue/resume", {})
    check("after it is cancelled, it can be generated again", wait_until(lambda: generate.is_enabled()), cards.nth(2).inner_text())


def rewriting(browser, program):
    """A chat service that takes its time, answers, and fails."""
    with Server(program) as server:
        page = open_page(browser, server.url)
        check("without a language model, expanding a prompt is not offered", page.get_by_text("History", exact=True).first.is_visible() and page.get_by_text("Expand", exact=True).first.is_hidden())
        page.context.close()
    service = FakeChat()
    try:
        with Server(program, config=f'[upsample]\nurl = "{service.url}/v1"\nmodel = "tester"\n') as server:
            rewriting_steps(open_page(browser, server.url), service)
    finally:
        service.close()


def rewriting_steps(page, service):
    prompt, dialog = shown(page).locator("[data-name=prompt]"), page.locator("dialog")
    result = lambda: dialog.get_by_label("Result")
    expand = lambda: shown(page).get_by_text("Expand", exact=True).click()
    expand()
    check("without a prompt it says what is missing", wait_until(lambda: "prompt first" in page.locator("#toasts").inner_text()) and dialog.count() == 0)
    clear_toasts(page)
    prompt.fill("a fox")
    service.may_answer.clear()
    expand()
    check("while it writes, that is shown, and where the prompt goes", wait_until(lambda: "Writing" in dialog.inner_text() and "tester at 127.0.0.1" in dialog.inner_text()
          and dialog.get_by_text("Replace the prompt").is_disabled()), dialog.inner_text())
    check("the server's models are offered", dialog.get_by_label("Language model").locator("option").all_inner_texts() == ["http · tester", "ollama · tester"])
    service.may_answer.set()
    check("the result is shown", wait_until(lambda: result().is_visible() and result().input_value() == ANSWER), dialog.inner_text())
    check("the service gets the prompt", "a fox" in json.dumps(service.asked[-1]["messages"]), service.asked[-1])
    dialog.get_by_text("Replace the prompt").click()
    check("it replaces the prompt", wait_until(lambda: prompt.input_value() == ANSWER), prompt.input_value())
    page.locator("#toasts").get_by_text("Undo").click()
    check("that can be undone", wait_until(lambda: prompt.input_value() == "a fox"), prompt.input_value())
    expand()
    wait_until(lambda: result().is_visible())
    result().fill("In a wood.")
    dialog.get_by_text("Add to the prompt").click()
    check("a result that was changed is added to the prompt", wait_until(lambda: prompt.input_value() == "a fox\nIn a wood."), prompt.input_value())
    prompt.fill("a fox")
    expand()
    wait_until(lambda: result().is_visible())
    dialog.get_by_text("Discard").click()
    check("it can be discarded", wait_until(lambda: dialog.count() == 0) and prompt.input_value() == "a fox")
    expected = len(problems)
    service.answer = "nonsense"
    expand()
    check("a failure is said in words", wait_until(lambda: "not rewritten" in dialog.locator(".form [role=alert]").inner_text(), 60), dialog.inner_text())
    service.answer = ANSWER
    dialog.get_by_text("Try again").click()
    check("another try works", wait_until(lambda: result().is_visible() and result().input_value() == ANSWER), dialog.inner_text())
    del problems[expected:]  # the answer 502
    page.keyboard.press("Escape")
    service.may_answer.clear()
    expand()
    wait_until(lambda: service.waiting == 1)
    page.keyboard.press("Escape")
    with page.expect_response("**/prompt/rewrite"):
        service.may_answer.set()
    check("an answer that comes too late changes nothing", prompt.input_value() == "a fox" and dialog.count() == 0)
    tab(page, "edit")
    shown(page).locator("input[type=file]").first.set_input_files([file_of("a.png", png(64, 64, lambda x, y: (x, y, 90)))])
    wait_until(lambda: shown(page).locator(".references li").count() == 1)
    fill(page, prompt="make it winter")
    shown(page).get_by_text("Expand", exact=True).click()
    check("in Edit, the images go along", wait_until(lambda: result().count() == 1 and result().is_visible()) and "image_url" in json.dumps(service.asked[-1]), dialog.inner_text())
    page.context.close()


class FakeChat:
    """A chat service that answers as OpenAI's does, when it may."""

    def __init__(self):
        self.asked, self.answer, self.waiting = [], ANSWER, 0
        self.may_answer = threading.Event()
        self.may_answer.set()
        chat = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                chat.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                chat.waiting += 1
                chat.may_answer.wait(60)
                chat.waiting -= 1
                body = chat.answer if chat.answer == "nonsense" else json.dumps({"choices": [{"message": {"content": chat.answer}}], "usage": {"completion_tokens": 9}})
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.may_answer.set()
        self.server.shutdown()
        self.server.server_close()
