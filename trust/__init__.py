"""The trust campaign: checks too long for the tests, and the page that publishes what they measured.

    make trust                                      every check (some hours on two cores), then docs/trust.md
    python -m trust --list                          the checks, their cases and thresholds
    python -m trust --only dense-joint --share 0.01

A check is a `Check` (check.py): numbered cases that can run in any order, and a function that compares what they
measured with a threshold. `campaign.py` runs the cases and keeps every finished one in a journal, so that an
interrupted campaign goes on where it stopped. `page.py` writes the page.
"""
