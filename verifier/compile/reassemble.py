"""Artifacts whose machine code another ptxas made from the same PTX."""

from __future__ import annotations

import msgspec

from verifier.compile.artifacts import Artifacts
from verifier.compile.assemble import assemble
from verifier.compile.disassemble import disassemble
from verifier.compile.process import Limits
from verifier.compile.toolchain import Tool
from verifier.errors import CompileError


def reassemble(artifacts: Artifacts, tool: Tool, *, limits: Limits) -> Artifacts:
    """The same kernel with cubin, listing, messages and usage of `tool`.

    Raises CompileError when there is no PTX, or when ptxas refuses it: a PTX version that is too new for it, say.
    """
    meta = artifacts.meta
    if artifacts.ptx is None:
        raise CompileError("there is no PTX to assemble", where=meta.name)
    made = assemble(artifacts.ptx, meta.arch, name=meta.name, tool=tool, limits=limits)
    assembler = made.assembler or f"ptxas {tool.version}"  # older cubins do not name their assembler
    toolchain = msgspec.structs.replace(meta.toolchain, assembler=assembler, ptxas=tool.version)
    listing = disassemble(made.cubin, name=meta.name)
    return msgspec.structs.replace(
        artifacts,
        cubin=made.cubin,
        sass=listing.text,
        meta=msgspec.structs.replace(meta, messages=made.messages, usage=made.usage, toolchain=toolchain, files={}),
        path=None,
    )
