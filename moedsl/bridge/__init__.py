"""The oracle: everything that touches the real Megatron Bridge. Importing this package imports nothing heavy.

`verify` asks about recipes from one warm process that imports Bridge once and forks for each recipe. Modules named for
a question (update, groups, stages, runtime) run inside the fork, as do te, gpu and meta; the rest is the parent's.
"""

from moedsl.bridge.client import Server, verify
from moedsl.bridge.report import Report, render

__all__ = ["Report", "Server", "render", "verify"]
