"""Counting comparisons: every compare() or equal() is one test with a name."""

import contextlib
import time
import traceback

import torch


def relative_error(ours, theirs):
    ours, theirs = ours.double(), theirs.double()
    return ((ours - theirs).norm() / theirs.norm().clamp_min(1e-30)).item()


class Report:
    def __init__(self, only=""):
        self.passed = self.failed = self.skipped = 0
        self.only = only
        self.worst = 0.0

    def wants(self, area):
        return self.only in area

    @contextlib.contextmanager
    def area(self, name):
        """Names what is compared inside; an exception there is one failure and does not stop the run."""
        start = time.monotonic()
        before = (self.passed, self.failed)
        self.worst = 0.0
        try:
            yield
        except Exception:
            traceback.print_exc()
            self._count(False, name, "ended early")
        good, bad = self.passed - before[0], self.failed - before[1]
        seconds = time.monotonic() - start
        print(f"{name}: {good} passed, {bad} failed, largest error {self.worst:.1e}, {seconds:.1f} s", flush=True)

    def compare(self, name, ours, theirs, tolerance=1e-4):
        """The relative error ‖ours − theirs‖ / ‖theirs‖, in float64, is at most the tolerance."""
        if ours.shape != theirs.shape:
            return self._count(False, name, f"shape {tuple(ours.shape)}, expected {tuple(theirs.shape)}")
        error = relative_error(ours, theirs)
        self.worst = max(self.worst, error)
        difference = (ours.double() - theirs.double()).abs()
        at = torch.unravel_index(difference.argmax(), difference.shape)
        place = [int(i) for i in at]
        values = f"{ours[at].item():.6g}, expected {theirs[at].item():.6g}"
        why = f"relative error {error:.2e} > {tolerance:.0e}; worst at {place}: {values}"
        self._count(error <= tolerance, name, why)  # false for NaN

    def equal(self, name, ours, theirs):
        self._count(ours == theirs, name, f"{_short(ours)}, expected {_short(theirs)}")

    def check(self, name, good, why):
        self._count(good, name, why)

    def skip(self, name, why):
        self.skipped += 1
        print(f"skipped {name}: {why}", flush=True)

    def _count(self, good, name, why):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {name}: {why}", flush=True)

    def closing_line(self):
        line = f"{self.passed} passed, {self.failed} failed"
        return f"{line}, {self.skipped} skipped" if self.skipped else line


def _short(value):
    text = repr(value)
    return text if len(text) < 200 else text[:200] + "…"
