"""Functions that a kernel may call although no body is at hand, because it is known what they do.

They synchronize with nobody, issue nothing asynchronous, and touch only their arguments, memory behind these, and the
heap or the print buffer in global memory. A name that is not here is taken for a function that may do anything.
"""

from __future__ import annotations

import enum


class Callee(enum.Enum):
    RETURNS = "returns"
    ENDS = "ends"  # does not return: the grid is over


# "PTX Writer's Guide to Interoperability", chapter 7 "System Calls", names these four and their signatures; what the
# device does is in the CUDA C++ Programming Guide: "Formatted Output", "Dynamic Global Memory Allocation and
# Operations", "Assertion" (the kernel's execution is halted).
SYSTEM_CALLS: dict[str, Callee] = {
    "vprintf": Callee.RETURNS,
    "malloc": Callee.RETURNS,
    "free": Callee.RETURNS,
    "__assertfail": Callee.ENDS,
}
