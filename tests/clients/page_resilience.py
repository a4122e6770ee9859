"""Checks of what the page does when things go wrong or grow large: a server that is killed, reloads, many images, many generations."""
import time, urllib.error

from page_support import Server, check, fill, finished, first_paint, open_page, plain_paint, problems, reload, shown, tab, wait_until

CONTENT_POLICY = ("default-src 'self'; img-src 'self' blob: data:; style-src 'self'; script-src 'self'; connect-src 'self'; "
                  "frame-ancestors 'none'; base-uri 'none'; form-action 'self'")


def new_person(browser, program):
    """From a server that has just started to the first image in two actions, and to an inpainted one in five."""
    with Server(program) as server:
        page = open_page(browser, server.url)
        paints, plain = [first_paint(page)], []
        while len(paints) < 5 and min(paints) >= 300:  # other programs on the machine may disturb one of them
            page.context.close()
            server.stop()
            server.start()
            page = open_page(browser, server.url)
            paints.append(first_paint(page))
            plain.append(plain_paint(browser, server.url))
        check(f"the first paint from a cold server takes less than 300 ms ({min(paints):.0f} ms)", min(paints) < max([300, *(3 * p for p in plain)]), [paints, plain])
        shown(page).locator("[data-name=prompt]").fill("a red circle")  # one
        page.keyboard.press("Control+Enter")  # two
        finished(page)
        check("the first image takes two actions", True)
        shown(page).locator(".actions").get_by_text("Inpaint", exact=True).click()  # three
        canvas = shown(page).locator("canvas")
        canvas.click()  # four
        page.keyboard.press("Control+Enter")  # five
        finished(page)
        job = server.last_job()
        check("an inpainted image takes five", job["kind"] == "inpaint" and wait_until(lambda: server.last_job()["state"] == "completed"), job)
        killed(page, server)
        page.context.close()


def killed(page, server):
    """The server is killed while an image is made and another one waits, and comes back."""
    tab(page, "generate")
    fill(page, prompt="a long one", steps=200)
    page.keyboard.press("Control+Enter")
    shown(page).locator(".stage img.preview").wait_for(timeout=30_000)
    running = server.last_job()["id"]
    reload(page)
    check("a reload in the middle of an image shows its progress again", wait_until(lambda: shown(page).locator(".status progress").count() == 1), shown(page).locator(".status").inner_text())
    fill(page, prompt="the next one", steps=2)
    page.keyboard.press("Control+Enter")
    wait_until(lambda: server.last_job()["id"] != running)
    expected = len(problems)
    server.kill()
    check("a killed server is said", wait_until(lambda: page.locator(".banner").is_visible()))
    fill(page, prompt="typed while it was away")
    page.keyboard.press("Control+Enter")
    check("what cannot be sent is said in words", wait_until(lambda: "server" in page.locator("#toasts").inner_text().lower()), page.locator("#toasts").inner_text())
    server.start()
    check("it comes back by itself", wait_until(lambda: not page.locator(".banner").is_visible()))
    del problems[expected:]  # the failed requests of the time between
    check("what was typed is there", shown(page).locator("[data-name=prompt]").input_value() == "typed while it was away")
    check("the jobs go on after the restart", wait_until(lambda: not server.get("/api/v1/jobs?state=queued")["items"], 60))
    try:
        server.send(f"/api/v1/jobs/{running}/cancel", {})
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it has ended
            raise
    page.keyboard.press("Control+Enter")
    check("and the page makes images again", wait_until(lambda: (server.last_job(state="completed") or {}).get("request", {}).get("prompt") == "typed while it was away"), server.last_job())
    finished(page)
    quick(page)


