"""Answer requests, one module for each; `moedsl.lsp.server.FEATURES` lists them."""
