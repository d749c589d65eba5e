"""What the server answers, one module a request; `moedsl.lsp.server.FEATURES` lists them."""
