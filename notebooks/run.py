"""Runs notebooks and keeps their outputs in the files, after a change to them.

``.venv/bin/python notebooks/run.py compaction`` runs one; without a name, all are run.
"""

import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent


def main(names: list[str]) -> None:
    for path in [HERE / f"{name}.ipynb" for name in names] or sorted(HERE.glob("*.ipynb")):
        run(path)


def run(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(book, timeout=900, kernel_name="python3", record_timing=False)
    client.execute()
    book.metadata.language_info = {"name": "python"}  # without the version, which changes by itself
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = merged(cell.outputs)
    nbformat.write(book, path)


def merged(outputs: list[Any]) -> list[Any]:
    """What was printed in one piece, however it came."""
    found: list[Any] = []
    for each in outputs:
        if found and each.output_type == "stream" == found[-1].output_type and each.name == found[-1].name:
            found[-1].text += each.text
        else:
            found.append(each)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
