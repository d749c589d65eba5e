"""Judge an existing recipe by every rule, from its fields as Bridge resolves them or as its source states them."""
