"""Checkpoints on disk: whole or not at all, each byte checked, never over another run's."""

import os
import stat

import numpy as np
import pytest

from fastrace._base import _files


def file_of(folder, content=b"some content", kind="chains", version=3, run="run a"):
    path = _files.file_path(folder / "run.fr")
    _files.write(path, kind, version, run, content)
    return path


@pytest.mark.parametrize("content", [b"", b"x" * 70_000, memoryview(b"abc")])
def test_content_comes_back(tmp_path, content):
    assert _files.read(file_of(tmp_path, content), "chains", 3) == content
    assert os.listdir(tmp_path) == ["run.fr"]


def test_every_changed_byte_is_refused(tmp_path):
    path = file_of(tmp_path)
    whole = path.read_bytes()
    for i in range(len(whole)):
        for change in (1, 128):
            path.write_bytes(whole[:i] + bytes([whole[i] ^ change]) + whole[i + 1 :])
            with pytest.raises(ValueError, match="damaged|holds no chains"):
                _files.read(path, "chains", 3)


def test_every_truncated_or_longer_file_is_refused(tmp_path):
    path = file_of(tmp_path)
    whole = path.read_bytes()
    for part in [*(whole[:i] for i in range(len(whole))), whole + b"\0"]:
        path.write_bytes(part)
        with pytest.raises(ValueError, match="damaged|holds no chains"):
            _files.read(path, "chains", 3)


def test_files_of_another_kind_or_version_are_refused_by_name(tmp_path):
    path = file_of(tmp_path)
    with pytest.raises(ValueError, match="holds chains, not trainings"):
        _files.read(path, "trainings", 3)
    with pytest.raises(ValueError, match="is of version 3; this fastrace reads version 4"):
        _files.read(path, "chains", 4)


@pytest.mark.parametrize("other", [
    {"kind": "trainings"}, {"run": "run b"}, {"content": None},
])
def test_files_of_another_kind_or_run_are_not_overwritten(tmp_path, other):
    path = file_of(tmp_path, **{**other, "content": b"theirs"})
    if "content" in other:
        path.write_bytes(b"someone's notes")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is not overwritten"):
        _files.write(path, "chains", 3, "run a", b"ours")
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["run.fr"]


def test_own_file_is_overwritten(tmp_path):
    path = file_of(tmp_path)
    _files.write(path, "chains", 4, "run a", b"more")
    assert _files.read(path, "chains", 4) == b"more"


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = file_of(tmp_path)

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        _files.write(path, "chains", 3, "run a", b"more")
    assert _files.read(path, "chains", 3) == b"some content" and os.listdir(tmp_path) == ["run.fr"]


def test_links_are_followed(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there" / "file")
    _files.write(_files.file_path(tmp_path / "link"), "chains", 3, "run a", b"content")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "there" / "file").is_file()


def test_permissions_are_those_of_any_new_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    modes = {stat.S_IMODE(path.stat().st_mode) for path in (file_of(tmp_path), tmp_path / "plain")}
    assert len(modes) == 1


def test_folders_are_refused(tmp_path):
    with pytest.raises(ValueError, match="a folder; the path of a file"):
        _files.file_path(tmp_path)
    with pytest.raises(TypeError, match="checkpoint is 5; the path of a file"):
        _files.file_path(5)
    with pytest.raises(ValueError, match="saved is .* its folder does not exist"):
        _files.file_path(tmp_path / "no" / "file", "saved")


def test_packed_values_come_back_alike():
    arrays = [np.arange(6.0).reshape(2, 3), np.array([], np.int32), np.array(True), np.zeros(2, ">f4")]
    value = {
        "a": [None, True, 2**200, -0.5, float("inf"), "word", b"\0bytes", ()],
        (1, 2): {"nested": (1, [2.0, {"x": "y"}])},
        "arrays": arrays,
        "scalar": np.float32(1.5),
    }
    back = _files.unpack(_files.pack(value))
    for a, b in zip(arrays, back.pop("arrays"), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and (a == b).all()
    assert type(back["scalar"]) is np.float32
    assert back == {k: v for k, v in value.items() if k != "arrays"}
    assert np.isnan(_files.unpack(_files.pack(float("nan"))))


@pytest.mark.parametrize("value", [object(), [np.array([object()])], {"a": {1, 2}}, np.ma.zeros(2)])
def test_values_that_need_code_are_refused(value):
    with pytest.raises(TypeError, match="cannot store a .*; only .* can be stored without pickle"):
        _files.pack(value)
