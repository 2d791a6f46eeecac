"""The compiler's IR: names by region, locations aside."""

from __future__ import annotations

from verifier.diff.claims import claims_of
from verifier.diff.hunks import Comparison, compare
from verifier.diff.ir_lines import ir_listing
from verifier.parse.mlir import parse_mlir
from verifier.parse.source import Source

MODULE = """\
!view = !cute.memref<bf16, gemm, "(4):(1)">
#loc1 = loc("kernels/k.py":12:4)
#loc2 = loc("wait(bar)"(#loc1))
module attributes {gpu.container_module} {
  func.func @k(%arg0: !view, %arg1: i32) {
    %c0 = arith.constant 0 : i32 loc(#loc1)
    scf.for %arg2 = %c0 to %arg1 step %c0  : i32 {
      %0 = nvvm.wait %arg2 {order = #nvvm.mem_order<acquire>} : i32 -> i1 loc(#loc2)
      %1:2 = test.two %0, %c0 : i1, i32 -> i32, i32
      test.use %1#1 : i32
    } loc(#loc1)
    scf.for %arg2 = %c0 to %arg1 step %c0  : i32 {
      %0 = test.other %arg2 : i32 -> i32
      test.use %0 : i32
    }
    return
  }
}
"""


def both(after: str) -> Comparison:
    return compare(ir_listing("a", MODULE), ir_listing("b", after))


def test_names_are_scoped_by_region() -> None:
    lines = parse_mlir(Source("k.mlir", MODULE))
    first, second = (line for line in lines if line.tokens[0] == "%" and "%" in line.text and line.text[:2] == "%0")
    assert first.names[0] != second.names[0]


def test_locations_lead_to_python() -> None:
    wait = next(line for line in parse_mlir(Source("k.mlir", MODULE)) if "nvvm.wait" in line.tokens)
    assert (wait.location.file, wait.location.line) == ("kernels/k.py", 12)
    assert "loc" not in wait.tokens


def test_renamed_values_types_and_lines_are_no_change() -> None:
    after = MODULE.replace("%0", "%77").replace("!view", "!other").replace("%arg2", "%i").replace("12:4", "99:1")
    assert both(after).hunks == ()


def test_another_order_is_a_change() -> None:
    (claim,) = claims_of(both(MODULE.replace("mem_order<acquire>", "mem_order<relaxed>")))
    assert claim.level == "ir"
    assert claim.removed == claim.added == ("nvvm.wait",)


def test_another_operand_is_a_change() -> None:
    assert both(MODULE.replace("test.use %1#1", "test.use %1#0")).hunks != ()
    assert both(MODULE.replace("nvvm.wait %arg2", "nvvm.wait %c0")).hunks != ()
