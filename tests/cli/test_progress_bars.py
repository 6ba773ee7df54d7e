"""Bars on a terminal."""

import sys
import time


def test_a_bar_appears_on_a_terminal_after_a_while_and_is_gone_at_the_end(monkeypatch):
    from manyarms.cli import terminal

    class Terminal:
        def __init__(self):
            self.text = ""

        def isatty(self):
            return True

        def write(self, text):
            self.text += text

        def flush(self):
            pass

    for patience, shows in ((0.0, True), (60.0, False)):
        screen = Terminal()
        monkeypatch.setattr(sys, "stderr", screen)
        monkeypatch.setattr(terminal, "PATIENCE", patience)
        monkeypatch.setenv("TERM", "xterm")
        with terminal.row_bar("Reading") as report:
            for done in range(0, 5000, 500):
                report(done, 5000)
                time.sleep(0.02)
        assert ("Reading" in screen.text and "rows/s" in screen.text) == shows
    with terminal.row_bar("Reading") as report:
        report(1, None)


def test_a_search_without_a_known_end_shows_its_step(monkeypatch):
    from manyarms.cli import terminal

    shown = []

    class Bar:
        def start(self):
            return None

        stop = start

        def add_task(self, text, total):
            return 7

        def update(self, task, **facts):
            shown.append((task, facts))

    monkeypatch.setattr(terminal, "_rich_row_bar", Bar)
    monkeypatch.setattr(terminal, "PATIENCE", 0.0)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with terminal.row_bar("Reading") as bar:
        bar.step(3, 500)
        bar.step(4, 500, activity="Evaluating, policy")
    assert shown == [
        (7, {"description": "Learning, step 3", "total": None}),
        (7, {"description": "Evaluating, policy 4", "total": None}),
    ]
