"""Files of every format become the same samples however they are cut, and mistakes are told with their place."""

from __future__ import annotations

import gzip

import numpy
import pytest

from airflow_training.networks.trainer import tables
from airflow_training.networks.trainer.mistakes import TrainerError
from airflow_training.networks.trainer.samples import joined
from tests.networks.trainer.made import IMAGES, LISTS, TABLE, TEXT, reader_of, settings_of

CSV = {"format": "csv", "label": "kind"}


def write_table(folder, rows=101):
    lines = ["a,kind,b"] + [f"{n},{n % 2},{n / 2}" for n in range(rows)]
    (folder / "t.csv").write_text("\n".join(lines) + "\n")


def everything(settings, folder, world, *names):
    reader = reader_of(settings, folder, *names)
    return joined([reader.read(rank, world) for rank in range(world)], settings)


@pytest.mark.parametrize("world", [1, 2, 3, 7, 40])
def test_each_row_of_a_table_is_read_once(tmp_path, world):
    write_table(tmp_path)
    found = everything(settings_of(TABLE, CSV), tmp_path, world)
    assert found.arrays["x"].tolist() == [[n, n / 2] for n in range(101)]
    assert found.arrays["y"].tolist() == [n % 2 for n in range(101)]


@pytest.mark.parametrize("world", [1, 2, 3, 7, 30])
@pytest.mark.parametrize("form", ["libsvm", "csv", "npz", "parquet"])
def test_lists_stay_whole_wherever_a_file_is_cut(tmp_path, world, form):
    queries = [q for q, size in enumerate([1, 4, 2, 9, 3, 3, 1, 6]) for _ in range(size)]
    x = numpy.arange(2 * len(queries)).reshape(-1, 2) / 4
    y = numpy.arange(len(queries)) % 3
    data = {"format": form, "query": "q", "label": "y"}
    if form == "libsvm":
        data = {"format": form, "query": "qid"}
        lines = [f"{g} qid:{q} 1:{r[0]} 2:{r[1]}" for g, q, r in zip(y, queries, x, strict=True)]
        (tmp_path / "t.libsvm").write_text("\n".join(lines))
    elif form == "csv":
        lines = [f"{q},{g},{r[0]},{r[1]}" for g, q, r in zip(y, queries, x, strict=True)]
        (tmp_path / "t.csv").write_text("q,y,x0,x1\n" + "\n".join(lines))
    elif form == "npz":
        numpy.savez(tmp_path / "t.npz", x=x, y=y, q=queries)
    else:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        table = pyarrow.table({"q": queries, "y": y, "x0": x[:, 0], "x1": x[:, 1]})
        parquet.write_table(table, tmp_path / "t.parquet", row_group_size=5)
    found = everything(settings_of(LISTS, data), tmp_path, world)
    # 4 and 9 and 6 documents are several samples of three
    assert found.lengths.tolist() == [1, 3, 1, 2, 3, 3, 3, 3, 3, 1, 3, 3]
    assert len(found.names) == 8
    kept = [row[:length] for row, length in zip(found.arrays["x"], found.lengths, strict=True)]
    assert numpy.concatenate(kept).tolist() == x.tolist()


def test_a_short_list_repeats_its_documents(tmp_path):
    (tmp_path / "t.libsvm").write_text("1 qid:1 1:5\n0 qid:1 2:6\n")
    found = everything(settings_of(LISTS, {"format": "libsvm", "query": "qid"}), tmp_path, 1)
    assert found.arrays["y"].tolist() == [[1, 0, 1]]


@pytest.mark.parametrize("world", [1, 3])
def test_text_is_cut_into_pieces_with_the_bytes_that_follow(tmp_path, world):
    (tmp_path / "t.txt").write_bytes(bytes(range(33)))
    found = everything(settings_of(TEXT, {"format": "text"}), tmp_path, world)
    assert found.arrays["x"].tolist() == [list(range(n, n + 4)) for n in range(0, 32, 4)]
    assert (found.arrays["y"] == found.arrays["x"] + 1).all()


