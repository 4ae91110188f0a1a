"""The structure of the house: how a method looks, where a module lives, who imports whom, what importing costs.

A module lives where its users are: with the method if one method uses it, in the family if several methods of it do, in
the branch (`spectral`, `probabilistic`) or in `numerics` and `neighbors` if several families do.
"""

import ast
import importlib.util
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import nearfar
from nearfar.catalog import BY_NAME, ELSEWHERE, HERE, METHODS, missing
from tools import measure

from . import forking

FILES = sorted(HERE.rglob("*.py"))
REFERENCES = Path(__file__).parent / "references"
FORMULAS = Path(__file__).parent.parent / "docs" / "formulas.toml"


def module_of(path: Path) -> str:
    """The name of a module without `nearfar.`; "" is the package itself."""
    parts = path.relative_to(HERE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


PATHS = {module_of(path): path for path in FILES}
PACKAGES = {module for module, path in PATHS.items() if path.name == "__init__.py"}

# room -> the rooms that it may import, besides itself; the order is from the ground up
GROUND = {
    "catalog",
    "children",
    "expressions",
    "extras",
    "fit_warnings",
    "labels",
    "lazy_names",
    "progress",
    "quoting",
    "settings",
    "trust",
}  # single modules that every room may use
ALLOWED: dict[str, set[str]] = {
    **{module: set() for module in GROUND},
    "io": {"numerics"},
    "numerics": set(),
    "neighbors": {"numerics"},
    "estimators": {"io", "numerics", "neighbors", "evaluation", "data"},
    "spectral": {"numerics", "neighbors", "estimators"},
    "probabilistic": {"numerics", "neighbors", "estimators"},
    "evaluation": {"numerics", "neighbors"},
    "index": {"io", "numerics", "neighbors", "evaluation", "data", "models"},
    "data": {"io", "numerics"},
    "deep": {"io", "numerics", "neighbors", "estimators"},
    "train": {"io", "numerics", "estimators", "evaluation", "spectral", "data", "deep"},
    "report": {"io", "numerics", "neighbors", "evaluation", "data"},
    "models": {"io", "numerics", "estimators", "data", "deep", "train"},
    "workflows": {
        "io",
        "numerics",
        "neighbors",
        "estimators",
        "evaluation",
        "index",
        "data",
        "deep",
        "train",
        "report",
        "models",
    },
    "compat": {"io", "numerics", "estimators", "evaluation", "deep"},
    "serve": {"io", "numerics", "index", "data", "models"},
    "cli": {
        "io",
        "numerics",
        "estimators",
        "evaluation",
        "index",
        "data",
        "deep",
        "train",
        "report",
        "models",
        "workflows",
        "serve",
    },
}
# rooms inside deep/ -> the rooms that they may import; "" are the modules beside the rooms
DEEP: dict[str, set[str]] = {
    "": set(),
    "objective": {""},
    "pairwise": {"", "objective"},
    "proxies": {"", "objective", "pairwise"},
    "wholebatch": {"", "objective", "pairwise", "proxies"},
}

# modules that are not where the rules say, and why
MISPLACED = {
    "deep.networks.bn_inception": "a trunk, one of several that a text names",
    "deep.networks.identity": "a trunk",
    "deep.networks.mlp": "a trunk",
}
UNUSED = {  # by the library: for its users
    "numerics.descriptors",
    "deep.miners.offline",
    "deep.proxies.sampled_classes",
    "deep.proxies.sharded_classes",
}
# modules of train that replace a config by one with other settings, and why; all others take it as it is
OTHER_TRAININGS = {
    "train.compare": "a training for each objective, setting and seed, on the same test classes",
    "train.encoder": "a network that is not trained, whose weights decide its settings",
    "train.final": "a training on all classes, with the settings of a run",
    "train.loading": "the network of a checkpoint, if it is none that the run has trained",
    "train.mirroring": "features of the trunk, which the plan has not, decide whether images are mirrored",
    "train.papers.paper_tables": "a training for each row and seed",
    "train.rungs.rung_settings": "a training for each rung",
    "train.rungs.split_training": "an embedding layer whose start is known",
    "train.rungs.untrained": "networks that are not trained, beside the one that is",
    "train.settle": "settles: nothing is replaced after its plan",
    "train.timing.forecast": "a training of a few batches",
    "train.timing.time_plan": "settings with which a training ends in time",
}
# classes that share their name with another, and why
SAME_NAME = {
    "Comparison": "of a batch with a reference, and `nearfar.report.Comparison` of objectives",
}


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def room_of(module: str) -> str:
    return module.partition(".")[0]


@cache
def names_imported(path: Path) -> frozenset[str]:
    """Absolute names of what a module imports, wherever in the module it does."""
    package = ["nearfar", *path.relative_to(HERE).parts[:-1]]
    names = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names |= {stem} | {f"{stem}.{alias.name}" for alias in node.names}
    return frozenset(names)


@cache
def imports(module: str) -> frozenset[str]:
    """The modules of the package that a module imports, by names without `nearfar.`."""
    names = names_imported(PATHS[module])
    found = {name.removeprefix("nearfar.") for name in names if name.startswith("nearfar.")} & PATHS.keys()
    # `from .psd import project` names the package that holds psd only in passing
    return frozenset(name for name in found if name not in PACKAGES or _imported_from_init(module, name))


def _imported_from_init(module: str, package: str) -> bool:
    """Whether a module takes a name from the `__init__` of a package, and not only modules of it."""
    names = names_imported(PATHS[module])
    taken = {name for name in names if name.rpartition(".")[0] == f"nearfar.{package}"}
    return any(name.removeprefix("nearfar.") not in PATHS for name in taken)


@cache
def importers() -> dict[str, set[str]]:
    """For every module, the modules that import it."""
    found: dict[str, set[str]] = {module: set() for module in PATHS}
    for module in PATHS:
        for name in imports(module) - {module}:
            found[name].add(module)
    return found


HOMES = {method.module.removeprefix("nearfar."): method for method in METHODS}
HELPERS = ("spectral", "probabilistic", "numerics", "neighbors", "deep")  # rooms whose modules serve methods


def method_of(module: str) -> str:
    """The method in whose module or package a module is, or nothing."""
    while module and module not in HOMES:
        module = module.rpartition(".")[0]
    return module


@cache
def users(module: str) -> frozenset[str]:
    """The methods that use a module, directly or through other helpers; other rooms as "room:"."""
    found, seen, ahead = set(), {module}, [module]
    while ahead:
        for other in importers()[ahead.pop()]:
            method = method_of(other)
            if method:
                found.add(method)
            elif room_of(other) not in HELPERS:
                found.add(f"{room_of(other)}:")
            elif other not in seen:
                seen.add(other)
                ahead.append(other)
    return frozenset(found)


SHARED = sorted(m for m in PATHS.keys() - PACKAGES - HOMES.keys() if room_of(m) in HELPERS)


@pytest.mark.parametrize("module", sorted(set(SHARED) - MISPLACED.keys()))
def test_a_module_lives_where_its_users_are(module):
    found = users(module)
    home = module.rpartition(".")[0]
    assert found or module in UNUSED, "nothing uses it"
    if any(user.endswith(":") for user in found) or not found:
        assert not method_of(home), f"{module} serves more than its method: {sorted(found)}"
        return
    families = {user.rpartition(".")[0] for user in found}
    branches = {family.partition(".")[0] for family in families}
    if len(found) == 1:
        assert f"{home}.".startswith(f"{min(found)}."), f"only {min(found)} uses {module}: it lives in its package"
    elif branches == {"deep"}:
        assert not method_of(home), f"{module} serves {sorted(found)}"
    elif len(families) == 1:
        assert home == min(families), f"only methods of {min(families)} use {module}: it lives there"
    elif len(branches) == 1:
        assert home in (min(branches), "numerics", "neighbors"), f"families of {min(branches)} share {module}"
    else:
        assert room_of(module) in ("numerics", "neighbors"), f"{sorted(branches)} share {module}"


def test_a_config_is_replaced_only_for_another_training():
    """What travels from a plan to the end of a run are the settings that were settled once."""
    found = {module for module in PATHS if room_of(module) == "train" and measure.replaced(parsed(PATHS[module]))}
    assert found == OTHER_TRAININGS.keys(), "settle it in src/nearfar/train/settle.py, or pass what differs"


def test_what_is_misplaced_exists():
    assert MISPLACED.keys() <= PATHS.keys()


def test_no_package_hides_a_module_of_its_own():
    """`from package import name` must not give a function where a module of that name is meant."""
    for package in PACKAGES - {"evaluation"}:  # `evaluation.few_shot` is public, and the function
        path = PATHS[package]
        modules = {module.rpartition(".")[2] for module in PATHS if module.rpartition(".")[0] == package}
        taken = [node for node in parsed(path).body if isinstance(node, ast.ImportFrom) and node.module]
        names = {alias.asname or alias.name for node in taken for alias in node.names}
        assert not names & modules, package


def test_reading_changes_nothing():
    """A property is a question: it assigns no attribute, and computes no loss and no embedding again."""
    acting = set()
    for module, path in PATHS.items():
        functions = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            if "property" not in {ast.unparse(decorator) for decorator in function.decorator_list}:
                continue
            nodes = [node for node in ast.walk(function) if isinstance(node, ast.Attribute | ast.Call)]
            if any(writes(node) or runs_itself(node) for node in nodes):
                acting.add(f"{module}: {function.name}")
    assert not acting, "the call that computes a value returns it or keeps it"


def writes(node: ast.expr) -> bool:
    return isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load)


