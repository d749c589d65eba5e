"""`moedsl results`: what runs measured, from their logs, by useful tokens and beside what was predicted."""
