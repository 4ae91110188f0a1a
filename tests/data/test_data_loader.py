"""Batches for torch."""

import os
import signal
import threading
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL")

from nearfar.data import DataError, Dataset, loader, open_dataset
from nearfar.data.loader import TorchItems, make_loader, usual_workers

from .. import forking
from .conftest import class_folders, png, torn, write


def images(n: int = 10, side: int = 6, channels: int = 3) -> Dataset:
    array = np.random.default_rng(0).integers(0, 255, (n, side, side, channels), dtype=np.uint8)
    return Dataset.from_array("images", array, np.arange(n) % 3)


@pytest.mark.parametrize("channels", [1, 3])
def test_batches_in_order_with_labels_and_indices(channels):
    data = images(channels=channels)
    batches = list(make_loader(data, batch_size=4))
    assert [len(x) for x, _, _ in batches] == [4, 4, 2]
    x, y, index = (torch.cat(part) for part in zip(*batches, strict=True))
    assert x.dtype == torch.uint8
    assert x.is_contiguous()
    assert np.array_equal(x.permute(0, 2, 3, 1).numpy(), data.array)
    assert y.tolist() == data.labels.tolist()
    assert index.tolist() == list(range(10))


def test_rows_are_float32(rows):
    x, _, _ = next(iter(make_loader(Dataset.from_array("rows", rows, np.arange(30)), batch_size=7)))
    assert x.dtype == torch.float32
    assert np.array_equal(x.numpy(), rows[:7])


@pytest.mark.slow
def test_decoded_images_are_given_without_a_warning(tmp_path):
    write(
        tmp_path, {"a/0.png": png(7, (4, 4), "L"), "b/0.png": png(7, (5, 5), "L")}
    )  # of two sizes, so not kept in memory
    code = f"""
from nearfar.data import open_dataset
from nearfar.data import loader
from nearfar.data.loader import TorchItems
item, _, _ = TorchItems(open_dataset({str(tmp_path)!r}))[0]
item += 1
"""
    # In a process of its own: torch warns once only.
    ended = forking.run("-c", code, env={**os.environ, "PYTHONWARNINGS": "error"})
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.slow
def test_workers_run_nothing_that_lies_among_the_data(planted, monkeypatch):
    monkeypatch.chdir(planted)
    loader = make_loader(images(), workers=1)
    loader.multiprocessing_context = "spawn"  # as where processes cannot be forked
    assert len(list(loader)) == 1
    assert list(planted.glob("*.ran")) == []


def test_a_batch_sampler_chooses():
    loader = make_loader(images(), batch_sampler=[[3, 1], [9, 3, 0]])
    assert [index.tolist() for _, _, index in loader] == [[3, 1], [9, 3, 0]]
    assert len(loader) == 2


def test_memory_and_files_give_the_same_batches(folder):
    data = open_dataset(str(folder))
    lazy = Dataset(data.name, data.labels, data.classes, data.kind, data.read, data.names)
    for size in (None, 5):
        for (a, la, ia), (b, lb, ib) in zip(
            make_loader(data, batch_size=5, image_size=size),
            make_loader(lazy, batch_size=5, image_size=size),
            strict=True,
        ):
            assert torch.equal(a, b)
            assert la.tolist() == lb.tolist()
            assert ia.tolist() == ib.tolist()
    assert torch.equal(TorchItems(data)[3][0], TorchItems(lazy)[3][0])


@pytest.mark.parametrize("cores", [1, 4])
def test_images_of_files_are_decoded_by_as_many_threads_as_there_are_cores(tmp_path, monkeypatch, cores):
    write(tmp_path, {f"a/{k}.png": png(k, (4 + k, 4)) for k in range(8)})  # of several sizes, so not kept in memory
    monkeypatch.setattr(loader, "available_cores", lambda: cores)
    together = threading.Barrier(cores)
    read = TorchItems._read

    def waiting(self, i):
        together.wait(timeout=10)  # breaks if fewer threads come
        return read(self, i)

    monkeypatch.setattr(TorchItems, "_read", waiting)
    ((x, _, index),) = make_loader(open_dataset(str(tmp_path)), batch_size=8, image_size=4, workers=0)
    assert x[:, 0, 0, 0].tolist() == index.tolist() == list(range(8))


