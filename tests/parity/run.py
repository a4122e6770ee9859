"""Runs all comparisons: python run.py --program build/flux2 [--only WORD]. The last line counts them."""

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import sys
import tempfile
import traceback
import warnings

import torch
from diffusers.utils import logging as diffusers_logging
from transformers.utils import logging as transformers_logging

import autoencoder
import classifier
import clip
import dev
import editing
import folders
import generation
import gguf_files
import hub_cache
import image_prompts
import layouts
import peft_files
import regions
import schedules
import tokens
import training
import training_caches
import training_files
import training_image_prompts
import training_parts
import upscaler
import vision
import watermarks
from program import Program
from report import Report


PARTS = [schedules, tokens, autoencoder, generation, dev, vision, editing, regions, clip, image_prompts, layouts, gguf_files, peft_files,
         hub_cache, folders, training, training_caches, training_files, training_image_prompts, training_parts, upscaler, watermarks, classifier]  # fmt: skip


def run_part(number, arguments):
    """One part, beside others. Returns how many comparisons passed, failed and were skipped."""
    torch.manual_seed(0)
    torch.set_num_threads(max(1, os.cpu_count() // arguments.jobs))
    part, report = PARTS[number], Report(arguments.only)
    with tempfile.TemporaryDirectory(prefix="flux2-parity-") as folder:
        scratch = pathlib.Path(folder)
        try:
            part.run(report, Program(arguments.program, scratch), scratch)
        except Exception:  # outside of an area
            traceback.print_exc()
            report.failed += 1
    return report.passed, report.failed, report.skipped


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/flux2")
    parser.add_argument("--only", default="", help="run the areas whose name contains this")
    parser.add_argument("--jobs", type=int, default=min(4, os.cpu_count()), help="parts that run at the same time")
    arguments = parser.parse_args()

    warnings.filterwarnings("ignore")
    for logging in (diffusers_logging, transformers_logging):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    # Forking keeps what is imported, which takes seconds. Nothing has been computed yet, so there are no other threads.
    fork = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(arguments.jobs, mp_context=fork) as pool:
        counts = list(pool.map(run_part, range(len(PARTS)), [arguments] * len(PARTS)))
    total = Report()
    total.passed, total.failed, total.skipped = (sum(each) for each in zip(*counts))
    print(total.closing_line())
    return 0 if total.failed == 0 and total.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
