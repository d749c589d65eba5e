"""Run the language server over the stages of the compiler; docs/internals.md has its contracts."""
