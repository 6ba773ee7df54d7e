"""Logs as their owners keep them: tables, files and streams, read batch by batch."""
