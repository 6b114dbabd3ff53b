"""Tables in files come back as they are written, whole, in pieces and in parts."""

import bz2
import gzip
import io
import lzma
import os
import threading
import warnings

import numpy as np
import pandas as pd
import pytest

from subtractive.io import table_reading
from subtractive.io.csv_parts import Part
from subtractive.io.table_reading import read_frame, read_pieces
from subtractive.io.table_writing import open_table, without_formulas


def table(n=1000):
    """Numbers with gaps, and texts with commas, quotes and line breaks."""
    random = np.random.default_rng(0)
    words = ["plain", "a, b", 'say "x"', "two\nlines", '"', "\n\n", "ü", " ", "12"]
    frame = pd.DataFrame(
        {"x": random.normal(size=n), "a=b": random.integers(0, 9, n), "w": random.choice(words, n)}
    )
    frame.loc[::7, "x"] = np.nan
    frame.loc[::11, "w"] = None
    return frame


def assert_same(found, expected):
    """Equal values; what is missing may be None or NaN, as versions of pandas differ."""
    pd.testing.assert_index_equal(found.columns, expected.columns)
    for name in expected:
        gone = expected[name].isna()
        assert found[name].isna().tolist() == gone.tolist()
        if name == "w":
            assert found[name][~gone].tolist() == expected[name][~gone].tolist()
        else:
            np.testing.assert_array_equal(found[name], expected[name])


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(table_reading, "ROWS_AT_ONCE", 64)


@pytest.fixture(params=["csv", "parquet"])
def file(request, tmp_path):
    path = tmp_path / f"table.{request.param}"
    if request.param == "csv":
        table().to_csv(path, index=False)
    else:
        table().to_parquet(path, index=False, row_group_size=150)
    return str(path)


def joined(pieces):
    return pd.concat(list(pieces), ignore_index=True)


def test_a_whole_table_is_read(file):
    assert_same(read_frame(file), table())


@pytest.mark.usefixtures("small_pieces")
def test_pieces_make_the_whole(file):
    pieces = list(read_pieces(file, numbers=["x", "a=b"], texts=["w"]))
    assert len(pieces) > 10
    assert max(map(len, pieces)) <= 64
    assert_same(joined(pieces), table())


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_parts_make_the_whole(count, file):
    parts = [
        joined(read_pieces(file, numbers=["x", "a=b"], texts=["w"], part=Part(index, count)))
        for index in range(1, count + 1)
    ]
    assert max(map(len, parts)) < 2 * 1000 / count + 20  # shares are about equal
    assert_same(joined(parts), table())


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_a_part_without_rows_has_columns(name, tmp_path):
    path = str(tmp_path / name)
    with open_table(path) as write:
        write(table(3))
    sizes = []
    for index in range(1, 9):
        piece = joined(read_pieces(path, numbers=["x", "a=b"], texts=["w"], part=Part(index, 8)))
        assert list(piece.columns) == ["x", "a=b", "w"]
        sizes.append(len(piece))
    assert sum(sizes) == 3
    assert 0 in sizes


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "1/0", "-1/3", "a/b", "1/2/3", ""])
def test_parts_are_named_by_two_numbers(text):
    with pytest.raises(ValueError, match="a part is i/n, such as 2/8"):
        Part.parse(text)
    assert Part.parse(" 2/8 ") == Part(2, 8)


def test_parts_of_what_cannot_be_divided_are_refused(tmp_path):
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(b"a\n1\n"))
    with pytest.raises(ValueError, match="only parts of Parquet files and of CSV files"):
        list(read_pieces(str(path), part=Part(1, 2)))


@pytest.mark.parametrize("module", [gzip, bz2, lzma])
def test_compressed_files_are_read(module, tmp_path):
    path = tmp_path / f"table.csv.{ {gzip: 'gz', bz2: 'bz2', lzma: 'xz'}[module] }"
    path.write_bytes(module.compress(table().to_csv(index=False).encode()))
    assert_same(read_frame(str(path)), table())
    pieces = read_pieces(str(path), texts=["w"])
    assert_same(joined(pieces), table())


def test_a_pipe_is_read(tmp_path):
    fifo = tmp_path / "pipe.csv"
    os.mkfifo(fifo)
    thread = threading.Thread(target=lambda: table().to_csv(fifo, index=False))
    thread.start()
    assert_same(read_frame(str(fifo)), table())
    thread.join(10)


