"""What is wrong with whole files is told with the file and a fix, in every format."""

from __future__ import annotations

import numpy
import pytest

from airflow_training.networks.trainer.launching import exit_code_of
from airflow_training.networks.trainer.mistakes import TrainerError
from tests.networks.trainer.made import IMAGES, LISTS, TABLE, reader_of, settings_of

QUERIES = ["1", "1", "2", "1"]


def queried(folder, form):
    """Write a file in which a query comes in two places, and return how it is read."""
    rows = [[number, query] for number, query in enumerate(QUERIES)]
    if form == "libsvm":
        (folder / "t.libsvm").write_text("".join(f"1 qid:{q} 1:{n}\n" for n, q in rows))
        return {"format": form, "query": "qid"}
    if form == "csv":
        lines = [f"{q},1,{n},0" for n, q in rows]
        (folder / "t.csv").write_text("\n".join(["q,y,a,b", *lines]) + "\n")
    elif form == "npz":
        numpy.savez(folder / "t.npz", x=numpy.ones((4, 2)), y=numpy.ones(4), q=QUERIES)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        columns = {"q": QUERIES, "y": [1] * 4, "a": [1.0] * 4, "b": [1.0] * 4}
        parquet.write_table(pyarrow.table(columns), folder / "t.parquet")
    return {"format": form, "query": "q", "label": "y"}


@pytest.mark.parametrize("form", ["libsvm", "csv", "npz", "parquet"])
def test_queries_that_stand_in_two_places_are_told(tmp_path, form):
    settings = settings_of(LISTS, queried(tmp_path, form))
    with pytest.raises(TrainerError) as told:
        reader_of(settings, tmp_path).read(0, 1)
    words = f"t.{form}: has rows of the query '1' in two places, with other queries between them"
    assert words in str(told.value)
    assert "fix: sort the file by query" in str(told.value)


@pytest.mark.parametrize(
    ("layers", "data", "files", "said", "fix"),
    [
        (TABLE, {"format": "parquet", "label": "y"}, {"t.parquet": b"a,y\n1,0\n"}, "t.parquet: is no Parquet file", ""),
        (TABLE, {"format": "csv", "label": "y"}, {"t.parquet": b"PAR1"}, "holds no file of the format", "end with .csv, .tsv"),
        (TABLE, {"format": "npz"}, {"t.npz": b"a,y\n1,0\n"}, "t.npz: is no .npz file of numbers", "numpy.savez"),
        (IMAGES, {"format": "images"}, {"cat/1.png": b"no picture", "dog/1.png": b"either"}, "1.png: is no image", "take it out"),
        (IMAGES, {"format": "images"}, {"cat/1.png": b"", "dog/1.png": b"x"}, "cat/1.png: is empty", "take it out of data.files"),
        (IMAGES, {"format": "images", "classes": ["cat", "cow"]}, {"cat/1.png": None, "dog/1.png": None}, "the folder 'dog', which is no class", "has cat, cow"),
    ],
)  # fmt: skip
def test_files_that_are_no_data_are_told(tmp_path, layers, data, files, said, fix):
    for name, content in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        if content is None:
            pytest.importorskip("PIL.Image").new("L", (2, 2)).save(path)
        else:
            path.write_bytes(content)
    with pytest.raises(TrainerError) as told:
        reader_of(settings_of(layers, data), tmp_path).read(0, 1)
    assert said in str(told.value)
    assert fix in str(told.value)


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([(1.0, 2)], 2),
        ([(2.0, 2), (1.0, 75)], 2),  # its peer lost it before it said why
        ([(1.0, 75), (2.0, 1)], 75),
        ([(2.0, 75), (1.0, -9)], 137),
        ([(1.0, 0), (2.0, 1)], 1),
        ([], 75),
    ],
)
def test_an_instance_ends_with_what_ended_its_processes(ends, code):
    assert exit_code_of(ends) == code
