"""The benchmarks run."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from . import forking

BENCH = Path(__file__).parent.parent / "bench"


def test_the_readme_lists_every_bench():
    listed = (BENCH / "README.md").read_text()
    assert [path.name for path in sorted(BENCH.glob("*.py")) if f"| `{path.name}` |" not in listed] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it forks")
def test_the_classical_bench_runs():
    told = forking.run(BENCH / "classical.py", "--quick")
    assert told.returncode == 0, told.stderr
    quick = told.stdout
    for name in ("GMML", "RCA", "DCA", "MMC", "NCA", "LDA", "Euclidean", "FISHMML"):
        assert f"| {name} |" in quick
    assert "Error" not in quick
    assert "out of time" not in quick
    nca = next(line for line in quick.splitlines() if line.startswith("| scikit-learn | NCA |"))
    fit, ratio, _, _, same, accuracy = nca.strip("| ").split(" | ")[2:8]
    assert float(fit) > 0
    assert float(ratio) > 0
    assert 0.5 < float(same) <= 1
    assert 0.5 < float(accuracy) <= 1
    mmc = next(line for line in quick.splitlines() if line.startswith("| nearfar | MMC |"))
    assert float(mmc.strip("| ").split(" | ")[6]) > 0


def module(name):
    spec = importlib.util.spec_from_file_location(name, BENCH / f"{name}.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_the_classical_bench_reads_tables_by_the_name_of_their_label(tmp_path):
    bench = module("classical")
    (tmp_path / "small.csv").write_text("p,kind,q\n1,b,2\n3,a,4\n")
    X, y = bench.read(tmp_path / "small.csv", "kind")
    assert X.tolist() == [[1, 2], [3, 4]]
    assert y.tolist() == [1, 0]
    (tmp_path / "last.csv").write_text("p,q,kind\n1,2,b\n3,4,a\n")
    assert bench.read(tmp_path / "last.csv", None)[1].tolist() == [1, 0]


def test_the_classical_bench_leaves_small_classes_out():
    y = np.repeat([0, 1, 2], [6, 4, 30])
    (X, kept), n = module("classical").sampled((np.arange(40.0)[:, None], y), None)
    assert n == 40
    assert sorted(set(kept)) == [0, 2]
    assert X.ravel().tolist() == [*range(6), *range(10, 40)]
    (_, kept), n = module("classical").sampled((np.arange(40.0)[:, None], y), 30)
    assert n == 40
    assert set(kept) == {2}


def test_the_precision_bench_finds_rounding_errors_only():
    torch = pytest.importorskip("torch")
    bench = module("precision")
    method = next(method for method in bench.METHODS if method.name == "AMSoftmaxLoss")
    value, gradient, rounding = bench.differences(method, 32, 16, torch.bfloat16)
    assert value < 1e-6 < rounding < 1e-2
    assert 1e-4 < gradient < 4e-3


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits")
def test_the_classical_bench_gives_every_library_the_same_supervision():
    worker = module("classical_worker")
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(90) % 3)
    X = rng.normal(size=(90, 4)) + y[:, None]
    told = worker.supervision(X, y, 0)
    assert told.pairs.shape == (360, 2)
    assert len(np.unique(np.sort(told.pairs, axis=1), axis=0)) == 360
    assert (told.signs == np.where(y[told.pairs[:, 0]] == y[told.pairs[:, 1]], 1, -1)).all()
    assert told.signs.sum() == 0
    for c in range(told.chunklets.max() + 1):
        assert len(set(y[told.chunklets == c])) == 1
        assert (told.chunklets == c).sum() == 2
    assert told.chunklets.max() > 40
    for fit in worker.LIBRARIES["nearfar"](True).values():
        assert np.isfinite(fit(X, y, told, 0).transform(X)).all()


@pytest.mark.slow
def test_the_kernel_bench_tunes_and_compares():
    size = ["--train", "40", "--splits", "1", "--test", "30"]
    words = ["tables", "--tune", "--table", "iris", "--only", "KernelDCA"]
    told = forking.run(BENCH / "kernels.py", *words, *size)
    assert told.returncode == 0, told.stderr
    row = next(line for line in told.stdout.splitlines() if line.startswith("| DCA, KernelDCA |"))
    assert all(30 < float(cell) <= 100 for k, cell in enumerate(row.strip("| ").split("|")[1:]) if k in (0, 1, 3, 4))
    assert "| linear, kernel | mean | better | worse | iris |" in told.stdout


def test_the_deep_bench_ranks_by_scores_of_pairs_as_the_evaluation_ranks_embeddings():
    torch = pytest.importorskip("torch")
    from nearfar.evaluation import evaluate

    bench = module("deep_table")
    z = torch.nn.functional.normalize(torch.randn(60, 5, generator=torch.Generator().manual_seed(0))).numpy()
    y = torch.arange(60).numpy() % 12
    z += z[y]  # what a class has in common
    z /= (z**2).sum(1, keepdims=True) ** 0.5
    expected = evaluate(z, y, ks=(1,), clustering=False)
    assert bench.retrieval(z @ z.T, y) == pytest.approx((expected.recall_at[1], expected.map_at_r))
    scores = z @ z.T
    first = [max((scores[i, j], j) for j in range(60) if j != i)[1] for i in range(0, 60, 3)]
    share = sum(y[j] == y[i] for i, j in zip(range(0, 60, 3), first, strict=True)) / 20
    assert bench.retrieval(scores[::3], y, 3)[0] == pytest.approx(share)
    assert 0.1 < expected.recall_at[1] < 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_the_bench_of_pairs_agrees_with_its_peer():
    told = forking.run(BENCH / "pairs.py", "--quick")
    assert told.returncode == 0, told.stderr
    rows = [line.split("|") for line in told.stdout.splitlines()]
    found = [row[5].strip() for row in rows if len(row) > 5]
    assert found[2] == found[3]
    assert found[2].startswith("AUC 0.9")
    assert found[6] == found[7]


def test_the_bench_of_embeddings_scores_classes_that_were_not_learned(tmp_path):
    bench, rng = module("embeddings"), np.random.default_rng(0)
    y = np.repeat(np.arange(12), 6)
    X = np.c_[rng.normal(size=(12, 3))[y], 3 * rng.normal(size=(72, 3))]  # the classes differ in half of the columns
    np.savez(tmp_path / "rows.npz", embeddings=X, labels=y)
    bench.METHODS = {"without a learner": None, "RCA": bench.RCA}
    plain, learned = (
        line.split(" | ") for line in bench.table(tmp_path / "rows.npz", [2, 6], 2, "map_at_r").split("\n")[-2:]
    )
    assert plain[1] == plain[2] < learned[2]
    assert (plain[0], plain[3]) == ("| without a learner", "- |")


def test_the_atlas_goes_on_where_it_stopped(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(BENCH)
    bench = module("atlas")
    monkeypatch.setattr(bench, "FORMS", (bench.NONE, "RCA"))
    monkeypatch.setattr(bench, "CLOSED", {"RCA": bench.CLOSED["RCA"]})
    rng = np.random.default_rng(0)
    labels = np.arange(48) % 8
    rows = rng.normal(size=(8, 3))[labels] + 0.3 * rng.normal(size=(48, 3))
    lines = ["a,b,c,label", *(f"{a:.3f},{b:.3f},{c:.3f},kind {k}" for (a, b, c), k in zip(rows, labels, strict=True))]
    (tmp_path / "small.csv").write_text("\n".join(lines))
    given = [str(tmp_path / "small.csv"), "--out", str(tmp_path), "--few-splits", "0", "--write", str(tmp_path)]
    for splits in (1, 2):
        monkeypatch.setattr(sys, "argv", ["atlas.py", *given, "--splits", str(splits)])
        bench.main()
    cells = [bench.cell_of(line) for line in bench.read_cells(tmp_path)]
    assert len(cells) == len(set(cells)) == 2 * 2 * (len(bench.FORMS) + 1)  # of encoders and splits
    assert [cell.split for cell in cells] == 6 * [0] + 6 * [1]
    part = bench.divided(bench.Features("small", "rows", rows, labels), 0)
    assert not set(part.known) & set(part.unseen)
    header, *table = (tmp_path / "atlas.csv").read_text().splitlines()
    assert header.endswith("none,RCA,RCA ±")
    assert len(table) == 2


def test_a_run_is_an_encoder_of_the_atlas_except_of_what_it_learned_from(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    Image = pytest.importorskip("PIL.Image")
    from nearfar.train import DeepMetric

    monkeypatch.syspath_prepend(BENCH)
    bench = module("atlas")
    monkeypatch.setattr(bench, "FORMS", (bench.NONE,))
    rng = np.random.default_rng(0)
    for name in ("known", "new"):
        for k in range(16):
            (tmp_path / name / str(k % 4)).mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / name / str(k % 4) / f"{k}.png")
    paths = sorted(map(str, (tmp_path / "known").glob("*/*.png")))
    network = DeepMetric(trunk="conv4(width=4)", embedding_dim=3, epochs=1, batch_size=8, random_state=0)
    network.fit(paths, np.arange(16) // 4).save(tmp_path / "run")
    given = [str(tmp_path / "known"), str(tmp_path / "new"), "--images", f"conv4={tmp_path / 'run'}"]
    how = ["--splits", "1", "--held-splits", "0", "--few-splits", "0", "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["atlas.py", *given, *how])
    bench.main()
    cells = [bench.cell_of(line) for line in bench.read_cells(tmp_path)]
    assert {(cell.set, cell.encoder) for cell in cells} == {("known", "pixels"), ("new", "pixels"), ("new", "conv4")}
    assert "known, conv4: left out, because the encoder has learned from items of it" in capsys.readouterr().out
    rows = np.load(tmp_path / "features" / "new, conv4.npz")["rows"]
    assert rows.shape == (16, 3)


def test_the_bench_of_unseen_classes_goes_on_where_it_stopped(tmp_path, capsys, monkeypatch):
    bench = module("unseen_classes")
    rng = np.random.default_rng(0)
    labels = np.arange(96) % 12
    embeddings = rng.normal(size=(12, 9))[labels] + 0.5 * rng.normal(size=(96, 9))
    np.savez(tmp_path / "rows.npz", embeddings=embeddings, labels=labels)
    part = bench.split(embeddings, labels, 0)
    assert not set(part.known) & set(part.asked)
    results = tmp_path / "results.jsonl"
    given = [str(tmp_path / "rows.npz"), str(results), "--splits", "2", "--components", "5", "--only"]
    for names in (["RCA"], ["RCA", "DiscriminantWhitening", bench.PLAIN]):
        monkeypatch.setattr(sys, "argv", ["unseen_classes.py", *given, *names])
        bench.main()
    assert [(line["split"], line["name"]) for line in bench.read(results)][:3] == [
        (0, "RCA"),
        (1, "RCA"),
        (0, "DiscriminantWhitening"),
    ]
    assert len(bench.read(results)) == 6
    told = capsys.readouterr().out
    assert "| `RCA` | " in told
    assert " ± " in told


@pytest.mark.skipif(sys.platform == "win32", reason="it forks")
@pytest.mark.parametrize(
    ("name", "key", "old"), [("heads", "loss", "features as they are"), ("unseen_classes", "name", "as they are")]
)
def test_results_with_the_former_name_of_a_row_are_read(tmp_path, name, key, old, monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    bench = module(name)
    (tmp_path / "scores.jsonl").write_text(f'{{"{key}": "{old}", "split": 0}}\n{{"{key}": "RCA", "split": 0}}\n')
    read = (lambda: bench.read_scores(tmp_path)) if name == "heads" else lambda: bench.read(tmp_path / "scores.jsonl")
    current = bench.UNWHITENED if name == "heads" else bench.PLAIN
    assert [line[key] for line in read()] == [current, "RCA"]


def test_the_costs_of_learners_are_measured_for_the_sizes_that_are_asked():
    command = [
        sys.executable,
        str(BENCH / "learner_costs.py"),
        "--only",
        "GMML",
        "--sizes",
        "300x12",
        "600x12",
        "--wall",
    ]
    threads = os.environ | {"OMP_NUM_THREADS": "2"}
    told = subprocess.run(command, capture_output=True, text=True, check=True, env=threads).stdout
    assert "| learner | 300 x 12 | 600 x 12 | MB |" in told
    cells = told.strip().splitlines()[-1].split("|")
    assert cells[1].strip() == "`GMML`"
    assert all("ms" in cell for cell in cells[2:4])


@pytest.mark.parametrize("stage", ["losses", "evaluation", "closed-forms"])
def test_a_stage_of_the_check_on_a_gpu_runs_in_miniature(stage, capsys):
    module("gpu_check").run_here(stage, dry=True)
    figures = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    assert figures
    for figure in figures:
        assert figure["stage"] == stage
        # a loss that fails has its error in the place of its time; what a peer cannot do is no fault
        times = {"nearfar": 1.0} | figure.get("milliseconds", {})
        assert not [name for name in ("nearfar", "plain", "compiled") if isinstance(times.get(name), str)]


def test_the_check_on_a_gpu_needs_one(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--out", str(tmp_path)])
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert module("gpu_check").main() == 2
    assert "finds no GPU" in capsys.readouterr().out


def test_public_sets_become_tables(tmp_path):
    bench = module("sets")
    (tmp_path / "digits" / "recordings").mkdir(parents=True)
    for name in ("0_ann_0", "0_ann_1", "7_ben_0", "7_ben_1"):
        (tmp_path / f"digits/recordings/{name}.wav").write_bytes(b"")
    drawings = [("star", "Objects", 1), ("moon", "Objects", 2), ("flag-at", "Flags", 3), ("moons", "Objects", 2)]
    listed = [{"image": f"{name}.png", "short_name": name, "category": kind} for name, kind, _ in drawings]
    for house in ("google", "twitter"):
        pictures = tmp_path / house / "img" / house / "64"
        pictures.mkdir(parents=True)
        (tmp_path / house / "emoji.json").write_text(json.dumps(listed))
        for name, _, picture in drawings:
            (pictures / f"{name}.png").write_bytes(f"{picture}{house}".encode())
    (tmp_path / "shops").mkdir()
    for file, text in {
        "Abt.csv": "id,name\n1,A lamp\n2,A chair é\n",
        "Buy.csv": "id,title\n7,lamp A\n8,a chair é\n9,a table\n",
        "abt_buy_perfectMapping.csv": "idAbt,idBuy\n1,7\n2,8\n",
    }.items():
        (tmp_path / "shops" / file).write_bytes(text.encode("latin-1"))
    found = [
        list(lines)[1:]
        for lines in (
            bench.spoken_digits(tmp_path / "digits", tmp_path),
            bench.emoji(tmp_path / "google", tmp_path / "twitter", tmp_path),
            bench.shops(tmp_path / "shops", tmp_path),
        )
    ]
    assert [label for _, label in found[0]] == ["0_ann", "0_ann", "7_ben", "7_ben"]
    assert [label for _, label in found[1]] == ["star", "star", "moon", "moon"]  # flags and copies are left out
    assert all((tmp_path / path).is_file() for lines in found[:2] for path, _ in lines)
    assert found[2] == [("A lamp", "lamp A")]  # what is spelled alike is left out


def test_benches_have_settings_that_their_learners_take():
    import nearfar

    unseen = module("unseen_classes")
    for name, choices in unseen.SETTINGS.items():
        for settings in choices:
            getattr(nearfar, name)(**settings)
    for _, linear, kernel, of_linear, of_kernel in module("kernels").TWINS:
        for learner, grid in ((linear, of_linear), (kernel, of_kernel)):
            assert grid.keys() <= (learner.get_params().keys() if learner is not None else set())
