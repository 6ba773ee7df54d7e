"""Bridges to other libraries: `ma.sklearn`, `ma.obp`, `ma.arviz`, `ma.mlflow`. Each is imported on first use."""
