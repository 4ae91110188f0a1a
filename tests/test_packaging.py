"""What several files say of one thing, they say alike: versions, Pythons, oldest dependencies, kinds of changes."""

import re
import tomllib
from pathlib import Path

import pytest

import nearfar
from nearfar.extras import NEEDS, PACKAGES
from tools.generate import LINES_OF_ADDRESS, address, with_address

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def as_numbers(version):
    numbers = [int(part) for part in version.split(".")]
    while numbers[-1] == 0:
        numbers.pop()
    return numbers


def test_the_page_on_installation_lists_every_extra():
    extras = PROJECT["project"]["optional-dependencies"]
    page = (ROOT / "docs" / "install.md").read_text()
    rows = re.findall(r"^\| (`.*?) \| (.*?) \|", page, re.M)
    listed = {name: text for names, text in rows for name in re.findall(r"`(\w+)`", names)}
    assert set(listed) == set(extras) - {"dev", "bench", "docs"}
    for whole in ("all", "photos"):
        (parts,) = [line for line in extras[whole] if line.startswith("nearfar[")]
        assert set(re.findall(r"`(\w+)`", listed[whole])) == set(re.findall(r"\w+", parts)) - {"nearfar"}


ENGINES = ("store", "lance", "postgres")  # extras of collections


def test_the_oldest_dependencies_are_those_that_the_matrix_tests():
    extras = PROJECT["project"]["optional-dependencies"]
    # the matrix leaves out vision, whose torchvision would bring a torch of its own
    users = [
        name
        for name in extras
        if name not in ("all", "dev", "bench", "docs", *ENGINES, "serve", "dask", "vision", "photos")
    ]
    requirements = [*PROJECT["project"]["dependencies"], *(line for name in users for line in extras[name])]
    floors = {name: as_numbers(version) for name, version in (line.split(">=") for line in requirements)}
    pins = re.findall(r"^([\w-]+)==([\d.]+)$", (ROOT / "constraints-oldest.txt").read_text(), re.M)
    assert {name: as_numbers(version) for name, version in pins} == floors


def test_the_oldest_python_is_one():
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert PROJECT["tool"]["mypy"]["python_version"] == python
    assert PROJECT["tool"]["ruff"]["target-version"] == "py" + python.replace(".", "")
    assert f"nearfar needs Python {python} or newer" in (ROOT / "README.md").read_text()


def test_the_numerical_folders_are_there():
    folders = re.search(r"^NUMERICAL := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()
    assert all((ROOT / folder).is_dir() for folder in folders)
    assert all(f'"{folder.removeprefix("tests/")}"' in (ROOT / "noxfile.py").read_text() for folder in folders)


def test_citations_name_this_version():
    assert f"\nversion: {nearfar.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.parametrize("name", LINES_OF_ADDRESS)
def test_the_address_of_the_repository_is_set_in_one_place(name):
    where = "https://example.org/nearfar"
    text = (ROOT / name).read_text()
    assert with_address(name, address()) == text  # that of pyproject.toml, or none
    added = set(with_address(name, where).splitlines()) - set(with_address(name, "").splitlines())
    assert added == {LINES_OF_ADDRESS[name][1].format(where)}
    settings = (ROOT / "docs" / "conf.py").read_text()
    assert '["project"].get("urls", {})' in settings  # links to the sources


def test_every_fragment_of_changes_is_of_a_kind_that_a_release_collects():
    kinds = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
    others = {"README.md", PROJECT["tool"]["towncrier"]["template"].removeprefix("changes/")}
    names = {path.name for path in (ROOT / "changes").iterdir()} - others
    assert {name for name in names if name.split(".")[-2] not in kinds or not name.endswith(".md")} == set()


def test_one_line_installs_what_the_first_commands_use():
    extras = PROJECT["project"]["optional-dependencies"]
    text = (ROOT / "README.md").read_text()
    used = re.findall(r"^    nearfar (\w+) ", text, re.M)[:4]
    assert "    pip install 'nearfar[photos]' " in text
    (parts,) = re.findall(r"nearfar\[(.*)\]", extras["photos"][0])
    brought = {extra for extra, lines in extras.items() if extra in parts.split(",")}
    needed = {PACKAGES[package] for command in used for package in NEEDS.get(command, ())} | {PACKAGES["timm"]}
    assert used == ["train", "report", "index", "serve"]
    assert needed <= brought


def test_the_recipe_of_conda_has_the_version_and_the_dependencies_of_the_project():
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    assert f'version = "{nearfar.__version__}"' in recipe
    run = re.search(r"  run:\n(.*?)\n\n", recipe, re.S)[1]
    listed = dict(line.removeprefix("    - ").split(" >=") for line in run.splitlines())
    python = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert listed.pop("python") == python
    assert listed == dict(line.split(">=") for line in PROJECT["project"]["dependencies"])
    command, function = next(iter(PROJECT["project"]["scripts"].items()))
    assert f"    - {command} = {function}\n" in recipe
    assert f"license: {PROJECT['project']['license']}\n" in recipe


def test_the_image_has_what_it_copies_and_runs_as_a_user():
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    assert [word for word, _ in steps if word not in ("ARG", "COPY", "RUN")] == [
        "FROM",
        "USER",
        "WORKDIR",
        "ENTRYPOINT",
        "CMD",
    ]
    base = dict(steps)["FROM"]
    python = re.fullmatch(r"python:(3\.\d+)-slim", base)[1]  # a tag that names its version
    assert f"Programming Language :: Python :: {python}" in PROJECT["project"]["classifiers"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for word, rest in steps:
        if word == "COPY":
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored
        if word == "RUN":
            assert "--no-cache-dir" in rest
            extras = set(re.findall(r"nearfar\[([\w,]+)\]", rest)[0].split(","))
            assert extras <= set(PROJECT["project"]["optional-dependencies"])
