"""Measure how the code reads, beside two libraries that read well: `python tools/measure.py`.

It prints, for nearfar, lineax and optax, the sizes of modules and function bodies, and how often a statement does
several things at once or hides a branch in an expression; then, for nearfar alone, the sizes of its methods, how its
modules depend on each other, and the files that four walks pass through: `train`, `LMNN().fit`, `evaluate` and
`search`. The other two libraries are only read, never imported; `pip` brings their sources into `build/anchors` at the
first call. `--no-anchors` leaves them out, and `--no-walks` the walks, which train for some seconds.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "nearfar"
ANCHORS = ROOT / "build" / "anchors"
sys.path.insert(0, str(ROOT / "src"))

from nearfar.catalog import METHODS  # noqa: E402


class Measures(NamedTuple):
    """What is measured of one package.

    Attributes
    ----------
    modules : number of files
    module_lines : lines of each file
    body_lines : lines of each function without its docstring
    code_lines : lines that hold code
    comment_lines : lines that hold a comment
    tuple_assignments : statements such as ``a, b = x, y`` that neither swap nor unpack one value
    conditional_expressions : ``x if condition else y``
    nested_functions : functions that are defined inside functions
    """

    modules: int
    module_lines: list[int]
    body_lines: list[int]
    code_lines: int
    comment_lines: int
    tuple_assignments: int
    conditional_expressions: int
    nested_functions: int

    def per_thousand(self, count: int) -> float:
        """Return a count per 1,000 lines of code."""
        return 1000 * count / max(self.code_lines, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how the code reads.")
    parser.add_argument("--no-anchors", action="store_true", help="leave out lineax and optax")
    parser.add_argument("--no-walks", action="store_true", help="leave out the walks, which train for some seconds")
    parser.add_argument("--statements", action="store_true", help="list the tuple assignments of nearfar by place")
    options = parser.parse_args()

    packages = {"nearfar": PACKAGE}
    if not options.no_anchors:
        fetch_anchors()
        packages["lineax"] = ANCHORS / "lineax"
        packages["optax"] = ANCHORS / "optax"
    print_packages({name: measure(folder) for name, folder in packages.items()})
    print_rooms()
    print_methods()
    print_house()
    if options.statements:
        for path in source_files(PACKAGE):
            for node in tuple_assignments(parse(path)):
                print(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)[:100]}")
    if not options.no_walks:
        print_walks()


def fetch_anchors() -> None:
    """Bring the sources of the two other libraries here, without what they need to run."""
    if (ANCHORS / "lineax").is_dir() and (ANCHORS / "optax").is_dir():
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(ANCHORS)]
    subprocess.run([*command, "lineax", "optax"], check=True)


def source_files(folder: Path) -> list[Path]:
    """List the modules of a package, without tests and what is generated for type checkers."""
    found = sorted(folder.rglob("*.py"))
    return [path for path in found if not path.name.endswith("_test.py") and "tests" not in path.parts]


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def measure(folder: Path) -> Measures:
    """Measure all modules of a package."""
    module_lines: list[int] = []
    body_lines: list[int] = []
    code_lines = 0
    comment_lines = 0
    assignments = 0
    conditionals = 0
    nested = 0
    for path in source_files(folder):
        tree = parse(path)
        module_lines.append(len(path.read_text(encoding="utf-8").splitlines()))
        code, comments = lines_of_code_and_comments(path, tree)
        code_lines += code
        comment_lines += comments
        assignments += len(list(tuple_assignments(tree)))
        conditionals += sum(isinstance(node, ast.IfExp) for node in ast.walk(tree))
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
        body_lines.extend(lines_of_body(function) for function in functions)
        nested += sum(count_nested(function) for function in functions)
    return Measures(
        modules=len(module_lines),
        module_lines=module_lines,
        body_lines=body_lines,
        code_lines=code_lines,
        comment_lines=comment_lines,
        tuple_assignments=assignments,
        conditional_expressions=conditionals,
        nested_functions=nested,
    )


def docstring_of(node: ast.AST) -> ast.Expr | None:
    """Return the statement that is a node's docstring."""
    body = getattr(node, "body", None)
    if not isinstance(body, list) or not body or not isinstance(body[0], ast.Expr):
        return None
    value = body[0].value
    is_text = isinstance(value, ast.Constant) and isinstance(value.value, str)
    return body[0] if is_text else None


def lines_of_code_and_comments(path: Path, tree: ast.Module) -> tuple[int, int]:
    """Count the lines that hold code (no docstrings) and those that hold a comment."""
    docstring_lines: set[int] = set()
    for node in ast.walk(tree):
        docstring = docstring_of(node)
        if docstring is not None and docstring.end_lineno is not None:
            docstring_lines.update(range(docstring.lineno, docstring.end_lineno + 1))
    code: set[int] = set()
    comments: set[int] = set()
    silent = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER}
    with tokenize.open(path) as file:
        for token in tokenize.generate_tokens(file.readline):
            if token.type == tokenize.COMMENT:
                comments.add(token.start[0])
            elif token.type not in silent:
                code.update(range(token.start[0], token.end[0] + 1))
    return len(code - docstring_lines), len(comments)


