"""A child process that ends when its parent does, however that ends.

Source: prctl(2), PR_SET_PDEATHSIG: the kernel sends the signal when the thread that started the child is gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Ask the kernel to kill this process when its parent is gone; elsewhere than on Linux nothing happens."""
    if sys.platform != "linux":
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it ended before the kernel knew
        os.kill(os.getpid(), signal.SIGKILL)
