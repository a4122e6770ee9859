"""Runs all comparisons: python run.py --program build/flux2 [--only WORD]. The last line counts them."""

import argparse
import pathlib
import sys
import tempfile
import warnings

import torch
from diffusers.utils import logging as diffusers_logging
from transformers.utils import logging as transformers_logging

import autoencoder
import classifier
import dev
import editing
import folders
import generation
import gguf_files
import hub_cache
import layouts
import peft_files
import regions
import schedules
import tokens
import training
import training_caches
import training_files
import training_parts
import upscaler
import vision
import watermarks
from program import Program
from report import Report


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", default="build/flux2")
    parser.add_argument("--only", default="", help="run the areas whose name contains this")
    arguments = parser.parse_args()

    warnings.filterwarnings("ignore")
    for logging in (diffusers_logging, transformers_logging):
        logging.set_verbosity_error()
        logging.disable_progress_bar()
    torch.manual_seed(0)
    report = Report(arguments.only)
    with tempfile.TemporaryDirectory(prefix="flux2-parity-") as folder:
        scratch = pathlib.Path(folder)
        program = Program(arguments.program, scratch)
        for part in (schedules, tokens, autoencoder, generation, dev, vision, editing, regions, layouts, gguf_files, peft_files, hub_cache, folders, training,
                     training_caches, training_files, training_parts, upscaler, watermarks, classifier):
            part.run(report, program, scratch)
    print(report.closing_line())
    return 0 if report.failed == 0 and report.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
