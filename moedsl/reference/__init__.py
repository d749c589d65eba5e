"""Reference pages of rules, diagnostics, axes and facts."""
