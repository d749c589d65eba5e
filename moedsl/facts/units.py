"""Define units of bytes, rates and shares, in base units."""

GIB = 2**30
SCALES = {
    "GB/s": 1e9,
    "TB/s": 1e12,
    "GiB": GIB,
    "TiB": 2**40,
    "GB": 1e9,
    "TB": 1e12,
    "TFLOPS": 1e12,
    "PFLOPS": 1e15,
    "%": 0.01,
}
"""The value of each unit of the language in bytes, bytes/s, FLOP/s, or one."""
