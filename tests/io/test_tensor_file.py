"""Files of arrays: read back as written, readable by others, harmless when broken."""

import json
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from nearfar.io import tensor_file

ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b": np.array([1, -2], dtype=np.int64),
    "c": np.array(3.5, dtype=np.float32),
    "d": np.zeros((0, 4)),
    "e": np.array([True, False]),
    "f": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
}


def test_round_trip(tmp_path):
    path = tmp_path / "x.safetensors"
    tensor_file.write(path, ARRAYS, {"name": "ä"})
    arrays, text = tensor_file.read(path)
    assert text == {"name": "ä"}
    assert arrays.keys() == ARRAYS.keys()
    for name, value in ARRAYS.items():
        assert_array_equal(arrays[name], value)
        assert arrays[name].dtype == value.dtype
        assert arrays[name].shape == value.shape
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]


def test_the_other_order_of_bytes_is_put_right(tmp_path):
    tensor_file.write(
        tmp_path / "x", {name: array.astype(array.dtype.newbyteorder(">")) for name, array in ARRAYS.items()}, {}
    )
    for name, value in tensor_file.read(tmp_path / "x")[0].items():
        assert_array_equal(value, ARRAYS[name])


def test_large_arrays_are_written_from_their_own_memory(tmp_path):
    rows = np.arange(2.0**20).reshape(-1, 64)
    tracemalloc.start()
    try:
        tensor_file.write(tmp_path / "a", {"rows": rows, "none": rows[:0]}, {})
        assert tracemalloc.get_traced_memory()[1] < rows.nbytes / 8
    finally:
        tracemalloc.stop()
    assert np.array_equal(tensor_file.read(tmp_path / "a")[0]["rows"], rows)


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="folder"):
        tensor_file.write(tmp_path / "folder", ARRAYS, {})
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_the_format_is_that_of_safetensors(tmp_path):
    import safetensors.numpy as library

    path = tmp_path / "x.safetensors"
    tensor_file.write(path, ARRAYS, {})
    for name, value in library.load_file(path).items():
        assert_array_equal(value, ARRAYS[name])
    assert int.from_bytes(path.read_bytes()[:8], "little") % 8 == 0, "data begin at a multiple of 8 bytes"
    library.save_file({"z": np.arange(3)}, path, metadata={"k": "v"})
    arrays, text = tensor_file.read(path)
    assert_array_equal(arrays["z"], np.arange(3))
    assert text == {"k": "v"}


def test_objects_are_refused(tmp_path):
    for bad in (np.array(["a"]), np.array([None]), np.array([1j])):
        with pytest.raises(ValueError, match=r"thing: arrays of dtype .* cannot be saved"):
            tensor_file.write(tmp_path / "x", {"thing": bad}, {})
    assert not list(tmp_path.iterdir())


def header(entry):
    text = json.dumps({"a": entry}).encode()
    return len(text).to_bytes(8, "little") + text + b"\0" * 16


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"short",
        (10**12).to_bytes(8, "little") + b"{}",
        (4).to_bytes(8, "little") + b"nope",
        (2).to_bytes(8, "little") + b"[]",
        header({"dtype": "F64", "shape": [2], "data_offsets": [0, 8]}),
        header({"dtype": "F64", "shape": [9], "data_offsets": [0, 72]}),
        header({"dtype": "F64", "shape": [-1], "data_offsets": [8, 0]}),
        header({"dtype": "O", "shape": [1], "data_offsets": [0, 8]}),
        header({"dtype": "F64", "shape": [1], "data_offsets": [-8, 0]}),
        header({"shape": [1]}),
        header(3),
        header({"dtype": "F64", "shape": [float("inf")], "data_offsets": [0, 8]}),
        (10**5).to_bytes(8, "little") + b"[" * 10**5,
    ],
)
def test_broken_files_are_one_clear_error(tmp_path, raw):
    path = tmp_path / "broken"
    path.write_bytes(raw)
    with pytest.raises(ValueError, match="broken is not a readable safetensors file"):
        tensor_file.read(path)


def test_arrays_of_others_are_left_out_of_a_group():
    arrays = {"foreign": np.zeros(1), "fit/a": np.ones(2), "fit/parts/0": np.ones(3), "fit/parts/1": np.zeros(3)}
    values = tensor_file.join("fit", arrays, {"n": 3})
    assert values.keys() == {"n", "a", "parts"}
    assert [part.tolist() for part in values["parts"]] == [[1, 1, 1], [0, 0, 0]]
