"""What a person who must decide needs to know, worked out and put into words. `plots` and `report` show it."""

from manyarms.briefing.actions import Mover, Movers, Shrinkage, Shrunk, movers, shrinkage
from manyarms.briefing.answer import Answer, answer
from manyarms.briefing.calibration import Calibration, CalibrationBin, calibration
from manyarms.briefing.lights import Light, lights
from manyarms.briefing.support import CategorySupport, Support, support
from manyarms.briefing.whole import Briefing, brief

__all__ = [
    "Answer",
    "Briefing",
    "Calibration",
    "CalibrationBin",
    "CategorySupport",
    "Light",
    "Mover",
    "Movers",
    "Shrinkage",
    "Shrunk",
    "Support",
    "answer",
    "brief",
    "calibration",
    "lights",
    "movers",
    "shrinkage",
    "support",
]
