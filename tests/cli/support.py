"""What the tests of the command line share beside fixtures."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

PTX = """.version 8.8
.target {arch}
.address_size 64

.visible .entry {name}(.param .u64 p)
.reqntid 128, 1, 1
{{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}}
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


Verifier = Callable[..., Ran]


def one_message(ran: Ran) -> bool:
    """Exit 2, nothing on stdout, one error on stderr, no traceback."""
    errors = [line for line in ran.err.splitlines() if line.startswith("error: ")]
    return ran.code == 2 and ran.out == "" and len(errors) == 1 and "Traceback" not in ran.err
