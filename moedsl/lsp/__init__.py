"""The language server: `moedsl lsp`. Thin over the compiler's own stages; docs/internals.md has its contracts."""
