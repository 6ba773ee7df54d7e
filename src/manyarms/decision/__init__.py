"""Decisions: the recommendation, its evidence, the charts and the report page."""
