"""Completes the PTX fragments of rule docstrings to kernels that can be checked.

A fragment is split at lines `warp N:` into what each warp runs; lines before the first are run by all. Lines
`cluster N` and `threads N` state the shape. Names that a fragment may use: shared objects `buf` (4096 bytes),
`buf2`, `slot`, mbarriers `bar` and `bar2` (initialised with count 1), registers r0..r31, f0..f31, rd0..rd7,
predicates p, q, q2, `t` (TMEM base), descriptors ad, bd, id, global pointers gp and data, flag, and the tensor map
`gm` (a kernel parameter) or `gmap` (in global memory).
"""

from __future__ import annotations

_HEADER = """.version {version}
.target {arch}
.address_size 64
.shared .align 1024 .b8 buf[4096];
.shared .align 1024 .b8 buf2[4096];
.shared .align 8 .b64 bar;
.shared .align 8 .b64 bar2;
.shared .align 8 .b64 alloc_done;
.shared .align 4 .b32 slot;
.visible .entry example(.param .u64 p_gp, .param .u64 p_data, .param .u64 p_flag, .param .u64 p_gmap,
    .param .align 64 .b8 p_map[128])
.reqntid {threads}, 1, 1 {cluster}
{{
.reg .b32 r<32>; .reg .f32 f<32>; .reg .b64 rd<8>; .reg .pred p, q, q2, first, w<9>;
.reg .b32 warp, t, id; .reg .b64 ad, bd, gp, data, flag, gm, gmap; .reg .b16 mask;
ld.param.u64 gp, [p_gp]; ld.param.u64 data, [p_data]; ld.param.u64 flag, [p_flag]; ld.param.u64 gmap, [p_gmap];
mov.b64 gm, p_map; cvta.param.u64 gm, gm;
mov.u32 r0, %tid.x; shr.u32 warp, r0, 5; shfl.sync.idx.b32 warp, warp, 0, 31, -1;
mov.b32 r1, 0; mov.b32 r2, 0; mov.b32 r3, 0; mov.b32 id, 0; mov.b64 ad, 0; mov.b64 bd, 0; mov.b16 mask, 3;
setp.eq.u32 p, r1, 0;
"""
_INIT = """setp.ne.u32 first, r0, 0;
@first bra READY;
mbarrier.init.shared::cta.b64 [bar], 1; mbarrier.init.shared::cta.b64 [bar2], 1;
fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;
READY:
{sync}
"""
_TMEM = """setp.ne.u32 first, warp, 0;
@first bra ALLOCATED;
tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 64;
ALLOCATED:
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
ld.shared.b32 t, [slot];
"""
_SYNC = {1: "bar.sync 0;", 2: "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"}


def complete(fragment: str, arch: str, *, init: bool = True) -> tuple[str, dict[int, str]]:
    """(PTX text, line -> rule code that the fragment expects there).

    `init` False leaves the set-up of barriers and tensor memory to the fragment.
    """
    cluster = 1
    minimum = 0
    shared: list[str] = []
    warps: dict[int, list[str]] = {}
    current = shared
    for line in fragment.splitlines():
        text = line.strip()
        if text.startswith("cluster ") and not text.endswith(";"):
            cluster = int(text.split()[1])
        elif text.startswith("threads ") and not text.endswith(";"):
            minimum = int(text.split()[1])
        elif text.startswith("warp ") and text.endswith(":"):
            current = warps.setdefault(int(text[5:-1]), [])
        else:
            current.append(line)
    threads = max(32 * (max(warps, default=0) + 1), minimum)
    directive = f".explicitcluster .reqnctapercluster {cluster}, 1, 1" if cluster > 1 else ""
    version = "9.0" if arch == "sm_90a" else "9.4"
    parts = [_HEADER.format(version=version, arch=arch, threads=threads, cluster=directive)]
    if init:
        parts.append(_INIT.format(sync=_SYNC[cluster]))
        if "tcgen05" in fragment:
            parts.append(_TMEM)
    parts += shared
    for warp in sorted(warps):
        parts.append(f"setp.ne.u32 w{warp}, warp, {warp}; @w{warp} bra PAST{warp};\n{{")
        parts += warps[warp]
        parts.append(f"}}\nbra END;\nPAST{warp}:")
    parts.append("END:\nret;\n}\n")
    text = "\n".join(parts)
    return text, _expected(text)


def _expected(text: str) -> dict[int, str]:
    marks = {}
    for number, line in enumerate(text.splitlines(), 1):
        comment = line.partition("//")[2].split()
        if comment and comment[0][:3].isupper() and comment[0][3:].isdigit():
            marks[number] = comment[0]
    return marks
