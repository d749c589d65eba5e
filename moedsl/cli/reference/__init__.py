"""Print the reference page of a rule, a diagnostic, an axis or a fact."""