def lines_of_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines of a function's statements, from the first after the docstring to the last."""
    statements = function.body[1:] if docstring_of(function) is not None else function.body
    if not statements or statements[-1].end_lineno is None:
        return 0
    return statements[-1].end_lineno - statements[0].lineno + 1


def count_nested(function: ast.AST) -> int:
    """Count the functions that are defined directly inside a function, at any depth of its blocks."""
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    return sum(isinstance(node, kinds) for node in ast.walk(function) if node is not function)


def tuple_assignments(tree: ast.AST) -> Iterator[ast.Assign]:
    """Find statements that put several values into several names, unless they swap.

    A swap uses one of its targets on the right: ``a, b = b, a + b`` says one thing that two statements cannot.
    """
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
            continue
        targets = [target for target in node.targets if isinstance(target, ast.Tuple)]
        if not targets or any(isinstance(value, ast.Starred) for value in node.value.elts):
            continue
        written = {ast.unparse(name) for target in targets for name in target.elts}
        read = {ast.unparse(part) for part in ast.walk(node.value) if isinstance(part, ast.Name | ast.Attribute)}
        if not written & read:
            yield node


def percentile(numbers: list[int], share: float) -> int:
    ordered = sorted(numbers)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def print_packages(packages: dict[str, Measures]) -> None:
    rows: dict[str, Callable[[Measures], str]] = {
        "modules": lambda m: str(m.modules),
        "lines of a module: median / p90 / most": lambda m: spread(m.module_lines),
        "lines of a function body: median / p90 / most": lambda m: spread(m.body_lines),
        "lines of code": lambda m: f"{m.code_lines:,}",
        "comment lines per 100 of code": lambda m: f"{100 * m.comment_lines / m.code_lines:.1f}",
        "tuple assignments per 1,000": lambda m: f"{m.per_thousand(m.tuple_assignments):.1f}",
        "conditional expressions per 1,000": lambda m: f"{m.per_thousand(m.conditional_expressions):.1f}",
        "nested functions per 1,000": lambda m: f"{m.per_thousand(m.nested_functions):.1f}",
    }
    print(f"{'':48}" + "".join(f"{name:>20}" for name in packages))
    for title, show in rows.items():
        print(f"{title:48}" + "".join(f"{show(found):>20}" for found in packages.values()))


def print_rooms() -> None:
    """Print the measures of every room of nearfar."""
    print(f"\n{'room':20}{'modules':>9}{'code':>8}{'tuples/1,000':>14}{'if-else/1,000':>15}{'comments/100':>14}")
    for folder in sorted(path for path in PACKAGE.iterdir() if path.is_dir() and source_files(path)):
        found = measure(folder)
        tuples = found.per_thousand(found.tuple_assignments)
        conditionals = found.per_thousand(found.conditional_expressions)
        comments = 100 * found.comment_lines / max(found.code_lines, 1)
        sizes = f"{found.modules:>9}{found.code_lines:>8}"
        print(f"{folder.name:20}{sizes}{tuples:>14.1f}{conditionals:>15.1f}{comments:>14.1f}")


def print_methods() -> None:
    """Print the sizes of the modules and packages that hold one method each."""
    lines = {}
    packages = 0
    for method in METHODS:
        path = method.path
        files = [path]
        if path.name == "__init__.py":
            files = sorted(path.parent.rglob("*.py"))
            packages += 1
        lines[method.name] = sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files)
    sizes = list(lines.values())
    largest = max(lines, key=lambda name: lines[name])
    print(f"\nmethods: {len(sizes)}, of which packages: {packages}")
    print(f"lines of a method: median {median(sizes):.0f}, p90 {percentile(sizes, 0.9)}, most {max(sizes)} ({largest})")


class Import(NamedTuple):
    """One import of a module of nearfar by another one."""

    module: str
    name: str
    where: str
    """"top", "function" or "types" (only for type checkers)."""


def module_name(path: Path) -> str:
    """Return the name of a module below src."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_within(trees: dict[str, ast.Module], packages: set[str]) -> Iterator[Import]:
    """List which modules import which others, and where."""

    def visit(node: ast.AST, module: str, where: str) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            inside = where
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                inside = "function"
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                inside = "types"
            if isinstance(child, ast.ImportFrom):
                package = module if module in packages else module.rpartition(".")[0]
                source = importlib.util.resolve_name("." * child.level + (child.module or ""), package)
                for alias in child.names:
                    name = f"{source}.{alias.name}"
                    found = name if name in trees else source
                    if found in trees and found != module:
                        yield Import(module, found, where)
            yield from visit(child, module, inside)

    for module, tree in trees.items():
        yield from visit(tree, module, "top")


def import_graph(found: Iterable[Import], places: set[str]) -> dict[str, set[str]]:
    """Return the modules that each module imports, in some of the places of an import."""
    graph: dict[str, set[str]] = {}
    for item in found:
        if item.where in places:
            graph.setdefault(item.module, set()).add(item.name)
    return graph


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of modules that import each other, directly or through others."""

    @cache
    def reached(module: str) -> frozenset[str]:
        seen: set[str] = set()
        stack = [*graph.get(module, ())]
        while stack:
            name = stack.pop()
            if name not in seen:
                seen.add(name)
                stack += graph.get(name, ())
        return frozenset(seen)

    groups = {frozenset(other for other in reached(module) if module in reached(other)) for module in graph}
    return [set(group) for group in groups if group]