def test_readers_of_users_are_called_by_one_thread(monkeypatch):
    monkeypatch.setattr(loader, "available_cores", lambda: 4)
    assert TorchItems(replace(images(), array=None))._decoding_threads() == 1


def test_images_of_many_sizes_become_squares(tmp_path):
    root = write(tmp_path, {f"c{i % 2}/{i}.png": png(i, (10 + i, 12)) for i in range(4)})
    data = open_dataset(str(root))
    x, _, _ = next(iter(make_loader(data, image_size=8, resize=9)))
    assert x.shape == (4, 3, 8, 8)
    with pytest.raises(DataError, match=r"differ in shape .* give image_size"):
        next(iter(make_loader(data)))
    with pytest.raises(DataError, match="resize must be at least image_size"):
        make_loader(data, image_size=8, resize=7)


def test_resize_then_cut_also_in_memory():
    x, _, _ = next(iter(make_loader(images(side=12), image_size=6, resize=12)))
    assert torch.equal(x, torch.from_numpy(images(side=12).array[:, 3:9, 3:9]).permute(0, 3, 1, 2))


def test_shuffling_is_seeded_and_leaves_the_global_generator_alone():
    state = torch.get_rng_state()
    orders = [
        torch.cat([i for _, _, i in make_loader(images(), shuffle=True, batch_size=3, seed=seed)]).tolist()
        for seed in (1, 1, 2)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == list(range(10))
    assert torch.equal(state, torch.get_rng_state())


def test_workers_read_files_and_name_the_bad_one(tmp_path):
    root = write(tmp_path, class_folders(2) | {"class1/zz.png": torn(), "class0/odd.png": png(0, (20, 20))})
    data = open_dataset(str(root))
    assert data.array is None
    loader = make_loader(data, batch_size=2, image_size=8, workers=1)
    with pytest.raises(DataError) as caught:
        list(loader)
    assert str(caught.value).startswith(str(root))
    assert "class1/zz.png: cannot be decoded" in str(caught.value)
    assert "\n" not in str(caught.value)
    good = data.subset(range(7))
    x = torch.cat([x for x, _, _ in make_loader(good, batch_size=3, image_size=8, workers=1)])
    assert torch.equal(x, next(iter(make_loader(good, image_size=8)))[0])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_a_worker_that_is_killed_is_told_of_in_one_line():
    main, data = os.getpid(), images()

    def read(i):
        assert os.getpid() != main
        os.kill(os.getpid(), signal.SIGKILL)

    data = Dataset(data.name, data.labels, data.classes, data.kind, read, data.names)
    with pytest.raises(ChildProcessError, match=r"a worker process that reads items was killed.*; use fewer workers$"):
        next(iter(make_loader(data, workers=1)))


def test_workers_are_usually_the_cores_that_the_computation_leaves(monkeypatch):
    lazy = replace(images(), array=None)
    many = lazy.subset(np.arange(512) % 10)
    monkeypatch.setattr("nearfar.data.loader.available_cores", lambda: 6)
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none: "fork")
    monkeypatch.setattr("torch.get_num_threads", lambda: 4)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    assert usual_workers(many) == 2
    assert usual_workers(many.subset(range(511))) == 0
    assert usual_workers(images().subset(np.arange(512) % 10)) == 0  # in memory
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    assert usual_workers(many) == 5
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert usual_workers(many) == 1
    monkeypatch.delenv("LOCAL_WORLD_SIZE")
    monkeypatch.setattr("nearfar.data.loader.available_cores", lambda: 64)
    assert usual_workers(many) == 8
    monkeypatch.setattr("nearfar.data.loader.available_cores", lambda: 1)
    assert usual_workers(many) == 0
    monkeypatch.setattr("nearfar.data.loader.available_cores", lambda: 6)
    monkeypatch.setattr("multiprocessing.get_start_method", lambda allow_none: "spawn")
    assert usual_workers(many) == 0