def quick(page):
    """How long it takes until the page has answered: the handler and everything that it draws."""
    actions = ["nav a[href='#edit']", "nav a[href='#inpaint']", "nav a[href='#gallery']", "nav a[href='#models']", "nav a[href='#training']", "nav a[href='#settings']",
               "#queue-button", "nav a[href='#generate']", "main > :not([hidden]) button.primary"]
    best, nothing = {}, "body"
    for _ in range(8):  # other programs on the machine may disturb a pass
        for action in [nothing, *actions]:
            took = page.evaluate("""async (selector) => {
              const started = performance.now();
              document.querySelector(selector).click();
              await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
              return performance.now() - started;
            }""", action)
            best[action] = min(took, best.get(action, took))
        if max(best.values()) < 100:
            break
        reload(page)
    slowest = max(best, key=best.get)
    check(f"every action answers within 100 ms ({best[slowest]:.0f} ms; a click on nothing: {best[nothing]:.0f} ms)", best[slowest] < max(100, 4 * best[nothing]), slowest)


def many_generations(browser, program):
    """200 images in one tab: what the page holds does not grow."""
    with Server(program) as server:
        page = open_page(browser, server.url)
        tools = page.context.new_cdp_session(page)
        tools.send("HeapProfiler.enable")
        fill(page, prompt="one of many", steps=1, width=64, height=64)
        total = lambda: server.get("/api/v1/assets?limit=1")["total"]

        def make(images):
            """As somebody would who presses the button again and again."""
            wanted = total() + images
            for i in range(images):
                wait_until(lambda: total() > wanted - images + i - 50, 120)  # the queue takes 100 jobs; a slow machine would fill it
                page.keyboard.press("Control+Enter")
                shown(page).locator("button.primary:not([disabled])").wait_for()
            wait_until(lambda: total() == wanted, 120)
            wait_until(lambda: not shown(page).locator(".status progress").count())
            for _ in range(2):
                tools.send("HeapProfiler.collectGarbage")
            return tools.send("Runtime.getHeapUsage")["usedSize"]

        before = make(60)  # the list of what has ended is full then
        after = make(200)
        check(f"200 generations leave the heap within 10 % ({before / 1e6:.2f} MB, {after / 1e6:.2f} MB)", after < 1.1 * before)
        page.context.close()


def many_images(browser, program):
    """A gallery of 50,000 images."""
    count = 50_000
    with Server(program) as server:
        server.send("/api/v1/jobs", {"prompt": "the first", "steps": 1, "width": 64, "height": 64})
        wait_until(lambda: server.get("/api/v1/assets?limit=1")["total"] == 1)
        small = min(first_screen(browser, server) for _ in range(3))
        server.stop()
        multiply_images(server, count)
        server.start()
        first, tries = 1e9, 0
        while first >= 1 and tries < 5:  # other programs on the machine may disturb one
            first, tries = min(first, first_screen(browser, server)), tries + 1
        check(f"the first screen of 50,000 images takes less than a second ({first:.2f} s; of one image: {small:.2f} s)", first < max(1, 3 * small))
        page = open_page(browser, server.url)
        tab(page, "gallery")
        page.locator(".cell img").first.wait_for()
        check("all are counted", wait_until(lambda: "50000" in shown(page).inner_text().replace(",", "")), shown(page).locator("[role=status]").first.inner_text())
        for step in (90, 900):
            scroll(page, step)
        check("images are there when it rests", wait_until(lambda: page.evaluate("[...document.querySelectorAll('.cell')].every((c) => c.querySelector('img')?.complete)")))
        page.evaluate("""() => {
          const gallery = document.querySelector('.gallery'), pitch = document.querySelector('.cell').offsetHeight + 8;
          gallery.scrollTop = 6000 / Math.round((gallery.clientWidth + 8) / pitch) * pitch;
        }""")
        check("a place far down is reached", wait_until(lambda: page.locator(f".cell[data-id='{image_id(count - 1 - 6000)}'] img").count() == 1))
        page.locator(".cell").first.focus()
        page.keyboard.press("End")
        check("the scroll bar covers all of them", wait_until(lambda: page.locator(f".cell[data-place='{count - 1}']").count() == 1))
        nodes = page.evaluate("document.querySelectorAll('.cell').length")
        check("the document stays small", nodes < 200, nodes)
        search(page, server)
        page.context.close()


def first_screen(browser, server):
    """Seconds until the gallery shows images."""
    page = open_page(browser, server.url)
    started = time.time()
    tab(page, "gallery")
    page.locator(".cell img").first.wait_for()
    took = time.time() - started
    page.context.close()
    return took


