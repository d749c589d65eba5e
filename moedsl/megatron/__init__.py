"""What is known of Megatron Bridge and Megatron-Core without importing them."""
