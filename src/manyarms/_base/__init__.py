"""Helpers that every package uses: checks of arguments, safe files, random numbers, progress, values of options."""