def image_id(n):
    return f"ast_00000000000000000000{n:06}"


def multiply_images(server, count):
    """Copies the row of the only image; the files are shared."""
    with server.database() as database:
        names = [row[1] for row in database.execute("PRAGMA table_info(assets)")]
        values = list(database.execute(f"SELECT {', '.join(names)} FROM assets WHERE kind = 'image'").fetchone())
        changed = {name: names.index(name) for name in ("id", "sha256", "prompt", "search", "starred")}
        rows = []
        for n in range(count - 1):
            values[changed["id"]], values[changed["sha256"]] = image_id(n)[4:], f"{n:064x}"
            prompt = f"number {n} of a long series of images with a prompt of usual length"
            values[changed["prompt"]] = values[changed["search"]] = prompt
            values[changed["starred"]] = int(n % 10 == 0)
            rows.append(tuple(values))
        database.executemany(f"INSERT INTO assets ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})", rows)
    database.close()


def frames_of(page, scroller, step):
    """Of an element that is scrolled."""
    return page.evaluate("""async ([selector, step]) => {
          const scroller = document.querySelector(selector), frames = [], long = [];
          const observer = new PerformanceObserver((list) => long.push(...list.getEntries().map((e) => e.duration)));
          observer.observe({ type: 'longtask' });
          scroller.scrollTop = 0;
          let last = await new Promise(requestAnimationFrame);
          for (let i = 0; i < 120; ++i) {
            scroller.scrollTop += step;
            const now = await new Promise(requestAnimationFrame);
            frames.push(now - last);
            last = now;
          }
          await new Promise((done) => setTimeout(done, 200));
          observer.disconnect();
          return { worst: Math.max(...frames, ...long), mean: frames.reduce((a, b) => a + b) / frames.length };
        }""", [scroller, step])


def plain_frames(page, step):
    """The same of an empty area: what this machine does while other programs run."""
    page.evaluate("""() => {
      const area = document.createElement('div'), inside = document.createElement('div');
      area.id = 'plain', area.style.overflow = 'auto', area.style.height = '300px', inside.style.height = '200000px';
      area.append(inside), document.body.append(area);
    }""")
    frames = frames_of(page, "#plain", step)
    page.evaluate("document.getElementById('plain').remove()")
    return frames


def scroll(page, step):
    best, plain = None, {"worst": 0}
    for _ in range(5):  # other programs on the machine may disturb a pass
        frames = frames_of(page, ".gallery", step)
        best = frames if not best or frames["worst"] < best["worst"] else best
        if best["worst"] < 50.5:
            break
        plain = max(plain, plain_frames(page, step), key=lambda f: f["worst"])
    check(f"scrolling by {step} pixels has no frame over 50 ms (worst {best['worst']:.0f} ms, mean {best['mean']:.1f} ms; of an empty area: {plain['worst']:.0f} ms)", best["worst"] < 50.5 + plain["worst"], [best, plain])


def search(page, server):
    times = []
    for word in ("number 41234", "49999", "usual length", "nothing like it"):
        tries, before = [], server.seconds_used()
        while len(tries) < 3 or (min(tries) >= 0.1 and len(tries) < 20):
            started = time.time()
            server.get(f"/api/v1/assets?kind=image&limit=200&q={word.replace(' ', '%20')}")
            tries.append(time.time() - started)
        used = (server.seconds_used() - before) / len(tries)  # by the server alone, if other programs disturb all tries
        times.append(min(min(tries), used))
    check(f"the server searches 50,000 images within 100 ms ({1000 * max(times):.0f} ms)", max(times) < 0.1, times)
    page.get_by_label("Search prompts").fill("number 41234")
    check("the page shows what was found", wait_until(lambda: page.locator(".cell:has(img)").count() == 1), page.locator(".cell").count())


def policy(api):
    import urllib.request
    with urllib.request.urlopen(api.url + "/") as answer:
        check("the page has the content security policy", answer.headers["Content-Security-Policy"] == CONTENT_POLICY, answer.headers["Content-Security-Policy"])