def runs_itself(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in ("self", "self.forward", "setattr")


def test_rooms_import_downwards():
    for module in PATHS.keys() - {"", "__main__"}:
        room = room_of(module)
        for name in imports(module):
            assert room_of(name) in ALLOWED[room] | GROUND | {room}, f"{module} imports {name}"


def test_the_command_line_only_speaks():
    """It parses words, calls public functions and prints: no arrays, no networks, and no private name of another."""
    computing = set()
    for module in PATHS:
        if room_of(module) != "cli":
            continue
        heavy = {name.partition(".")[0] for name in names_imported(PATHS[module])} & {"numpy", "torch", "scipy"}
        names = {name.rpartition(".")[2] for name in names_imported(PATHS[module])}
        attributes = [node for node in ast.walk(parsed(PATHS[module])) if isinstance(node, ast.Attribute)]
        names |= {node.attr for node in attributes if not of_self(node)} - {"_replace"}  # of tuples
        if heavy or any(name.startswith("_") and not name.startswith("__") for name in names):
            computing.add(module)
    assert not computing, "src/nearfar/workflows/: what a command does is a function there"


def of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "self"


def test_modules_do_not_import_each_other_in_circles():
    """Neither directly nor through others, and not for the types of arguments either."""
    trees = {module: parsed(path) for module, path in PATHS.items()}
    packages = {f"nearfar.{module}" if module else "nearfar" for module in PACKAGES}
    named = {f"nearfar.{module}" if module else "nearfar": tree for module, tree in trees.items()}
    graph = measure.import_graph(measure.imports_within(named, packages), {"top", "types"})
    assert len(graph) > 400
    assert not measure.circles(graph), "move what both need into a module that imports neither"


OPTIONAL = {"torch", "accelerate", "msgspec", "jinja2", "matplotlib", "PIL", "starlette", "uvicorn", "pyarrow", "onnx"}


@cache
def loaded(module: str) -> frozenset[str]:
    """What the import of a module loads: other modules of the package, and packages that may be missing or are slow."""
    seen: set[str] = set()
    ahead = [module]
    while ahead:
        for name in top_imports(ahead.pop()) - seen:
            seen.add(name)
            ahead += [name] if name in PATHS else []
    return frozenset(name for name in seen if name in PATHS or name in OPTIONAL)


@cache
def top_imports(module: str) -> frozenset[str]:
    """The modules, without `nearfar.`, and packages that the statements at the top of a module import."""
    nodes = [node for node in parsed(PATHS[module]).body if isinstance(node, ast.Import | ast.ImportFrom)]
    packages = {alias.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    found = {name for node in nodes if isinstance(node, ast.ImportFrom) for name in targets(module, node)}
    return frozenset(packages | found)


def targets(module: str, node: ast.ImportFrom) -> set[str]:
    """What a statement imports: modules, those in which lazy names of a package are, or a package of others."""
    if not node.level:
        return {(node.module or "").partition(".")[0]}
    package = module if module in PACKAGES else module.rpartition(".")[0]
    stem = importlib.util.resolve_name("." * node.level + (node.module or ""), f"nearfar.{package}".rstrip("."))
    stem = stem.removeprefix("nearfar").removeprefix(".")
    found = {stem}
    for alias in node.names:
        later = lazy_homes(stem).get(alias.name, alias.name)
        found.add(f"{stem}.{later}".removeprefix("."))
    packages = {name.rpartition(".")[0] for name in found}  # they are imported first
    return (found | packages) & PATHS.keys() - {""}


@cache
def lazy_homes(package: str) -> dict[str, str]:
    """The modules of the names that a package imports on first use."""
    for node in parsed(PATHS[package]).body if package in PATHS else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("HOMES", "LATER"):
            return dict(ast.literal_eval(node.value))
    return {}


def test_modules_import_at_the_top_unless_that_costs_something():
    """An import in a function loads a package that may be missing or is slow, or a module that imports this one, or
    says what it is for. Those of `cli` make `nearfar --help` quick, as its docstring says."""
    for module, path in PATHS.items():
        if room_of(module) in ("", "cli"):
            continue
        lines = path.read_text().splitlines()
        functions = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.FunctionDef)]
        inside = {node for function in functions for node in ast.walk(function) if isinstance(node, ast.ImportFrom)}
        for node in inside:
            if not node.level:
                continue
            costs = {name for target in targets(module, node) for name in (target, *loaded(target))}
            if module in costs or costs & OPTIONAL - loaded(module):
                continue
            line = lines[node.lineno - 1]
            assert "#" in line, f"{module}: `{ast.unparse(node)}` belongs at the top, or says what it is for"


