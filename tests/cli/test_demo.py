"""The demo is quiet where nobody watches, and what it says to open is there."""

import re
from functools import partial
from pathlib import Path

import subtractive as sub
from subtractive.cli import demo

ONE_EPOCH = {"max_epochs": 1}


def test_the_demo_is_quiet_and_names_files_that_exist(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sub, "SubtractiveMixture", partial(sub.SubtractiveMixture, **ONE_EPOCH))
    fit = sub.fit
    monkeypatch.setattr(sub, "fit", lambda *args, **options: fit(*args, **options | ONE_EPOCH))
    monkeypatch.setattr(
        sub, "write_report", lambda model, table, path, title: path.write_text(title)
    )
    demo.run(str(tmp_path / "out"))
    said = capsys.readouterr()
    assert said.err == ""
    assert re.findall(r"^(\d)\. [A-Z]", said.out, re.MULTILINE) == ["1", "2", "3", "4"]
    named = said.out.split("Open these:")[1].split("Then")[0]
    files = [Path(line.split()[0]) for line in named.strip().splitlines()]
    assert len(files) == 3
    assert all(file.stat().st_size > 0 for file in files)
    assert (tmp_path / "out" / "penguins.model").exists()