def test_columns_that_are_not_named_are_left_as_they_are_written(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("id,x,note\n007,1.50,NA\n1e5,NA,\n")
    (piece,) = read_pieces(str(path), numbers=["x"])
    assert piece["id"].tolist() == ["007", "1e5"]
    assert piece["note"].tolist() == ["NA", ""]
    np.testing.assert_array_equal(piece["x"], [1.5, np.nan])


def test_types_do_not_change_from_piece_to_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(table_reading, "ROWS_AT_ONCE", 2)
    path = tmp_path / "table.csv"
    path.write_text("w\n1\n2\nx\n\n3\n")
    pieces = read_pieces(str(path), texts=["w"], numbers=[])
    assert joined(pieces)["w"].dropna().tolist() == ["1", "2", "x", "3"]


WORDS = "w,x\nNA,1\nNA,NA\nNone,\nOslo,2\n,3\n"
TOLD = r"text column 'w', cells with 'NA' \(2\), 'None' \(1\) are taken as missing"


def test_words_for_missing_values_among_texts_are_told_with_counts(tmp_path):
    path = str(tmp_path / "table.csv")
    with open(path, "w") as file:
        file.write(WORDS)
    with pytest.warns(UserWarning, match=TOLD) as told:
        frame = read_frame(path)
    assert len(told) == 1  # of x, which is numbers, there is nothing to say
    with pytest.warns(UserWarning, match=TOLD):
        piece = joined(read_pieces(path, numbers=["x"], texts=["w"]))
    for found in (frame, piece):
        assert found["w"].dropna().tolist() == ["Oslo"]
        np.testing.assert_array_equal(found["x"], [1, np.nan, np.nan, 2, 3])


def test_other_words_may_stand_for_missing_values(tmp_path):
    path = str(tmp_path / "table.csv")
    with open(path, "w") as file:
        file.write(WORDS.replace(",NA", ",-"))
    with pytest.warns(UserWarning, match=r"'Oslo' \(1\)"):
        frame = read_frame(path, ["-", "Oslo"])
    assert frame["w"].dropna().tolist() == ["NA", "NA", "None"]
    np.testing.assert_array_equal(frame["x"], [1, np.nan, np.nan, 2, 3])


BAD = {
    "a repeated name": ("a,b,a\n1,2,3\n", "the column 'a' occurs twice"),
    "a long row": ("a,b\n1,2,3\n4,5,6\n", "not a readable table"),
    "a long row later": ("a,b\n1,2\n4,5,6\n", "Expected 2 fields in line 2, saw 3"),
    "no header": ("", "it has no header"),
    "no rows": ("a,b\n", "has no rows"),
    "bytes": ("a\n\udcff\n", "not a readable table"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD)
def test_broken_tables_are_refused(text, message, tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    for read in (read_frame, lambda path: list(read_pieces(path))):
        with pytest.raises(ValueError, match=message):
            read(str(path))


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    path = tmp_path / "table.csv"
    path.write_bytes(b"\xef\xbb\xbfa,b\r\n1,2\r\n")
    for frame in (
        read_frame(str(path)),
        joined(read_pieces(str(path))),
        joined(read_pieces(str(path), part=Part(1, 1))),
    ):
        assert frame.to_dict("list") == {"a": [1], "b": [2]}


@pytest.mark.parametrize("name", ["table.csv", "table.parquet"])
def test_what_is_written_in_pieces_is_read(name, tmp_path):
    path = str(tmp_path / name)
    with open_table(path) as write:
        for start in range(0, 1000, 300):
            write(table().iloc[start : start + 300])
    assert os.listdir(tmp_path) == [name]
    assert_same(read_frame(path), table())


def test_a_table_that_is_not_finished_is_not_there(tmp_path):
    def fail():
        with open_table(str(tmp_path / "table.csv")) as write:
            write(table())
            raise ValueError("the input was bad")

    with pytest.raises(ValueError, match="the input was bad"):
        fail()
    assert os.listdir(tmp_path) == []


def test_formulas_are_put_behind_an_apostrophe():
    cells = ["=1+1", "+1", "-1", "@sum", "\tx", "\rx", "a=1", "", None, "'"]
    frame = pd.DataFrame({"=name": cells, "n": -1.5, "k": pd.Categorical(cells)})
    harmless = without_formulas(frame)
    expected = ["'=1+1", "'+1", "'-1", "'@sum", "'\tx", "'\rx", "a=1", "", None, "'"]
    for name in ("'=name", "k"):
        assert harmless[name].isna().tolist() == [cell is None for cell in cells]
        assert harmless[name].dropna().tolist() == [cell for cell in expected if cell is not None]
    assert (harmless["n"] == -1.5).all()


def test_standard_input_is_read_once(monkeypatch):
    text = io.StringIO(table().to_csv(index=False), newline="")
    monkeypatch.setattr(text, "seekable", lambda: False)
    monkeypatch.setattr("sys.stdin", text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_same(read_frame("-"), table())
