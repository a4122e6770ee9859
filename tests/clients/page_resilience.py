"""Checks of what the page does when things go wrong or grow large: a server that is killed, reloads, many images, many generations."""
import time

from page_support import Server, check, draft, fill, finished, open_page, open_window, problems, reload, shown, tab, wait_until
