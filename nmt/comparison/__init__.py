"""Runs side by side: what they scored, how sure their differences are, what they cost, what they differ in."""