def test_images_have_the_class_of_their_folder(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name, brightness in (("cat", 10), ("dog", 200)):
        (tmp_path / name).mkdir()
        image.new("L", (4, 4), brightness).save(tmp_path / name / "1.png")
    reader = reader_of(settings_of(IMAGES, {"format": "images"}), tmp_path)
    assert reader.settings.data.classes == ("cat", "dog")
    found = reader.read(0, 1)
    assert found.arrays["x"][:, 0, 0, 0].tolist() == [10, 200]
    assert found.arrays["y"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "said", "fix"),
    [
        ("a,b\n1,2\n", "t.csv: has no column 'kind', the label", "its columns are a, b"),
        ("a,kind\n1,0\n", "gives 1 columns to the input 'x', which takes 2", "shape to [1]"),
        ("a,kind,b\n1,0,2\n3,1,x7\n", "t.csv, row 3, column 'b': 'x7' is no number", "number"),
        ("a,kind,b\n1,0,2\n3,1,\n", "row 3, column 'b': '' is empty", "fill the cell"),
        ("a,kind,b\n1,0,nan\n", "row 2, column 'b': 'nan' is not finite", "take out the row"),
        ("a,kind,b\n1,0.5,2\n", "row 2, column 'kind': '0.5' is no whole number", "float32"),
        ("a,kind,b\n1,cat,2\n", "column 'kind': 'cat' is no number", "trainer.data.classes"),
        ("a,kind,b\n1,0,2\n1,0\n", "t.csv, row 3: has 2 columns, and the header 3", "in quotes"),
        ("a,kind,b\n1,0,2\n1,7,2\n", "row 3, column 'kind': '7' is not 0 to 1", "from 0"),
        ("a,kind,b\n1,-1,2\n", "row 2, column 'kind': '-1' is not 0 to 1", "from 0"),
        ("a,kind,b\n1,0,1e300\n", "row 2, column 'b': '1e300' is not finite", "take out the row"),
        ("a,kind,a\n1,0,2\n", "has the column 'a' more than once", "a name of its own"),
        ("a,kind,b\r1,0,2\r", "t.csv: is no CSV", "ends with a line feed"),
        (
            f"a,kind,b\n1,0,{'2' * 200_000}\n",
            "row 2: is no row of CSV: field larger",
            "is one line",
        ),
    ],
)
def test_a_mistake_in_a_table_is_told_with_file_row_column_and_fix(tmp_path, text, said, fix):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(TrainerError) as told:
        everything(settings_of(TABLE, CSV), tmp_path, 1)
    assert said in str(told.value)
    assert fix in str(told.value)


def test_a_mistake_in_the_middle_of_a_cut_file_has_the_row_of_the_file(tmp_path):
    write_table(tmp_path)
    text = (tmp_path / "t.csv").read_text().replace("80,0,40.0", "80,0,forty")
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(TrainerError, match=r"t\.csv, row 82, column 'b'"):
        everything(settings_of(TABLE, CSV), tmp_path, 3)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 qid:1 1:5 9:1\n", "row 1, column 9: the input 'x' has columns 1 to 2"),
        ("1 qid:1 1:5\n0 1:5\n", "row 2: has no qid"),
        ("1 qid:1 1:5\nx qid:1 1:5\n", "row 2: 'x' is no number or pair"),
    ],
)
def test_a_mistake_in_libsvm_is_told_with_its_row(tmp_path, text, said):
    (tmp_path / "t.libsvm").write_text(text)
    with pytest.raises(TrainerError) as told:
        everything(settings_of(LISTS, {"format": "libsvm", "query": "qid"}), tmp_path, 1)
    assert said in str(told.value)


def test_an_empty_file_and_one_that_is_not_there_are_told(tmp_path):
    (tmp_path / "t.csv").write_text("")
    with pytest.raises(TrainerError, match=r"t\.csv: is empty"):
        reader_of(settings_of(TABLE, CSV), tmp_path, "t.csv")
    with pytest.raises(TrainerError, match=r"u\.csv: is not there"):
        reader_of(settings_of(TABLE, CSV), tmp_path, "u.csv")


def test_arrays_of_another_shape_are_told(tmp_path):
    numpy.savez(tmp_path / "t.npz", x=numpy.zeros((3, 5)), y=numpy.zeros(3))
    with pytest.raises(TrainerError, match=r"has 5 numbers in a row.*takes 2"):
        everything(settings_of(TABLE, {"format": "npz"}), tmp_path, 1)


def test_names_of_classes_become_their_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("a,kind,b\n1,cat,2\n1,dog,2\n")
    settings = settings_of(TABLE, {**CSV, "classes": ["dog", "cat"]})
    assert everything(settings, tmp_path, 1).arrays["y"].tolist() == [1, 0]
    with pytest.raises(TrainerError, match="'cat' is no class"):
        everything(settings_of(TABLE, {**CSV, "classes": ["dog"]}), tmp_path, 1)


def test_an_open_quote_swallows_no_rows(tmp_path):
    text = 'a,kind,b,said\n1,0,2,x\n1,0,3,"y\n1,1,4,z\n1,1,5,z\n'
    (tmp_path / "t.csv").write_text(text)
    settings = settings_of(TABLE, {**CSV, "inputs": {"x": ["a", "b"]}})
    for world in (1, 2, 3):
        with pytest.raises(TrainerError, match=r"row 3: has a quote that is not closed"):
            everything(settings, tmp_path, world)


