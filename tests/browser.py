"""Pages opened in headless Chromium: what they look like when their scripts have run, and what they complained of."""

import os
import re
import shutil
import subprocess

import pytest

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def browser():
    """The program; without one the test is skipped, unless an environment variable says that nothing may be."""
    found = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    if found is None:
        if os.environ.get("MANYARMS_ALL_TESTS"):
            pytest.fail("there is no Chromium, and MANYARMS_ALL_TESTS is set")
        pytest.skip("NOT RUN: pages are opened in Chromium, and there is none")
    return found


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
