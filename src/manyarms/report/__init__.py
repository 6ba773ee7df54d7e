"""What results look like: figures and pages. Nothing is computed here that a table of results does not hold."""
