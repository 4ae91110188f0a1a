"""Distillation: the value and gradient of plain loops, teachers that are runs, and what does not fit."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from nearfar import Distill
from nearfar.deep.objective.parser import parse_objective
from nearfar.train import TrainConfig, TrainError, embed_run, train
from nearfar.train import setup as building
from nearfar.trust import TrustError
from tests.references import distill


@pytest.mark.parametrize("kind", ["relational", "cosine"])
def test_value_and_gradient_are_those_of_plain_loops(kind) -> None:
    torch.manual_seed(0)
    teacher = torch.randn(9, 4, dtype=torch.float64)
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([8, 0, 3, 3, 1])
    term = Distill(teacher=teacher, kind=kind).double()
    value = term(x, torch.zeros(5, dtype=torch.long), ids=ids)
    expected = distill.reference(x, teacher[ids], kind)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one, x)[0] for one in (value, expected)))
    assert not term.state_dict()


def test_one_item_and_equal_embeddings_cost_nothing() -> None:
    teacher = torch.eye(3)
    x = torch.ones(1, 5, requires_grad=True)
    Distill(teacher=teacher)(x, torch.zeros(1, dtype=torch.long), ids=[0]).backward()
    assert not x.grad.any()
    zero = torch.zeros(3, 5, requires_grad=True)
    Distill(teacher=teacher)(zero, torch.zeros(3, dtype=torch.long), ids=[0, 1, 2]).backward()
    assert torch.isfinite(zero.grad).all()


def test_what_does_not_fit_is_one_line() -> None:
    x = torch.randn(2, 3)
    y = torch.zeros(2, dtype=torch.long)
    with pytest.raises(ValueError, match="teacher must be the folder of a run or embeddings"):
        Distill(teacher=3)
    with pytest.raises(ValueError, match="must be finite"):
        Distill(teacher=torch.full((2, 2), float("nan")))
    with pytest.raises(ValueError, match="pass the numbers of the items as ids="):
        Distill(teacher=x)(x, y)
    with pytest.raises(ValueError, match="embeddings have length 3, those of the teacher 2"):
        Distill(teacher=x[:, :2], kind="cosine")(x, y, ids=[0, 1])
    with pytest.raises(ValueError, match="teacher='runs/large' is read by a training run"):
        parse_objective("Distill(teacher='runs/large')")(x, y, ids=[0, 1])
    with pytest.raises(ValueError, match="kind must be"):
        Distill(teacher=x, kind="other")


@pytest.mark.slow
def test_a_small_network_learns_to_embed_as_a_run_does(tmp_path) -> None:
    data = {"data": "digits", "device": "cpu", "ks": (1,), "batch_size": 64, "embedding_dim": 16}
    teacher = train(
        TrainConfig.of(trunk="mlp(width=32)", objective="SupConLoss()", epochs=2, **data),
        tmp_path / "t",
        progress=False,
    )
    text = f"Distill(teacher='{teacher.folder}')"
    config = TrainConfig.of(trunk="mlp(width=8, depth=1)", objective=text, epochs=3, **data)
    loop = building.build(config)
    (term,) = loop.trainable.objective.terms
    np.testing.assert_allclose(term.table, embed_run(teacher, loop.data.train), rtol=1e-6)
    assert repr(term) == text
    student = train(config, tmp_path / "s", progress=False)
    lines = [json.loads(line)["parts"]["Distill"] for line in (student.folder / "log.jsonl").read_text().splitlines()]
    assert lines[-1] < 0.5 * lines[0]
    rows = [embed_run(run, loop.data.unseen) for run in (teacher, student)]
    similar = [rows[k] @ rows[k].T / np.outer(*2 * [np.linalg.norm(rows[k], axis=1)]) for k in (0, 1)]
    assert np.corrcoef(similar[0].ravel(), similar[1].ravel())[0, 1] > 0.8


def test_teachers_that_are_not_there_or_not_trusted_are_refused(tmp_path, monkeypatch) -> None:
    config = TrainConfig.of(data="digits", trunk="mlp", objective=f"Distill(teacher='{tmp_path / 'none'}')")
    with pytest.raises(TrainError, match=r"Distill: teacher: .*no such run"):
        building.build(config)
    (tmp_path / "strange_nets.py").write_text(
        "from nearfar.deep.networks.mlp import MLP\n\n\nclass Net(MLP):\n    pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    own = TrainConfig.of(data="digits", trunk="strange_nets:Net", steps=1, epochs=1, device="cpu", batch_size=16)
    fields = own.to_dict()
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps({**fields, "image_size": 8}))
    from nearfar.train.checkpoint import save_tensors

    save_tensors(run / "best.safetensors", {}, {"shape": [1, 8, 8], "num_classes": 5, "columns": []})
    with pytest.raises(TrustError, match="strange_nets"):
        building.build(config.replace(objective=f"Distill(teacher='{run}')"))
