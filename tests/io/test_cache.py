"""The cache belongs to its user alone: no link is followed, and nothing of others is read."""

import os
import stat

import pytest

from nearfar.io.cache import open_entry, private_folder, read_entry

pytestmark = pytest.mark.skipif(not hasattr(os, "getuid"), reason="this system has no owners of files")


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("NEARFAR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_folder_of_the_cache_is_private(cache):
    for mode in (None, 0o777, 0o755):
        if mode is not None:
            (cache / "features").chmod(mode)
        assert private_folder("features") == cache / "features"
        assert stat.S_IMODE((cache / "features").stat().st_mode) == 0o700


def test_a_folder_that_is_a_link_or_of_another_user_is_not_used(cache, monkeypatch, tmp_path):
    cache.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (cache / "linked").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"linked: cannot be used as a cache \(it is a link\); set NEARFAR_CACHE to"):
        private_folder("linked")
    private_folder("features")
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    with pytest.raises(OSError, match=r"features: cannot be used as a cache \(it belongs to another user\)"):
        private_folder("features")


def test_a_file_that_is_a_link_or_of_another_user_is_not_opened(cache, monkeypatch, tmp_path):
    folder = private_folder("features")
    target = tmp_path / "target"
    target.write_bytes(b"mine")
    (folder / "link").symlink_to(target)
    os.mkfifo(folder / "pipe")
    for name in ("link", "pipe", "missing"):
        with pytest.raises(OSError):
            read_entry(folder / name)
    with pytest.raises(OSError):
        open_entry(folder / "link", os.O_RDWR | os.O_CREAT)
    assert target.read_bytes() == b"mine"
    (folder / "entry").write_bytes(b"here")
    with read_entry(folder / "entry") as file:
        assert file.read() == b"here"
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    with pytest.raises(PermissionError, match="belongs to another user"):
        read_entry(folder / "entry")
