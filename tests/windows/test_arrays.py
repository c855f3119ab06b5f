"""Arrays in memory and in a file."""

from pathlib import Path

import numpy as np
import pytest

from forecaster.errors import DataError
from forecaster.windows.arrays import allocate

SHAPES = {"a": ((3, 5), np.float32), "b": ((7,), "datetime64[us]"), "c": ((2, 3, 4), np.float64)}


@pytest.mark.parametrize("in_memory_gb", [1.0, 0.0])
def test_arrays_have_their_shapes_and_none_lies_over_another(in_memory_gb: float, tmp_path: Path) -> None:
    arrays = allocate(SHAPES, in_memory_gb, tmp_path)
    for number, (name, (shape, kind)) in enumerate(SHAPES.items()):
        assert arrays[name].shape == shape
        assert arrays[name].dtype == np.dtype(kind)
        arrays[name][...] = np.ones(shape).astype(np.int64).astype(kind) if name == "b" else number
    assert (arrays["a"] == 0).all()
    assert (arrays["b"] == np.datetime64(1, "us")).all()
    assert (arrays["c"] == 2).all()


def test_a_file_has_no_name_to_be_left_behind(tmp_path: Path) -> None:
    arrays = allocate(SHAPES, 0.0, tmp_path)
    assert not list(tmp_path.iterdir())
    assert "memmap" not in type(arrays["a"]).__name__


def test_where_there_is_no_room_the_error_says_how_much_and_what_to_do(tmp_path: Path) -> None:
    huge = {"a": ((1 << 60,), np.int8)}
    with pytest.raises(DataError, match=r"no room for a panel of .* GB \(.*\): free the disk") as error:
        allocate(huge, 0.0, tmp_path)
    assert "\n" not in str(error.value)
    with pytest.raises(DataError, match="nowhere"):
        allocate(SHAPES, 0.0, tmp_path / "nowhere")
