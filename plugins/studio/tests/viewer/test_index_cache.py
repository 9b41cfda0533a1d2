from __future__ import annotations

import os

import pytest

from coding_gym.datasets.manifest import Manifest
from coding_gym_studio.viewer import index as index_module
from coding_gym_studio.viewer.index import EpisodeIndex
from plugins.studio.tests.viewer.datasets import varied, write


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """Directory of the cache, for datasets of any size."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(index_module, "_FEWEST_CACHED", 1)
    return tmp_path / "cache" / "coding_gym" / "view"


@pytest.fixture
def path(tmp_path):
    path = write(tmp_path / "runs", [varied(index) for index in (3, 1, 0, 2)])
    complete(path)
    return path


def complete(path):
    manifest = Manifest.read(path)
    manifest.sha256 = "0" * 64
    manifest.write(path)


def opened(path):
    index = EpisodeIndex(path)
    index.read()
    return index


def content(index):
    summaries = index.summaries
    details = [index.details(number) for number in range(4)]
    return summaries.dump(), summaries.outcomes, summaries.tasks, details, [index.record(number) for number in range(4)]


def test_cached_index_is_the_same(cache, path, monkeypatch):
    first = opened(path)
    assert len(list(cache.iterdir())) == 1
    monkeypatch.setattr(index_module, "summary_of", lambda *_: pytest.fail("the episodes are read again"))
    second = opened(path)
    assert content(second) == content(first)
    assert (second.has_times, second.problem) == (True, "")


def test_index_of_changed_files_is_read_again(cache, path):
    opened(path)
    write(path, [varied(4)], requested=5)
    complete(path)
    assert len(opened(path).summaries) == 5
    os.utime(path / "episodes.log")
    assert len(opened(path).summaries) == 5


def test_restored_index_reads_on(cache, path):
    opened(path)
    index = opened(path)
    write(path, [varied(4)], requested=5)
    index.read()
    assert list(index.summaries.episodes()) == [3, 1, 0, 2, 4]
    assert index.details(4) is not None


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", lambda data: b"?" + data])
def test_damaged_cache_is_ignored(cache, path, damage):
    expected = content(opened(path))
    (file,) = cache.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert content(opened(path)) == expected


def test_incomplete_dataset_is_not_cached(cache, tmp_path):
    opened(write(tmp_path / "growing", [varied(0)], requested=2))
    assert not cache.exists()


def test_cache_that_cannot_be_written_is_no_error(path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    monkeypatch.setattr(index_module, "_FEWEST_CACHED", 1)
    assert opened(path).problem == ""
