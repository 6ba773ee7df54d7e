"""Model files: one safe Arrow file per posterior or policy. No pickle, and nothing in a file is ever executed."""
