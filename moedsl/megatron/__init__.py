"""Know Megatron Bridge and Megatron-Core without importing them: fields, families, values, secrets."""
