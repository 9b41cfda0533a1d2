from __future__ import annotations

import io
import os
import resource
import signal

import pytest

from coding_gym.datasets.episode_log import EpisodeLog, records, scan
from coding_gym.errors import DatasetError

HASH = bytes(range(32))
DATA = [bytes([65 + index]) * (index * 7 + 1) for index in range(5)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "episodes.log"


def write(path, *indices):
    with EpisodeLog(path) as log:
        for index in indices:
            log.append(index, DATA[index], HASH)


def read(path):
    entries, _ = scan(path)
    with path.open("rb") as file:
        return {index: entry.read(file) for index, entry in entries.items()}


def test_torn_write_loses_only_last_record(path):
    write(path, 0, 1)
    begin = path.stat().st_size
    write(path, 2)
    whole = path.read_bytes()
    for size in range(begin, len(whole)):
        path.write_bytes(whole[:size])
        assert list(read(path)) == [0, 1]
        # The next write overwrites the torn record.
        write(path, 2)
        assert path.read_bytes() == whole
    path.write_bytes(whole[:-1] + b"?")
    assert list(read(path)) == [0, 1]


def test_trailing_zeros_are_dropped(path):
    write(path, 0, 1)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4096))
    assert list(read(path)) == [0, 1]
    write(path)
    assert path.read_bytes() == whole


def test_file_torn_before_first_record_is_restarted(path):
    write(path, 0)
    whole = path.read_bytes()
    for size in range(30):
        path.write_bytes(whole[:size])
        write(path, 0)
        assert path.read_bytes() == whole


def test_damage_before_last_record_raises(path):
    write(path, 0, 1, 2)
    whole = bytearray(path.read_bytes())
    whole[whole.index(DATA[1])] ^= 1
    path.write_bytes(whole)
    with pytest.raises(DatasetError, match="damaged at byte"):
        EpisodeLog(path)
    # The file is unchanged, so that the rest can be recovered.
    assert path.read_bytes() == whole


def test_foreign_file_is_refused_and_unchanged(path):
    path.write_text("my precious notes")
    with pytest.raises(DatasetError, match="not a file of episodes"):
        EpisodeLog(path)
    assert path.read_text() == "my precious notes"


def test_duplicate_episode_is_refused(path):
    with EpisodeLog(path) as log:
        log.append(3, DATA[3], HASH)
        with pytest.raises(DatasetError, match="Episode 3 is already in"):
            log.append(3, DATA[4], HASH)
    assert read(path) == {3: DATA[3]}


def test_sorted_log_is_independent_of_write_order(path, tmp_path):
    write(path, 2, 0, 4, 1, 3)
    with EpisodeLog(path) as log:
        log.sort()
        assert list(log.entries) == [0, 1, 2, 3, 4]
        log.append(9, DATA[0], HASH)
    in_order = tmp_path / "other.log"
    write(in_order, 0, 1, 2, 3, 4)
    with EpisodeLog(in_order) as log:
        log.append(9, DATA[0], HASH)
    assert path.read_bytes() == in_order.read_bytes()
    assert read(path)[4] == DATA[4]
    assert sorted(os.listdir(tmp_path)) == ["episodes.log", "other.log"]


def test_full_disk_loses_only_current_episode(path):
    write(path, 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with EpisodeLog(path) as log:
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 60, limits[1]))
            with pytest.raises(OSError, match="large"):
                log.append(1, DATA[4] * 9, HASH)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            log.append(2, DATA[2], HASH)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert read(path) == {0: DATA[0], 2: DATA[2]}


def test_records_are_read_from_any_offset(path):
    write(path, 0, 1, 2)
    whole = path.read_bytes()
    log = io.BytesIO(whole)
    found = list(records(log))
    assert [(record.episode, record.is_intact) for record in found] == [(0, True), (1, True), (2, True)]
    assert [whole[record.offset : record.end] for record in found] == DATA[:3]
    assert [record.episode for record in records(log, found[0].end)] == [1, 2]
    assert list(records(log, found[2].end)) == []


def test_damaged_record_does_not_hide_others(path):
    write(path, 0, 1, 2)
    data = bytearray(path.read_bytes())
    data[list(records(io.BytesIO(data)))[1].offset] ^= 1
    assert [(record.episode, record.is_intact) for record in records(io.BytesIO(data))] == [(0, True), (1, False), (2, True)]


def test_incomplete_record_is_not_read_yet(path):
    write(path, 0, 1)
    whole = path.read_bytes()
    end = next(records(io.BytesIO(whole))).end
    for size in range(len(whole)):
        assert len(list(records(io.BytesIO(whole[:size])))) == (size >= end)
    assert [record.episode for record in records(io.BytesIO(whole[:-1] + b"?"))] == [0]


def test_end_of_readable_records_is_an_error(path):
    write(path, 0, 1, 2, 3)
    data = bytearray(path.read_bytes())
    found = list(records(io.BytesIO(data)))
    data[found[1].offset] ^= 1
    data[found[2].offset] ^= 1
    with pytest.raises(DatasetError, match="damaged at byte"):
        list(records(io.BytesIO(data)))
    with pytest.raises(DatasetError, match="not a file of episodes"):
        list(records(io.BytesIO(b"something else, of some length")))
