"""Statements back to PTX text. Parsing what `render` gives yields the same statements, apart from their spans."""

from __future__ import annotations

from collections.abc import Iterable

from verifier.parse import ptx_ast as ast


def render_all(statements: Iterable[ast.Statement]) -> str:
    """One statement a line."""
    return "".join(f"{render(statement)}\n" for statement in statements)


def render(statement: ast.Statement) -> str:
    """Text of one statement, with what ends it. The body of a function begins with its own `ScopeBegin`."""
    match statement:
        case ast.Instruction():
            return _instruction(statement)
        case ast.Label():
            return f"{statement.name}:"
        case ast.ScopeBegin():
            return "{"
        case ast.ScopeEnd():
            return "}"
        case ast.RegDecl() | ast.VarDecl():
            return _declaration(statement)
        case ast.BranchTargets():
            return f"{statement.name}: .branchtargets {', '.join(statement.targets)};"
        case ast.FunctionHeader():
            return _header(statement)
        case ast.Loc() | ast.FileDecl():
            return _debug(statement)
        case ast.Directive():
            return _directive(statement)


def render_operand(operand: ast.Operand) -> str:
    """Text of one operand."""
    match operand:
        case ast.Name() | ast.Imm():
            return operand.text
        case ast.Sink():
            return "_"
        case ast.Not():
            return f"!{operand.operand.text}"
        case ast.Pair():
            return f"{render_operand(operand.first)}|{render_operand(operand.second)}"
        case ast.Sum():
            return f"{operand.base.text}+{operand.offset}"
        case ast.Element():
            index = operand.index.text if isinstance(operand.index, ast.Name) else operand.index
            return f"{operand.base.text}[{index}]"
        case ast.Vector():
            return f"{{{_list(operand.items)}}}"
        case ast.Args():
            return f"({_list(operand.items)})"
        case ast.Address():
            offset = f"+{operand.offset}" if operand.offset else ""
            return f"[{', '.join((operand.base.text + offset, *map(render_operand, operand.extra)))}]"


def render_param(param: ast.Param) -> str:
    """Text of one parameter of a function."""
    pointer = ""
    if param.pointer is not None:
        space = f" .{param.pointer.space}" if param.pointer.space else ""
        pointer = f" .ptr{space}{_align(param.pointer.align)}"
    return f".{param.space}{_align(param.align)} {_type(param.type)}{pointer} {param.name}{_dims(param.dims)}"


def _list(operands: Iterable[ast.Operand]) -> str:
    return ", ".join(map(render_operand, operands))


def _align(align: int | None) -> str:
    return "" if align is None else f" .align {align}"


def _dims(dims: tuple[int | None, ...]) -> str:
    return "".join("[]" if size is None else f"[{size}]" for size in dims)


def _type(name: str) -> str:
    return " ".join(f".{word}" for word in name.split("."))


def _attributes(items: tuple[str, ...]) -> str:
    return f" .attribute({', '.join(items)})" if items else ""


def _instruction(statement: ast.Instruction) -> str:
    guard = "" if statement.guard is None else f"@{'!' * statement.guard.negated}{statement.guard.name} "
    operands = f" {_list(statement.operands)}" if statement.operands else ""
    return f"{guard}{statement.opcode}{operands};"


def _declaration(statement: ast.RegDecl | ast.VarDecl) -> str:
    if isinstance(statement, ast.RegDecl):
        names = (name if count is None else f"{name}<{count}>" for name, count in statement.names)
        return f".reg {_type(statement.type)} {', '.join(names)};"
    words = " ".join(f".{word}" for word in (*statement.linkage, statement.space))
    kinds = f"{_attributes(statement.attributes)}{_align(statement.align)} {_type(statement.type)}"
    initializer = "" if statement.initializer is None else f" = {statement.initializer}"
    return f"{words}{kinds} {statement.name}{_dims(statement.dims)}{initializer};"


def _header(statement: ast.FunctionHeader) -> str:
    words = " ".join(f".{word}" for word in (*statement.linkage, statement.kind))
    returns = f" ({', '.join(map(render_param, statement.returns))})" if statement.returns else ""
    params = ", ".join(map(render_param, statement.params))
    head = f"{words}{_attributes(statement.attributes)}{returns} {statement.name} ({params})"
    directives = "".join(f"\n{render_directive(name, values)}" for name, values in statement.directives)
    return head + directives + ("" if statement.is_definition else ";")


def render_directive(name: str, values: tuple[int, ...]) -> str:
    """Text of a directive of a function header."""
    if name.startswith(".pragma"):
        return f"{name};"
    return " ".join((name, ", ".join(map(str, values)))).rstrip()


def _debug(statement: ast.Loc | ast.FileDecl) -> str:
    if isinstance(statement, ast.FileDecl):
        stamp = "" if statement.stamp is None else f", {statement.stamp[0]}, {statement.stamp[1]}"
        return f'.file {statement.index} "{statement.path}"{stamp}'
    inlined = ""
    if statement.inlined_at is not None:
        place = " ".join(map(str, statement.inlined_at))
        inlined = f", function_name {statement.function_name}, inlined_at {place}"
    return f".loc {statement.file} {statement.line} {statement.column}{inlined}"


def _directive(statement: ast.Directive) -> str:
    name, args = statement.name, statement.args
    match name:
        case ".pragma":
            strings = ", ".join(f'"{arg}"' for arg in args)
            return f"{name} {strings};"
        case ".section":
            return "\n".join((f"{name} {args[0]}", "{", *args[1:], "}"))
        case ".calltargets":
            return f"{args[0]}: {name} {', '.join(args[1:])};"
        case ".callprototype":
            return f"{args[0]}: {name} {' '.join(args[1:])};"
        case ".alias":
            return f"{name} {', '.join(args)};"
    return f"{name} {', '.join(args)}"
