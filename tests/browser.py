"""Open pages in headless Chromium: their documents after all scripts have run, and their console messages."""

import os
import re
import shutil
import subprocess

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def browser():
    """The path of Chromium. Without one the test is skipped, unless MANYARMS_ALL_TESTS is set."""
    program = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if program is None:
        if os.environ.get("MANYARMS_ALL_TESTS"):
            pytest.fail("there is no Chromium, and MANYARMS_ALL_TESTS is set")
        pytest.skip("NOT RUN: pages are opened in Chromium, and there is none")
    return program


def opened(page, *, width=1280, dark=False, screenshot=None):
    """The document after its scripts have run, and the lines on its console."""
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
        "--no-first-run", "--hide-scrollbars", "--enable-logging=stderr", f"--window-size={width},4000",
        "--virtual-time-budget=20000", f"--user-data-dir={page.parent / f'.browser-{width}-{dark}'}",
    ]  # fmt: skip
    if dark:
        flags += ["--blink-settings=preferredColorScheme=0"]
    flags += ["--dump-dom"] if screenshot is None else [f"--screenshot={screenshot}"]
    done = subprocess.run([browser(), *flags, page.as_uri()], capture_output=True, text=True, timeout=120, check=False)
    return done.stdout, [line for line in done.stderr.splitlines() if re.search(r":CONSOLE", line)]


def printed_pages(page):
    """The number of pages of paper that a page takes."""
    out = page.with_suffix(".pdf")
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-sync",
        "--no-first-run", "--virtual-time-budget=20000", f"--user-data-dir={page.parent / '.browser-print'}",
        "--no-pdf-header-footer", f"--print-to-pdf={out}",
    ]  # fmt: skip
    subprocess.run([browser(), *flags, page.as_uri()], capture_output=True, timeout=120, check=False)
    return max(int(count) for count in re.findall(rb"/Count (\d+)", out.read_bytes()))
