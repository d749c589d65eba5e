"""Why a value is what it is, and why nothing fits: JSON first, text from JSON."""
