"""moedsl's tests; docs/testing.md says what is where.

Several processes share the cores: threads of torch and of BLAS that wait for work would take one.
"""

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
