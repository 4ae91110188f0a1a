"""The structure of the house: what every method file must look like, who may import whom, what importing costs."""

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nearfar
from nearfar.catalog import BY_NAME, ELSEWHERE, HERE, METHODS, missing

DONE = [method for method in METHODS if method.done]
MODULES = sorted(HERE.rglob("*.py"))
REFERENCES = Path(__file__).parent / "references"

# folder or module -> what it may import of the package; "" is the package's own top
LEAVES = {"__version__", "progress", "quoting", "reading"}  # which import nothing of ours
ALLOWED = {
    "catalog": set(),
    "core": {"core"},
    "base": {"core", "catalog", "fitted", "learner", "kernel_learner"},
    "kernel_learner": {"core", "fitted", "learner"},
    "learner": {"core", "catalog", "fitted"},
    "fitted": {"core", "catalog"},
    "evaluation": {"core", "evaluation"},
    "spectral": {"base", "core"},
    "probabilistic": {"base", "core"},
    "deep": {"catalog", "deep", "core", "fitted"},
    "data": {"data"},
    "index": {"core", "index"},
    "report": {"report", "evaluation", "core", "data", "deep", "catalog"},
    "train": {"train", "deep", "data", "evaluation", "core", "catalog", "fitted"},
}


def place(path: Path) -> str:
    return path.relative_to(HERE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Absolute names of what a module imports, wherever in the module it does."""
    package = ["nearfar", *path.relative_to(HERE).parts[:-1]]
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            names |= {stem} | {f"{stem}.{alias.name}" for alias in node.names}
    return names


def test_names_are_unique():
    assert len(BY_NAME) == len(METHODS)


def test_every_method_file_is_catalogued():
    homes = {method.home for method in METHODS if method.kind != "network"} - {"deep"}
    files = {path for home in homes for path in (HERE / home).glob("*.py") if path.name != "__init__.py"}
    helpers = {HERE / "deep/samplers" / name for name in ("base.py", "random.py", "resolve.py")}
    networks = set((HERE / "deep/networks").glob("*.py"))
    assert files - helpers - networks == {method.path for method in DONE} - networks


@pytest.mark.parametrize("method", DONE, ids=lambda m: m.name)
def test_method_file_opens_with_name_paper_and_formula(method):
    doc = ast.get_docstring(ast.parse(method.path.read_text()), clean=False)
    first = doc.split("\n\n")[0]
    author, year = method.paper.rsplit(" ", 1)
    assert author.split()[0].split("-")[0] in first, f"the first line names the paper ({method.paper})"
    assert year in first
    assert len(doc.split("\n\n")) > 1, "then the formula"


@pytest.mark.parametrize("method", DONE, ids=lambda m: m.name)
def test_methods_do_not_import_each_other(method):
    if method.kind == "composition":
        return
    others = {other.module for other in METHODS if other.module != method.module}
    assert not imports(method.path) & others


@pytest.mark.parametrize("method", DONE, ids=lambda m: m.name)
def test_every_loss_miner_and_learner_has_its_reference(method):
    if method.kind in ("learner", "loss", "regularizer", "miner", "head"):
        assert (REFERENCES / method.path.name).exists()


@pytest.mark.parametrize("method", DONE, ids=lambda m: m.name)
def test_public_class_is_documented_and_final(method):
    if method.home.startswith("deep"):
        pytest.importorskip("torch")
    thing = getattr(nearfar, method.name)
    assert thing.__doc__, "a public name has a docstring"
    bases = [BY_NAME[base.__name__].name for base in getattr(thing, "__mro__", [])[1:] if base.__name__ in BY_NAME]
    assert not bases, f"a method does not subclass another method: {bases}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(HERE)))
def test_modules_import_downwards(path):
    allowed = ALLOWED.get(place(path))
    if allowed is None:
        return
    inside = {name.split(".")[1] for name in imports(path) if name.startswith("nearfar.") and name != "nearfar."}
    assert inside <= allowed | LEAVES


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(HERE)))
def test_modules_say_what_they_are(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", [p for p in MODULES if place(p) == "core"], ids=lambda p: p.name)
def test_core_imports_neither_torch_nor_sklearn(path):
    assert not {name.split(".")[0] for name in imports(path)} & {"torch", "sklearn"}


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(HERE)))
def test_modules_named_in_docstrings_exist(path):
    pytest.importorskip("torch")
    for dotted in re.findall(r"`(?:nearfar\.)?((?:core|deep|data|train|evaluation)\.[\w.]+)`", path.read_text()):
        *parents, name = dotted.split(".")
        try:
            importlib.import_module(f"nearfar.{dotted}")
        except ModuleNotFoundError:
            assert hasattr(importlib.import_module(".".join(["nearfar", *parents])), name), dotted


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_importing_nearfar_is_nearly_free():
    loaded = run(
        "import sys, nearfar, nearfar.catalog; print(sorted({'numpy','scipy','sklearn','torch'} & set(sys.modules)))"
    )
    assert loaded == "[]"


def test_classical_names_never_load_torch():
    names = [m.name for m in DONE if m.home.startswith(("spectral", "probabilistic"))]
    load = f"import sys, nearfar, nearfar.evaluation\nfor name in {names!r}: getattr(nearfar, name)\n"
    assert run(load + "print('torch' in sys.modules)") == "False"


def test_unknown_and_planned_names_say_so():
    with pytest.raises(AttributeError, match="did you mean TripletLoss"):
        nearfar.TripletLos  # noqa: B018
    assert "did you mean TupletMarginLoss or TripletLoss?" in missing("TripletMarginLos")
    assert "planned" in missing(next((m.name for m in METHODS if not m.done), "")) or all(m.done for m in METHODS)


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
    assert set(nearfar.__all__) == {method.name for method in DONE}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert "LMNN" in nearfar.__all__
    assert "TripletLoss" not in nearfar.__all__


def test_dir_lists_what_is_done():
    assert {method.name for method in DONE} <= set(dir(nearfar))
    assert set(nearfar.train.__all__) <= set(dir(nearfar.train))
