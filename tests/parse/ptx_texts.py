"""PTX texts for tests: what compilers wrote, and one snippet for each construct of the language."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent / "data"

STORED = sorted(DATA.glob("*.ptx"))
"""Written by CuTe DSL (`cutedsl_*`), NVRTC (`cpp_*`), Triton (`triton_*`), and by hand."""

HEADER = ".version 9.0\n.target sm_100a\n.address_size 64\n"


def body(*statements: str) -> str:
    """A file with one kernel of these statements."""
    return f"{HEADER}.visible .entry k(.param .u64 a)\n.reqntid 192, 1, 1\n{{\n" + "\n".join(statements) + "\n}\n"


def stored(path: Path) -> str:
    """Text of a file with its line ends as they are."""
    return path.read_bytes().decode()


IN_BODY = {
    "no operands": "ret;",
    "opcode in several words": "mov .b32 %r1, %r2;",
    "opcode over two lines": "mov\n.b32 %r1, %r2;",
    "comment in an opcode": "mov/* x */.b32 %r1, %r2;",
    "modifiers in any order": "ld.relaxed.gpu.global.b32 %r1, [%rd1]; ld.global.gpu.relaxed.b32 %r1, [%rd1];",
    "no blank before a vector": "tcgen05.ld.sync.aligned.32x32b.x2.b32{%r409, %r410},[%r1];",
    "no blank before an address": "tcgen05.st.sync.aligned.32x32b.x2.b32[%r5],{%r1, %r2};",
    "one element": "st.global.b32 [ %rd1 + 0 ], { %r1 };",
    "blanks in an address": "cp.async.ca.shared.global [ %r18 + 0 ], [ %rd2 + 0 ], 0x4, 0x4;",
    "negative offset": "ld.shared.b32 %r1, [%r848+-16384]; ld.shared.b32 %r1, [%r848-16];",
    "hexadecimal offset": "ld.param.b64 %rd1, [name + 0x8];",
    "offset expression": "ld.shared.b32 %r1, [%r2+4*2+(1<<3)];",
    "literal address": "ld.shared.b32 %r1, [4096]; ld.local.b32 %r1, [-16];",
    "symbol address": "ld.shared.b32 %r1, [__dynamic_shmem__0+16];",
    "coordinates": "cp.async.bulk.tensor.3d.shared::cluster.global [%r1], [%rd1, {%r643,%r644,0} ], [%r2];",
    "texture": "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, %rd2, {%f1, %f2}];",
    "sink": "mbarrier.arrive.shared::cta.b64 _, [%r1];",
    "sink in a vector": "mov.b64 {%r41, _}, %rd14;",
    "pair": "shfl.sync.idx.b32 %r2|%p1, %r1, 0, 31, -1; setp.eq.s32 %p1 | %p2, %r1, %r2;",
    "pair with a sink": "elect.sync _|%p1, -1; elect.sync %r1|_, -1;",
    "negation": "and.pred %p1, !%p2, %p3; selp.b32 %r1, 1, 2, ! %p3;",
    "guards": "@%p1 bra.uni L; @!P1 bra L; @ ! %p1 ret; @%p1\n\tbra L;",
    "special registers": "mov.u32 %r1, %tid.x; mov.u64 %rd1, %globaltimer;",
    "vector components": "mov.f32 v.x, %f1; vadd.u32.u32.u32 %r1, %r2.b0, %r3.h1;",
    "predicate immediates": "mov.pred %p297, -1; tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r3, 1;",
    "integers": "mov.b32 %r1, 0; mov.b32 %r1, 017; mov.b32 %r1, 0x1F; mov.b32 %r1, 0XffU; mov.b32 %r1, 0b101U;",
    "negative integers": "mov.b32 %r1, -1; mov.b32 %r1, - 1; mov.b32 %r1, -0x10;",
    "unsigned suffix": "mov.b32 %r1, 42U; mov.b32 %r1, 0U;",
    "floats": "mov.f32 %f1, 0f3F800000; mov.f64 %fd1, 0D3ff0000000000000; mov.f32 %f1, 0fFF800000;",
    "not a number": "mov.f32 %f1, 0f7FFFFFFF; mov.f32 %f1, 0f7FC00000;",
    "decimal floats": "mov.f32 %f1, 1.0; mov.f32 %f1, .5; mov.f32 %f1, 1.; mov.f32 %f1, -1.5e-3; mov.f32 %f1, 1E5;",
    "constant expressions": "mov.b32 %r1, 1+2*3; mov.b32 %r1, (1<<3)|2; mov.b32 %r1, 1 ? 2 : 3; mov.b32 %r1, ~5;",
    "casts": "mov.b32 %r1, (.s64)5; mov.b64 %rd1, (.u64)-1;",
    "sum": "mov.b32 %r1, table+4; mov.b64 %rd1, table-8;",
    "element": "mov.b32 %r1, table[2]; mov.b32 %r1, table[1+1]; ld.global.b32 %r1, table[%r2];",
    "size of a warp": "mov.b32 %r1, WARP_SZ; add.s32 %r1, WARP_SZ*2, (WARP_SZ); mov.b32 %r1, x[WARP_SZ];",
    "component apart from its name": "mov.b32 %r1, %tid .x; mov.b32 {v .x, v.y}, %rd1;",
    "labels like opcodes": "ret: bra ret; call : bra call; call: ret;",
    "register without %": ".reg .b32 fa_fwd_qk_mma_idesc; mov.b32 fa_fwd_qk_mma_idesc, 3;",
    "registers": ".reg .pred %p<4>, q; .reg .b32 %r < 7 >; .reg .v4 .f32 v; .reg .align 4 .b32 x;",
    "scope": "{\n.reg .pred P1;\nLAB_WAIT: mbarrier.try_wait.parity.shared.b64 P1, [%r1], %r2;\n"
    "@P1 bra.uni DONE;\nbra.uni LAB_WAIT;\nDONE:\n}",
    "scopes in scopes": "{ { L: { } } L: { bra L; } }",
    "labels": "$L__BB0_1:\nL2 : L3:ret; %L: _L:",
    "local variables": ".local .align 16 .b8 __local_depot0[128]; .shared .align 8 .b64 full[2][3], x; .param .b32 p0;",
    "call": "{ .param .b32 r; call.uni (retval0), vprintf, (param0, param1); call f; call g, (); }",
    "call over lines": "call.uni \n(retval0), \nvprintf, \n(\nparam0, \nparam1\n)\n;",
    "call by address": "prototype_0 : .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 8 .b8 _[16]);\n"
    "call (retval0), %rd1, (param0, 3), prototype_0;",
    "call prototypes": "P: .callprototype _ () .noreturn; Q: .callprototype _; R: .callprototype ()_ (.reg .b32 a);",
    "call targets": "T: .calltargets f, g; call (r), %rd1, (x), T;",
    "branch targets": "JTI0_0:\n.branchtargets\n\t$L1,\n\t$L2,\n\tB<3>;\nbrx.idx %r3, JTI0_0; @%p1 brx.idx.uni %r1, L;",
    "pragma": '.pragma "nounroll"; .pragma "used_bytes_mask 0xf0ff", "x;y//z";',
    "locations": ".loc 1 2 3\n.loc\t1 436 17, function_name $L__info_string0, inlined_at 1 541 1 // x.py:541:1\nret;",
    "location in a scope": "{ .loc 1 2 3\nmov.b32 %r1, 1; }",
    "location with an offset": ".loc 1 2 3, function_name $L__info_string0+8, inlined_at 1 4 5\n",
    "comments": "// one\n/* two\n lines */ ret /* ; */ ; // ret;\n/**/ add.s32 %r1, /* a, */ %r2, // b\n 1; /* ' \" */",
    "line markers": '# 1 "kernel.cu"\nret;\n\t# 22 "a b.cu" 3 4\n.reg .b32\n# 3 "c;.cu"\n x;',
    "exit in the middle": "exit; mov.b32 %r1, 1; ret;",
    "names like words of the language": "mov.b32 inlined_at, function_name; mov.b32 call, bra; mov.b32 U, e;",
    "unknown opcode": "frobnicate.x2::y.b32 %r1, {%r2, _}, [%r3, {1}];",
    "128 elements": f"tcgen05.ld.sync.aligned.32x32b.x128.b32 {{{', '.join(f'%r{i}' for i in range(128))}}}, [%r1];",
}
"""Statements of a function body."""

IN_MODULE = {
    "variables": ".extern .shared .align 16 .b8 m[];\n.global .u32 g = 5;\n.const .align 4 .b8 t[4] = {1, -2, 0x3, 4};",
    "several in one": ".shared .b32 q, z[4];",
    "addresses": ".global .u64 h[3] = {x+4, generic(x), generic(x)+16};\n.global .u8 m[2] = {0xff(x), 0xff00(x)};",
    "nested lists": ".global .s32 m[2][2] = {{1,2},{-3}};\n.global .v4 .f32 v = {1.0,2.0,3.0,0f40800000};",
    "symbol expressions": ".global .u64 e[2] = {y+4*2, generic(y) + (1<<3)};",
    "align behind the type": ".entry k(.param .b64 .align 16 p) {}",
    "expressions": ".global .u32 e = (1 << 4) | 0x3;\n.global .u32 n[] = {1+1, ~2};",
    "sampler": ".global .samplerref s = { addr_mode_0 = clamp_to_border, filter_mode = nearest };\n.global .texref t;",
    "attributes": ".global .attribute(.managed) .b32 g;\n.global .attribute(.unified(19,95)) .f32 f;",
    "linkage": ".visible .global .align 8 .b8 g[8];\n.weak .const .b32 w;\n.common .global .b32 c;",
    "bank": ".const[3] .b32 c;",
    "files": '.file 1 "a//b.cu"\n.file\t2 "/* c */.cu", 1234, 567\n.file 3"d"',
    "sections": ".section .debug_abbrev\n{\n.b8 1 // x\n.b8 17,2,\n3\n.b64 $L__func_begin0\n.b32 .debug_abbrev+4\n"
    "L1:\n.b32 L2-L1\n.b16 -1\n}\n.section\t.debug_macinfo\t{\t}",
    "pragma": '.pragma "nounroll";',
    "old debug text": "@@DWARF .byte 0x02, 3",
    "prototypes": ".extern .func (.param .b32 retval0) vprintf\n(\n\t.param .b64 a,\n\t.param .align 8 .b8 b[]\n)\n;",
    "no return": ".extern .func f (.param .b64 a) .noreturn;",
    "alias": ".visible .func f(){ret;}\n.visible .func g();\n.alias g, f;",
    "register parameters": ".func (.reg .b32 r, .reg .b32 s) f (.reg .b64 a) { mov.b32 r, 1; ret; }",
    "pointers": ".entry k(.param .u64 .ptr .global .align 16 p, .param .u64 .ptr q, .param .align 64 .b8 m[9]) {}",
    "no parameters": ".entry k { ret; }\n.func f { ret; }\n.entry e ( ) { }",
    "directives": ".entry k()\n.maxntid 3,4\n.minnctapersm 2\n.maxnreg 32\n.explicitcluster\n.reqnctapercluster 2\n{}",
    "more directives": ".func f() .abi_preserve 8 .abi_preserve_control 1 .blocksareclusters { }",
    "pragma of a function": '.entry k() .pragma "x", "y"; .maxntid 3 { ret; }',
    "attribute of a function": ".func .attribute(.unified(1,2)) f (.param .b64 a);",
    "one line": ".version 9.0 .target sm_90a, debug .address_size 64 .entry k(){ret;}",
    "several targets": ".version 6.4\n.target sm_80, texmode_independent, debug\n.address_size 32",
    "nothing but directives": ".version 9.0",
}
"""Items of a module."""
