"""What the checks of the page share: counting, opening pages, waiting, and servers of their own."""
import json, os, pathlib, shutil, signal, sqlite3, struct, subprocess, tempfile, time, urllib.request, zlib

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
passed, failed, problems = 0, 0, []


def check(name, holds, details=""):
    global passed, failed
    passed, failed = passed + bool(holds), failed + (not holds)
    print(f"{'ok    ' if holds else 'FAILED'} {name} {'' if holds else details}", flush=True)


def wait_until(call, seconds=60):
    until = time.time() + seconds
    while time.time() < until:
        if call():
            return True
        time.sleep(0.05)
    return False


class Api:
    """A server's HTTP interface."""

    def __init__(self, url):
        self.url = url

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as answer:
            return json.load(answer)

    def bytes(self, path):
        with urllib.request.urlopen(self.url + path) as answer:
            return answer.read()

    def send(self, path, body, method="POST"):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"content-type": "application/json"}, method=method)
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
            return json.loads(text) if text else None

    def last_job(self, **filters):
        query = "".join(f"&{name}={value}" for name, value in filters.items())
        items = self.get(f"/api/v1/jobs?limit=1{query}")["items"]
        return items[0] if items else None


class Server(Api):
    """A server with a data folder of its own, for what one cannot do to the shared one: end it, fill it, send it to a fake hub."""

    def __init__(self, program, *options, environment=None, config=""):
        super().__init__("")
        self.program, self.options, self.environment, self.process = program, options, environment or {}, None
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="flux2-page-"))
        if config:
            (self.home / "data").mkdir()
            (self.home / "data" / "config.toml").write_text(config)
        self.start()

    def start(self):
        """At the same address as before, if it ran before."""
        port = self.url.rsplit(":", 1)[1] if self.url else "0"
        environment = {**os.environ, "FLUX2_HOME": str(self.home / "data"), "HF_HOME": str(self.home / "hub"), **self.environment}
        environment.setdefault("FLUX2_BUNDLED", str(REPOSITORY / "models" / "pico"))
        log = self.home / "log"
        with log.open("w") as output, (self.home / "errors").open("a") as errors:
            self.process = subprocess.Popen([self.program, "serve", "--port", port, "--model", "pico", *self.options], stdout=output, stderr=errors, env=environment)
        if not wait_until(lambda: "http://" in log.read_text() or self.process.poll() is not None) or self.process.poll() is not None:
            raise RuntimeError("the server did not start: " + (self.home / "errors").read_text())
        self.url = "http://" + log.read_text().split("http://", 1)[1].split()[0].rstrip("/.,")

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()

    def kill(self):
        self.stop(signal.SIGKILL)

    def seconds_used(self):
        """Of the processor, since it was started."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def database(self):
        return sqlite3.connect(next((self.home / "data").glob("*.db")))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        shutil.rmtree(self.home, ignore_errors=True)


def open_page(browser, url, width=1280, height=800, **more):
    context = browser.new_context(viewport={"width": width, "height": height}, **more)
    context.set_default_timeout(60_000)
    return open_window(context, url)


def open_window(context, url):
    page = context.new_page()
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: message.type == "error" and problems.append(f"{message.text} {message.location.get('url', '')}"))
    page.on("request", lambda request: request.url.startswith((url, "data:", "blob:")) or problems.append("foreign request " + request.url))
    page.goto(url)
    page.wait_for_selector("nav a")
    return page


def reload(page):
    page.reload()
    page.wait_for_selector("nav a")


def tab(page, name):
    page.click(f"nav a[href='#{name}']")
    page.wait_for_selector("main > :not([hidden])")


def shown(page):
    return page.locator("main > :not([hidden])")


def finished(page, timeout=60_000):
    """The job has ended and its image is shown: only then there is something to do with it."""
    shown(page).locator(".stage img:not(.preview)").wait_for(timeout=timeout)
    shown(page).locator(".result > .actions:last-child > *").last.wait_for(timeout=timeout)


def first_paint(page):
    """In ms since the page was asked for."""
    wait_until(lambda: page.evaluate("performance.getEntriesByName('first-contentful-paint').length") == 1)
    return page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")


def plain_paint(browser, url):
    """The same of a document with one word, from the same server: what this machine needs for it while other programs run."""
    context = browser.new_context()
    page = context.new_page()
    page.route("**/*", lambda route: route.fulfill(status=200, content_type="text/html", body="<!doctype html><link rel=icon href=data:,><p>flux2"))
    page.goto(url)
    took = first_paint(page)
    context.close()
    return took


def fill(page, **values):
    """Fills controls of the form that is shown, by their names."""
    for name, value in values.items():
        shown(page).locator(f"[data-name={name}]").fill(str(value))


def clear_toasts(page):
    page.evaluate("document.getElementById('toasts').replaceChildren()")


class Held:
    """Holds back answers until release(): `with Held(page, "**/shots") as held`. An answer is as old as its request."""

    def __init__(self, page, address, method="GET"):
        self.page, self.address, self.method, self.answers = page, address, method, []

    def __enter__(self):
        self.page.route(self.address, self._take)
        return self

    def __exit__(self, *_):
        self.release()
        self.page.unroute(self.address, self._take)

    def _take(self, route):
        if route.request.method == self.method:
            self.answers.append((route, route.fetch()))
        else:
            route.fallback()

    def wait(self, count=1, seconds=30):
        """Until so many answers are held."""
        until = time.time() + seconds
        while len(self.answers) < count and time.time() < until:
            self.page.wait_for_timeout(20)
        if len(self.answers) < count:
            raise TimeoutError(f"{len(self.answers)} of {count} requests of {self.address}")

    def release(self, count=None):
        """The oldest ones, or all; and waits until the page has worked on them."""
        ready = self.answers[:count]
        del self.answers[:len(ready)]
        for route, answer in ready:
            route.fulfill(response=answer)
        settle(self.page)


def settle(page, ms=250):
    """For checks that something does not happen: what could happen has had time to."""
    page.wait_for_timeout(ms)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")


def new_project(page, name):
    """Makes a project, which is then the chosen one, and returns its id."""
    top = page.get_by_label("Project", exact=True)
    top.select_option("+")
    page.locator("dialog").get_by_label("Name").fill(name)
    page.keyboard.press("Enter")
    wait_until(lambda: top.locator("option:checked").inner_text() == name)
    return draft(page, "project")["id"]


def draft(page, name):
    """What the page keeps in the browser."""
    return json.loads(page.evaluate(f"localStorage['flux2.{name}'] || '{{}}'"))


def in_store(page, expression):
    """A value of what the page knows of the server."""
    return page.evaluate(f"import(document.querySelector('script[type=module]').src.replace('main.js', 'lib/store.js')).then(({{ store }}) => store.{expression})")


def pixels(page, url):
    """The samples of an image, decoded by the browser."""
    return page.evaluate("""async (url) => {
      const image = new Image(); image.src = url; await image.decode();
      const canvas = document.createElement("canvas"); canvas.width = image.naturalWidth; canvas.height = image.naturalHeight;
      const context = canvas.getContext("2d"); context.drawImage(image, 0, 0);
      return { width: canvas.width, height: canvas.height, data: [...context.getImageData(0, 0, canvas.width, canvas.height).data] };
    }""", url)


def png(width, height, colour):
    """A PNG whose pixel at (x, y) is colour(x, y)."""
    rows = b"".join(b"\0" + b"".join(bytes(colour(x, y)) for x in range(width)) for y in range(height))
    chunk = lambda name, data: struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b""))


def file_of(name, data, mime="image/png"):
    return {"name": name, "mimeType": mime, "buffer": data}