def test_columns_of_other_files_are_taken_by_name(tmp_path):
    (tmp_path / "t.csv").write_text("a,kind,b\n1,0,2\n")
    (tmp_path / "u.csv").write_text("b,a,kind\n4,3,1\n")
    assert everything(settings_of(TABLE, CSV), tmp_path, 1).arrays["x"].tolist() == [[1, 2], [3, 4]]
    (tmp_path / "u.csv").write_text("b,c,kind\n4,3,1\n")
    with pytest.raises(TrainerError, match=r"u\.csv: has no column 'a'"):
        everything(settings_of(TABLE, CSV), tmp_path, 1)
    (tmp_path / "u.csv").write_text("b,a,c,kind\n4,3,9,1\n")
    with pytest.raises(TrainerError, match=r"u\.csv: has the column 'c', which the first file"):
        everything(settings_of(TABLE, CSV), tmp_path, 1)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (gzip.compress(b"a,kind,b\n1,0,2\n", mtime=0), "is compressed"),
        ("a,kind,b\n1,0,2\n".encode("utf-16"), "is UTF-16"),
        (b"PK\x03\x04....", "is a zip or a workbook"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "libsvm"])
def test_a_file_that_is_no_text_is_told(tmp_path, content, said, form):
    (tmp_path / f"t.{form}").write_bytes(content)
    data = CSV if form == "csv" else {"format": "libsvm"}
    with pytest.raises(TrainerError, match=said):
        everything(settings_of(TABLE, data), tmp_path, 1)


def test_names_in_latin_1_are_read(tmp_path):
    (tmp_path / "t.csv").write_bytes("a,kind,b\n1,Öl,2\n1,Äpfel,2\n".encode("latin-1"))
    settings = settings_of(TABLE, {**CSV, "classes": ["Äpfel", "Öl"]})
    assert everything(settings, tmp_path, 1).arrays["y"].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 1:nan\n", "row 1, column 1: 'nan' is not finite"),
        ("1.5 1:1\n", "row 1, the label: '1.5' is no whole number"),
        ("0 1:1\n-1 1:1\n", "row 2, the label: '-1' is not 0 to 1"),
    ],
)
def test_numbers_of_libsvm_that_the_network_cannot_take_are_told(tmp_path, text, said):
    (tmp_path / "t.libsvm").write_text(text)
    with pytest.raises(TrainerError, match=said):
        everything(settings_of(TABLE, {"format": "libsvm"}), tmp_path, 1)


@pytest.mark.parametrize(
    ("x", "y", "said"),
    [
        (numpy.ones((2, 2)), [0, 0.5], "array 'y', row 1: '0.5' is no whole number"),
        (numpy.ones((2, 2)), [0, 5], "array 'y', row 1: '5' is not 0 to 1"),
        (numpy.full((2, 2), 1e300), [0, 1], "array 'x', row 0: 'inf' is not finite"),
        (numpy.array(3.0), [0], "array 'x': is one number"),
    ],
)
def test_arrays_that_the_network_cannot_take_are_told(tmp_path, x, y, said):
    numpy.savez(tmp_path / "t.npz", x=x, y=y)
    with pytest.raises(TrainerError, match=said):
        everything(settings_of(TABLE, {"format": "npz"}), tmp_path, 1)


def test_a_damaged_archive_is_told(tmp_path):
    (tmp_path / "t.npz").write_bytes(b"PK\x03\x04....")
    with pytest.raises(TrainerError, match=r"is no \.npz file"):
        everything(settings_of(TABLE, {"format": "npz"}), tmp_path, 1)


def test_folders_of_images_are_as_many_as_the_classes_of_the_network(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog", "eel"):
        (tmp_path / name).mkdir()
        image.new("L", (4, 4), 10).save(tmp_path / name / "1.png")
    with pytest.raises(TrainerError, match=r"3 folders \(cat, dog, eel\), and the network has 2"):
        reader_of(settings_of(IMAGES, {"format": "images"}), tmp_path)
    with pytest.raises(TrainerError, match="are of one class, 'cat'"):
        reader_of(settings_of(IMAGES, {"format": "images"}), tmp_path / "cat")


def test_images_of_16_bits_keep_their_shades(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        shades = numpy.array([[0, 256 * 100], [256 * 200, 65535]], numpy.uint16)
        image.fromarray(shades).save(tmp_path / name / "1.png")
    found = reader_of(settings_of(IMAGES, {"format": "images"}), tmp_path).read(0, 1)
    assert found.arrays["x"][0, 0].tolist() == [[0, 100], [200, 255]]


def test_a_mistake_far_down_in_a_table_has_its_row(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "_ROWS_AT_ONCE", 10)
    write_table(tmp_path)
    found = everything(settings_of(TABLE, CSV), tmp_path, 2)
    assert found.arrays["x"].tolist() == [[n, n / 2] for n in range(101)]
    text = (tmp_path / "t.csv").read_text().replace("80,0,40.0", "80,0,forty")
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(TrainerError, match=r"t\.csv, row 82, column 'b'"):
        everything(settings_of(TABLE, CSV), tmp_path, 2)


def test_a_mistake_shows_no_secret_of_an_address():
    address = "s3://" + "me:" + "hidden@bucket/folder/t.csv?token=" + "hidden"
    told = str(TrainerError(address, f"cannot be read: {address}", f"looked at {address}: see"))
    assert "hidden" not in told
    assert told.count("s3://bucket/folder/t.csv") == 3
