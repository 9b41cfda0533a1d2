from __future__ import annotations

import re
from pathlib import Path

import pytest

from coding_gym_server.isolation.probe import probe
from tests.support.requirements import import_extra, require_display

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))
MOST_BYTES = 100_000


def shown(cell):
    """Return the text that a cell shows, without warnings, and whether it shows a picture."""
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream" and output.name == "stdout")
    data = [output.data for output in cell.outputs if output.output_type in ("execute_result", "display_data")]
    texts = [each["text/plain"] for each in data if "image/png" not in each]
    return printed, texts, any("image/png" in each for each in data)


@pytest.mark.skipif(bool(probe().missing_filter), reason="the local provider needs seccomp")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_shows_recorded_output(path, monkeypatch, tmp_path):
    nbformat, nbclient = import_extra("nbformat"), import_extra("nbclient")
    import_extra("ipykernel")
    require_display()
    # No engine answers at this address, so provider="auto" selects the local provider.
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine")
    recorded, notebook = (nbformat.read(path, as_version=4) for _ in range(2))
    nbclient.NotebookClient(notebook, timeout=100, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    for cell, before in zip(notebook.cells, recorded.cells, strict=True):
        if cell.cell_type == "code":
            assert shown(cell) == shown(before), cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_valid_and_links_to_files(path):
    nbformat = import_extra("nbformat")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert path.stat().st_size < MOST_BYTES
    assert [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"] == list(
        range(1, 1 + sum(cell.cell_type == "code" for cell in notebook.cells))
    )
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    targets = re.findall(r"\]\((?!https?:)([^)#]+)", text)
    assert [target for target in targets if not (path.parent / target).is_file()] == []


def test_there_are_notebooks():
    assert len(NOTEBOOKS) == 2
