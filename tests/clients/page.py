"""Uses the web page as a person would, in a real browser. Prints one line per check."""
import argparse, pathlib, sys, time, traceback

from playwright.sync_api import sync_playwright

import page_dialogs, page_edit, page_frame, page_gallery, page_generate, page_models, page_races, page_refusals, page_resilience, page_shots, page_studio, page_support, page_training
from page_support import Api, check, problems

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("url")
arguments.add_argument("chromium")
arguments.add_argument("--locked", help="a server with the key \"a key of this test\"")
arguments.add_argument("--data", type=pathlib.Path, help="the server's data folder")
arguments.add_argument("--program", help="flux2, for checks that start servers of their own")
arguments.add_argument("--screenshots", type=pathlib.Path, help="a folder for images of every tab")
arguments.add_argument("--only", help="names of steps, with commas between them; for work on the page")
arguments = arguments.parse_args()
api = Api(arguments.url)


class Steps:
    """The ways in which a step is called."""

    def __init__(self, browser):
        self.browser = browser
        self.page = None  # the one that most steps use, one after the other

    def first(self, step):
        self.page = step(self.browser, api)

    def with_page(self, step, *more):
        self.page = self.page or page_support.open_page(self.browser, arguments.url)
        step(self.page, api, *more)

    def alone(self, step, *more):
        """It opens pages of its own."""
        step(self.browser, api, *more)

    def own_server(self, step, *more):
        step(self.browser, arguments.program, *more)

    def all(self):
        """Name, way, what is called, and the route that the server must answer: not every build has everything."""
        return [
            ("first_image", self.first, [page_generate.first_image]),
            ("sizes_and_batches", self.with_page, [page_generate.sizes_and_batches]),
            ("regions", self.with_page, [page_generate.regions]),
            ("image_prompts", self.with_page, [page_generate.image_prompts]),
            ("prompt_tools", self.with_page, [page_generate.prompt_tools]),
            ("grid", self.with_page, [page_generate.grid]),
            ("queue", self.with_page, [page_generate.queue]),
            ("cancelling", self.with_page, [page_generate.cancelling]),
            ("inputs", self.alone, [page_edit.inputs]),
            ("editing", self.with_page, [page_edit.editing]),
            ("inpainting", self.with_page, [page_edit.inpainting]),
            ("mask_tools", self.with_page, [page_edit.mask_tools]),
            ("gallery", self.with_page, [page_gallery.gallery]),
            ("training", self.with_page, [page_training.training]),
            ("model_details", self.with_page, [page_models.details, arguments.data]),
            ("forecasts", self.with_page, [page_training.forecasts]),
            ("training_stop", self.with_page, [page_training.stop]),
            ("projects", self.with_page, [page_frame.projects]),
            ("model", self.with_page, [page_frame.model]),
            ("elements", self.with_page, [page_studio.elements], "/api/v1/resolve"),
            ("archives", self.with_page, [page_studio.archives], "/api/v1/projects/import"),
            ("shots", self.with_page, [page_shots.shots], "/api/v1/shots/{id}"),
            ("two_windows", self.with_page, [page_frame.two_windows]),
            ("keyboard_only", self.alone, [page_frame.keyboard_only]),
            ("connection", self.alone, [page_frame.connection]),
            ("late_answers", self.own_server, [page_races.late_answers], "/api/v1/resolve"),
            ("new_person", self.own_server, [page_resilience.new_person]),
            ("installing", self.own_server, [page_models.installing]),
            ("upkeep", self.own_server, [page_models.upkeep]),
            ("masks", self.own_server, [page_studio.masks], "/api/v1/mask/text"),
            ("rewriting", self.own_server, [page_shots.rewriting]),
            ("many_images", self.own_server, [page_resilience.many_images]),
            ("many_generations", self.own_server, [page_resilience.many_generations]),
            ("weight", self.alone, [page_frame.weight]),
            ("language", self.alone, [page_frame.language]),
            ("looks", self.alone, [page_frame.looks, arguments.screenshots]),
            ("refusals", self.own_server, [page_refusals.refusals], "/api/v1/shots/{id}"),
            ("dialogs", self.own_server, [page_dialogs.dialogs, arguments.screenshots], "/api/v1/shots/{id}"),
            ("locked_server", self.alone, [page_frame.locked_server, arguments.locked]),
        ]


with sync_playwright() as playwright:
    browser = playwright.chromium.launch(executable_path=arguments.chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
    steps = Steps(browser)
    paths = api.get("/api/v1/openapi.json")["paths"]
    for name, way, called, *needed in steps.all():
        if any(path not in paths for path in needed):
            print(f"       {name}: this server does not answer {needed[0]}")
            continue
        if arguments.only and name not in arguments.only.split(",") or name == "locked_server" and not arguments.locked:
            continue
        started, known = time.time(), len(problems)
        try:
            way(*called)
        except Exception as error:  # the other steps are tried as well, with a new page
            traceback.print_exc(limit=-3)
            check(f"{name} comes to its end", False, str(error).splitlines()[0])
            steps.page = None
        print(f"       {name}: {time.time() - started:.1f} s", *problems[known:], flush=True)
    check("no error in the console, no request to another machine", not problems, problems[:5])
    browser.close()
print(f"{page_support.passed} passed, {page_support.failed} failed")
sys.exit(page_support.failed > 0)
