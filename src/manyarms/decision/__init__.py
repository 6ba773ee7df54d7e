"""Everything a decision needs: the verdict, its evidence, the charts and the report page."""

from manyarms.decision.action_changes import Mover, Movers, Shrinkage, Shrunk, movers, shrinkage
from manyarms.decision.calibration import Calibration, CalibrationBin, calibration
from manyarms.decision.decide import Decision, decide
from manyarms.decision.support import CategorySupport, Support, support
from manyarms.decision.traffic_lights import Light, lights
from manyarms.decision.verdict import Answer, answer

__all__ = [
    "Answer",
    "Calibration",
    "CalibrationBin",
    "CategorySupport",
    "Decision",
    "Light",
    "Mover",
    "Movers",
    "Shrinkage",
    "Shrunk",
    "Support",
    "answer",
    "calibration",
    "decide",
    "lights",
    "movers",
    "shrinkage",
    "support",
]
