"""What --help shows: options in groups, defaults that hold, and examples that run."""

import csv
import re
from inspect import getdoc, getsourcefile
from pathlib import Path
from typing import get_args, get_type_hints

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("jinja2")
pytest.importorskip("uvicorn")

from nearfar import cli
from nearfar.cli.options import ItemOptions, SplitOptions, TrainingOptions
from nearfar.cli.setting_texts import setting_defaults, setting_texts
from nearfar.io.formats import accepted
from nearfar.report import compare
from nearfar.train import TrainConfig
from tools.commands import commands_page

from .drawn_photos import THINGS, draw_photos, photo
from .test_cli import COMMANDS, run

ROOT = Path(__file__).parent.parent
ENDINGS = re.compile(r"\.[a-z]+\b")
ELSEWHERE = ("data", "push")  # whose examples need a network
MOST_UNGROUPED = 8  # options
OF_ONE_RUN = {"objective", "seed", "resume", "final", "devices", "rung", "keep", "minutes", "out", "data"}
SMALL_TRAINING = ["--set", "steps=2", "--image-size", "16"]
BESIDES = {
    "train": SMALL_TRAINING,
    "compare": [*SMALL_TRAINING, "--quiet"],
    "evaluate": ["--queries", "3", "--episodes", "10"],
}
STANDING_IN = {"glyphs": "photos/", "--seeds": None, "3": None, "20": "4"}
ORDER = ("train", "inspect", "evaluate", "embed", "index", "fit", "compare")  # these make what others read


def example_of(command):
    """Return the words of the example of a command."""
    line = re.search(r"Example: nearfar (.*)", getdoc(cli.app[command].default_command))[1]
    return [first or second for first, second in re.findall(r'"([^"]*)"|([^\s"]+)', line)]


def options_of(command):
    """The options of a command, by their names in Python; those of a group of options stand for themselves."""
    known = cli.app[command].assemble_argument_collection(parse_docstring=True)
    return {argument.field_info.name: argument for argument in known if not argument.children}


def test_the_reference_of_the_command_line_has_every_option():
    sections = dict(
        re.findall(r"^\.\. program:: nearfar ([a-z-]+)\n(.*?)(?=^\.\. _nearfar|\Z)", commands_page(), re.M | re.S)
    )
    assert set(sections) == set(COMMANDS)
    for command, section in sections.items():
        listed = re.findall(r"^\.\. option:: (.*)$", section, re.M)
        for name, argument in options_of(command).items():
            shown = argument.names[0] if argument.index is None else argument.names[0].lstrip("-").upper()
            assert any(re.match(rf"{shown}( |,|$)", head) for head in listed), (command, name)


@pytest.mark.parametrize("command", COMMANDS)
def test_o_is_short_for_out_and_what_is_written_can_be_overwritten(command):
    known = cli.app[command].assemble_argument_collection(parse_docstring=True)
    for argument in known:
        assert ("-o" in argument.names) == ("--out" in argument.names), argument.names
    names = {name for argument in known for name in argument.names}
    folders_and_pages = ("train", "report", "data")  # a run is continued or refused, a page is replaced
    assert "--out" not in names or "--overwrite" in names or command in folders_and_pages


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_of_a_shell_knows_the_commands(shell, capsys, monkeypatch):
    code, script, _ = run(capsys, monkeypatch, "completion", shell)
    assert code == 0
    assert all(command in script for command in COMMANDS)


def test_help_says_of_a_setting_what_its_docstring_says():
    defaults = setting_defaults()
    assert {name: defaults[name] for name in TrainConfig.defaults()} == {
        name: tuple(value) if isinstance(value, list) else value for name, value in TrainConfig.defaults().items()
    }
    assert list(setting_texts()) == list(TrainConfig.settings())
    docstring = " ".join(getdoc(TrainConfig).split())
    for name, text in setting_texts().items():
        assert text in docstring, name
        assert text.endswith("."), name


def test_options_that_are_settings_have_the_help_and_the_default_of_the_setting():
    settings = setting_texts().keys() & options_of("train").keys() - {
        "final",
        "data",
    }  # which name a run, and list all readers
    assert {"objective", "epochs", "test_classes", "skip_bad", "keep"} < settings
    for name in settings:
        option = options_of("train")[name].parameter
        assert option.help.removesuffix(" Repeat for several.") == setting_texts()[name], name
        if callable(option.show_default):
            assert option.show_default(None) == str(setting_defaults()[name]), name


def test_compare_takes_the_options_of_train():
    assert options_of("train").keys() - options_of("compare").keys() == OF_ONE_RUN - {"data", "out"}


@pytest.mark.parametrize("command", ["train", "compare"])
def test_every_option_of_a_training_is_in_a_group(command, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, command, "--help")
    assert code == 0
    assert out.index("─ Data ─") < out.index("─ Network ─") < out.index("─ Training ─") < out.index("─ Run ─")
    positional = out[out.index("─ Parameters ─") : out.index("─ Data ─")]
    assert re.findall(r"--[\w-]+", positional) == ["--data"]


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_either_all_options_are_in_named_groups_or_they_are_few(command, capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, command, "--help")
    assert code == 0
    panels = dict(re.findall(r"╭─ ([\w ]+) ─+╮\n(.*?)╰", out, re.DOTALL))
    known = options_of(command).values()
    if set(panels) <= {"Arguments", "Parameters"}:
        assert len([option for option in known if option.index is None]) <= MOST_UNGROUPED
    else:
        assert not re.findall(r"│[ *]*(-[\w-]+)", panels.get("Parameters", ""))
    assert '[default: ""]' not in out


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """What the examples read."""
    draw_photos(tmp_path / "photos", THINGS, each=5)
    photo("green-fruit", np.random.default_rng(9)).save(tmp_path / "query.jpg")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(6), 20)
    rows = rng.normal(size=(6, 4))[labels] + 0.5 * rng.normal(size=(120, 4))
    for name in ("features", "new", "old"):
        np.savez(tmp_path / f"{name}.npz", embeddings=rows, labels=labels, names=[f"item {i}" for i in range(120)])
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["a", "b", "c", "d", "label"])
        table.writerows([*row, f"c{y}"] for row, y in zip(rows, labels, strict=True))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("nearfar.serve.server.serve", lambda *given, **more: None)
    return tmp_path


