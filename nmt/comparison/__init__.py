"""Comparison of scored runs: scores, significance of their differences, cost, and the settings that differ."""