def replaced(tree: ast.Module) -> list[ast.Call]:
    """Return where a config is replaced by one with other settings. `replace` of texts and files names no argument."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [node for node in calls if ast.unparse(node.func).endswith(".replace") and not node.args]


def print_house() -> None:
    """Print how the modules of nearfar depend on each other."""
    paths = {module_name(path): path for path in source_files(PACKAGE)}
    packages = {module for module, path in paths.items() if path.name == "__init__.py"}
    trees = {module: parse(path) for module, path in paths.items()}
    found = list(imports_within(trees, packages))
    at_top = import_graph(found, {"top"})
    with_types = import_graph(found, {"top", "types"})

    @cache
    def chain(module: str) -> int:
        return 1 + max(map(chain, at_top.get(module, ())), default=0)

    classes = [node for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    heads = [" ".join(map(ast.unparse, [*node.bases, *node.decorator_list])) for node in classes]
    records = sum(any(kind in head for kind in ("NamedTuple", "Struct", "dataclass")) for head in heads)
    functions = Counter(
        name for tree in trees.values() for name in {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    )
    changed = [node for module, tree in trees.items() if module.startswith("nearfar.train") for node in replaced(tree)]
    cli = {module for module in paths if module.startswith("nearfar.cli")}
    figures = {
        "lines of src": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths.values()),
        "lines of cli/": sum(len(paths[module].read_text(encoding="utf-8").splitlines()) for module in cli),
        "modules that cli/ imports": len({item.name for item in found if item.module in cli} - cli),
        "configs that train/ replaces": len(changed),
        "circles, with types": len(circles(with_types)),
        "imports in functions": sum(item.where == "function" for item in found),
        "longest chain of imports": max(map(chain, trees)),
        "public functions in several modules": sum(n > 1 and name[0] != "_" for name, n in functions.items()),
        "record types": records,
    }
    print()
    for name, figure in figures.items():
        print(f"{name:<40}{figure:>10,}")


def spread(numbers: list[int]) -> str:
    return f"{median(numbers):.0f} / {percentile(numbers, 0.9)} / {max(numbers)}"


class Walk(NamedTuple):
    """The files of nearfar that a call passes through, in the order in which they are entered first."""

    files: list[str]
    functions: int


def follow(call: Callable[[], Any]) -> Walk:
    """Run a call and note every function of nearfar that it enters."""
    inside = str(PACKAGE)
    files: dict[str, None] = {}
    functions: set[tuple[str, str]] = set()

    def notice(frame: Any, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(inside) and code.co_name != "<module>":
            name = str(Path(code.co_filename).relative_to(PACKAGE))
            files.setdefault(name)
            functions.add((name, code.co_qualname))

    sys.setprofile(notice)
    try:
        call()
    finally:
        sys.setprofile(None)
    return Walk(list(files), len(functions))


def print_walks() -> None:
    """Print the files on the way of four calls. Each is made once before, so that imports are no part of it."""
    for name, call in walks().items():
        call()
        walk = follow(call)
        print(f"\n{name}: {len(walk.files)} files, {walk.functions} functions")
        for file in walk.files:
            print(f"  {file}")


def walks() -> dict[str, Callable[[], Any]]:
    """Return the four calls by name, on small data."""
    import numpy as np

    import nearfar
    from nearfar.cli import app
    from nearfar.evaluation import evaluate
    from nearfar.train import TrainConfig, train

    folder = Path(tempfile.mkdtemp())
    rng = np.random.default_rng(0)
    labels = np.arange(120) % 6
    rows = rng.normal(size=(120, 5)) + labels[:, None]
    np.savez(folder / "rows.npz", embeddings=rows.astype(np.float32), labels=labels)
    quiet: dict[str, Any] = {"result_action": "return_value"}
    index = folder / "rows.index"
    app(["index", str(folder / "rows.npz"), "--out", str(index)], **quiet)
    query = folder / "query.npy"
    np.save(query, rows[:1].astype(np.float32))
    runs = iter(range(1000))

    def train_once() -> Any:
        config = TrainConfig.of(data="digits", epochs=1, trunk="mlp(width=16)", embedding_dim=8)
        return train(config, folder / f"run{next(runs)}", progress=False)

    return {
        "train(TrainConfig.of(data='digits', ...), out)": train_once,
        "LMNN().fit(X, y)": lambda: nearfar.LMNN().fit(rows, labels),
        "evaluate(embeddings, labels)": lambda: evaluate(rows, labels),
        "nearfar search rows.index query.npy": lambda: app(["search", str(index), str(query)], **quiet),
    }


if __name__ == "__main__":
    main()