@pytest.mark.slow  # every command once
def test_the_examples_of_help_run(folder, capsys, monkeypatch):
    for out in ("runs/before", "runs/photos"):
        code, _, err = run(capsys, monkeypatch, "train", "photos/", "--out", out, *SMALL_TRAINING)
        assert code == 0, err
    others = [command for command in COMMANDS if command not in (*ORDER, *ELSEWHERE)]
    for command in (*ORDER, *others):
        if command == "export":
            pytest.importorskip("onnx")
        words = [STANDING_IN.get(word, word) for word in example_of(command)]
        words = [word for word in words if word is not None]
        code, _, err = run(capsys, monkeypatch, *words, *BESIDES.get(command, ()))
        assert code == 0, f"{words}: {err}"


def compared():
    runs = {
        "0.5*A(x_1=2) + B()": [{"recall_at": {1: 0.5}}, {"recall_at": {1: 0.7}}],
        "=evil()": [{"recall_at": {1: 0.25}}],
    }
    return compare(runs)


def test_a_comparison_is_written_as_csv_latex_and_markdown(tmp_path):
    for end in ("csv", "tex", "md"):
        compared().write(tmp_path / f"table.{end}")
    with open(tmp_path / "table.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["objective", "recall_at_1", "recall_at_1_half_interval", "seeds"]
    assert float(rows[0]["recall_at_1"]) == pytest.approx(0.6)
    assert rows[1]["objective"] == "'=evil()"  # no formula of a spreadsheet
    assert rows[1]["recall_at_1_half_interval"] == ""
    latex = (tmp_path / "table.tex").read_text().splitlines()
    assert latex[0] == r"\begin{tabular}{lrr}"
    assert latex[4] == r"0.5*A(x\_1=2) + B() & \textbf{0.600 $\pm$ 1.271} & 2 \\"
    assert (tmp_path / "table.md").read_text() == compared().markdown() + "\n"
    with pytest.raises(ValueError, match=r"expected a file that ends in \.csv, \.tex or \.md"):
        compared().write(tmp_path / "table.xlsx")


def test_a_table_that_cannot_be_written_is_refused_before_the_trainings(capsys, monkeypatch, tmp_path):
    words = ["compare", "digits", "--objective", "TripletLoss()", "--out", tmp_path / "runs", "--table"]
    code, _, err = run(capsys, monkeypatch, *words, tmp_path / "table.xlsx")
    assert code == 2
    assert "expected a file that ends in .csv, .tex or .md; --out is the folder of the runs" in err
    assert not (tmp_path / "runs").exists()


def test_the_help_shows_every_command_in_a_group(capsys, monkeypatch):
    code, out, _ = run(capsys, monkeypatch, "--help")
    assert code == 0
    assert "Commands" not in out  # the group of those that have none
    titles = re.findall("^╭─ (.*?) ─", out, re.M)
    assert titles == ["Data", "Train", "Evaluate", "Embed and search", "Share", "Help"]
    for command in COMMANDS:
        assert re.search(rf"^│ {command} +[A-Z]", out, re.M), command


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_found_where_people_look_for_it(command):
    function = cli.app[command].default_command
    pages = "".join(page.read_text(encoding="utf-8") for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
    missing = []
    if not re.search(rf"^Example: nearfar {command}\b", getdoc(function), re.M):
        missing.append(f"{getsourcefile(function)}: `Example: nearfar {command} ...` in the docstring of its function")
    if not re.search(rf"\b{command}\b", cli.__doc__):
        missing.append(f"{cli.__file__}: its name in the docstring of the module")
    if not re.search(rf"nearfar {command}\b", pages):
        missing.append(f"README.md or a page of docs/: a line with `nearfar {command}`")
    assert not missing, "files to edit:\n" + "\n".join(missing)


@pytest.mark.parametrize("group", [ItemOptions, SplitOptions, TrainingOptions])
def test_options_of_settings_take_what_the_settings_take(group):
    """Without importing what a training needs, options repeat the names and the words of `TrainConfig`."""
    settings = get_type_hints(TrainConfig)
    ours = {name: kind for name, kind in get_type_hints(group).items() if name in settings}
    assert len(ours) >= 3
    for name, kind in ours.items():
        allowed = {*kinds(settings[name]), type(None)} - {str}
        taken = {*kinds(kind), type(None)} - {str}
        assert taken <= allowed or name == "pretrained", f"--{name}: {taken - allowed}"
        words = {one for one in allowed if isinstance(one, str)}
        assert words == {one for one in taken if isinstance(one, str)}, name


def kinds(annotation):
    """The types and the words that an annotation allows."""
    parts = get_args(annotation)
    return {found for part in parts for found in kinds(part)} if parts else {annotation}


@pytest.mark.parametrize("command", ["train", "compare", "fit", "inspect", "index", "embed"])
def test_help_names_every_kind_of_data(command):
    assert accepted() in options_of(command)["data"].parameter.help