def test_rooms_of_deep_import_downwards():
    for module in PATHS:
        room = deep_room(module)
        if room_of(module) != "deep" or room not in DEEP:
            continue
        for name in imports(module):
            if room_of(name) == "deep":
                assert deep_room(name) in DEEP[room] | {room}, f"{module} imports {name}"


def deep_room(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 2 or (len(parts) == 2 and module in PACKAGES) else ""


def test_names_mean_one_thing():
    """No two classes and no two constants that are numbers have one name; options of settings may, as settings do."""
    places: dict[str, set[str]] = {}
    for module, path in PATHS.items():
        if room_of(module) == "compat":
            continue  # the names of other libraries
        for node in parsed(path).body:
            for name in defined(node):
                places.setdefault(name, set()).add(module)
    shared = {name: found for name, found in places.items() if len(found) > 1}
    assert shared.keys() == SAME_NAME.keys(), shared


def defined(node: ast.stmt) -> set[str]:
    """The name of a class, or of a constant whose value is a number."""
    if isinstance(node, ast.ClassDef):
        return {node.name}
    if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
        return set()
    parts = {type(part) for part in ast.walk(node.value) if isinstance(part, ast.expr)}
    values = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
    plain = parts <= {ast.Constant, ast.BinOp, ast.UnaryOp}
    number = plain and not any(isinstance(value, bool | str) for value in values)
    name = node.targets[0].id
    return {name} if number and name.isupper() else set()


def test_names_are_unique():
    assert len(BY_NAME) == len(METHODS)


def test_every_method_of_the_catalog_has_its_file_and_every_file_its_method():
    homes = {method.home for method in METHODS if method.kind != "network"} - {"deep"}
    inside = {module for module in PATHS if module.replace(".", "/").rpartition("/")[0] in homes} - {""}
    helpers = set(SHARED) | {"deep.samplers.random", "deep.samplers.resolve"}
    networks = {module for module in PATHS if module.startswith("deep.networks")}
    assert inside - helpers - networks == HOMES.keys() - networks, "src/nearfar/catalog.py: a line for each method"


def test_method_files_open_with_name_paper_and_formula():
    for method in METHODS:
        doc = ast.get_docstring(parsed(method.path), clean=False)
        first = doc.split("\n\n")[0]
        author, year = method.paper.rsplit(" ", 1)
        named = author.split()[0].split("-")[0] in first and year in first
        assert named, f"{method.name}: the first line names the paper ({method.paper})"
        assert len(doc.split("\n\n")) > 1, f"{method.name}: then the formula"


def test_every_method_has_its_formula_and_its_use():
    entries = tomllib.loads(FORMULAS.read_text(encoding="utf-8"))
    assert set(entries) == {m.name for m in METHODS}, "docs/formulas.toml: an entry for each method of the catalog"
    for name, entry in entries.items():
        assert entry["tex"], name
        assert entry["use"].endswith("."), name


def test_methods_do_not_import_each_other():
    homes = {home for home, method in HOMES.items() if method.kind != "composition"}
    for module in PATHS:
        own = method_of(module)
        if own in homes:
            others = {method_of(name) for name in imports(module)} - {own, ""}
            assert not others, f"{module} imports {sorted(others)}"


def test_every_loss_miner_and_learner_has_its_reference():
    kinds = ("learner", "loss", "regularizer", "miner", "head", "distance")
    needed = [REFERENCES / f"{method.stem}.py" for method in METHODS if method.kind in kinds]
    missing_files = [f"tests/references/{path.name}" for path in needed if not path.exists()]
    assert not missing_files, "write the formula of the paper in plain loops: CONTRIBUTING.md"


@pytest.mark.parametrize("room", ["deep", "others"])
def test_public_classes_are_documented_and_final(room):
    if room == "deep":
        pytest.importorskip("torch")
    for method in METHODS:
        if method.home.startswith("deep") != (room == "deep"):
            continue
        thing = getattr(nearfar, method.name)
        assert thing.__doc__, f"{method.name}: a public name has a docstring"
        bases = [BY_NAME[base.__name__].name for base in getattr(thing, "__mro__", [])[1:] if base.__name__ in BY_NAME]
        assert not bases, f"{method.name}: a method does not subclass another method: {bases}"


def test_modules_say_what_they_are():
    assert not [str(path) for path in FILES if not ast.get_docstring(parsed(path))]


@pytest.mark.parametrize("module", sorted(m for m in PATHS if room_of(m) in ("numerics", "neighbors")))
def test_numerics_imports_neither_torch_nor_sklearn(module):
    assert not {name.split(".")[0] for name in names_imported(PATHS[module])} & {"torch", "sklearn"}


def test_modules_named_in_docstrings_exist():
    pytest.importorskip("torch")
    text = "\n".join(path.read_text() for path in FILES)
    for dotted in re.findall(
        r"`(?:nearfar\.)?((?:numerics|neighbors|deep|data|train|evaluation|estimators)\.[\w.]+)`", text
    ):
        *parents, name = dotted.split(".")
        try:
            importlib.import_module(f"nearfar.{dotted}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(".".join(["nearfar", *parents])), name), dotted


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def run_with_torch(code: str) -> str:
    """Run code in a process that has imported PyTorch, which takes seconds, and nothing else."""
    ended = forking.run("-c", code, imported=("torch",))
    ended.check_returncode()
    return ended.stdout.strip()


def test_importing_nearfar_is_nearly_free():
    loaded = run(
        "import sys, nearfar, nearfar.catalog; print(sorted({'numpy','scipy','sklearn','torch'} & set(sys.modules)))"
    )
    assert loaded == "[]"


def test_classical_names_never_load_torch():
    names = [m.name for m in METHODS if m.home.startswith(("spectral", "probabilistic"))]
    load = f"import sys, nearfar, nearfar.evaluation\nfor name in {names!r}: getattr(nearfar, name)\n"
    assert run(load + "print('torch' in sys.modules)") == "False"


@pytest.mark.slow
def test_no_name_loads_the_compiler_of_torch():
    pytest.importorskip("torch")
    names = [m.name for m in METHODS]
    load = f"import sys, nearfar\nfor name in {names!r}: getattr(nearfar, name)\n"
    assert run_with_torch(load + "print('torch._dynamo' in sys.modules)") == "False"


NEEDLESS = ("accelerate", "matplotlib", "pandas", "scipy.stats", "sklearn", "timm", "torchvision", "transformers")


@pytest.mark.parametrize("command", ["embedding", "evaluating", "searching"])
def test_a_command_on_a_model_imports_no_more_than_it_needs(command):
    """The home of the command, and what loads a run: timm, transformers and the loop of a training take seconds."""
    pytest.importorskip("torch")
    load = f"import sys, nearfar.workflows.{command}, nearfar.train.loading\n"
    assert run_with_torch(load + f"print(sorted({set(NEEDLESS)!r} & set(sys.modules)))") == "[]"


# files of ours that a call passes through, at most: `python tools/measure.py` lists them
MAX_FILES = {
    "train(TrainConfig.of(data='digits', ...), out)": 85,  # twelve of them compare what is trained with cheaper models
    "LMNN().fit(X, y)": 16,
    "evaluate(embeddings, labels)": 11,
    "nearfar search rows.index query.npy": 25,  # four of the index, two of addresses
}


@pytest.mark.slow  # it trains twice
def test_calls_pass_through_few_files():
    pytest.importorskip("torch")
    passed = {}
    for name, call in measure.walks().items():
        call()  # imports, and what is made once, are no part of it
        passed[name] = measure.follow(call).files
    assert passed.keys() == MAX_FILES.keys()
    for name, files in passed.items():
        assert len(files) <= MAX_FILES[name], f"{name} passes through {len(files)} files: {', '.join(files)}"


def test_unknown_names_say_what_may_be_meant():
    with pytest.raises(AttributeError, match="did you mean TripletLoss"):
        nearfar.TripletLos  # noqa: B018
    assert "did you mean TupletMarginLoss or TripletLoss?" in missing("TripletMarginLos")


def test_names_of_other_libraries_lead_to_ours():
    assert missing("TripletMarginLoss").startswith("nearfar has no 'TripletMarginLoss'; here it is TripletLoss (")
    assert "here it is ITML (" in missing("ITML_Supervised")
    assert not ELSEWHERE.keys() & BY_NAME.keys()
    for ours in ELSEWHERE.values():
        name, dot, rest = ours.partition("(")[0].rpartition(".")
        assert rest in BY_NAME or (dot and importlib.util.find_spec(name)) or ours.startswith("a "), ours


def test_a_missing_package_names_its_extra():
    code = (
        "import sys; sys.modules['torch'] = None; import nearfar\n"
        "try:\n    nearfar.TripletLoss\nexcept ImportError as error:\n    print(error)"
    )
    assert run(code) == "nearfar.TripletLoss: torch is not installed: pip install 'nearfar[deep]'"


def test_extras_are_those_of_the_project():
    from nearfar.extras import PACKAGES

    project = (HERE.parent.parent / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in project for extra in PACKAGES.values())


def test_a_star_imports_what_can_be(monkeypatch):
    pytest.importorskip("torch")
    assert set(nearfar.__all__) == {method.name for method in METHODS}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "LMNN" in nearfar.__all__
    assert "TripletLoss" not in nearfar.__all__


def test_dir_lists_every_method():
    assert {method.name for method in METHODS} <= set(dir(nearfar))
    assert set(nearfar.train.__all__) <= set(dir(nearfar.train))


WIDE_TEXTS = {
    "data/decode.py": "roles",
    "data/readers/arrays.py": "numbers, and texts that a file has as such an array; a message",
    "data/readers/digits.py": "roles",
    "data/readers/table_roles.py": "roles",
    "data/sounds.py": "roles",
    "data/synthetic/glyphs.py": "roles",
    "index/index.py": "a few names",
    "index/paths.py": "numbers",
    "index/records.py": "numbers, no texts, and texts that are such an array already",
    "index/stored_column.py": "texts of which the longest is known",
    "labels.py": "texts of which the longest is known",
}
"""Files that make arrays in which each text is as wide as the longest, and of what."""


def test_texts_of_a_table_do_not_become_as_wide_as_the_longest():
    wide = re.compile(r"dtype=np\.str_|astype\(np\.str_\)|dtype=str\b|\.astype\(str\)|, np\.str_\)")
    found = {path.relative_to(HERE).as_posix() for path in FILES if wide.search(path.read_text())}
    assert found == WIDE_TEXTS.keys(), "take text_array of nearfar.labels"
