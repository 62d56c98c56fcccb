"""What the server of worker processes imports before anything large."""

import os

# NumPy reads this as it is imported. Its threads would take the cores from PyTorch, and none would outlive a fork.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
