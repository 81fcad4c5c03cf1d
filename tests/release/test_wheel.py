"""The wheel and the sdist, installed into an empty environment as a user does it."""

import os
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parents[2]
ASSETS = ("index.html", "app.js", "style.css", "echarts.min.js", "echarts.LICENSE")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with both."""
    folder = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return folder


def test_the_wheel_holds_the_package_and_nothing_else(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"remuda"}
    for asset in ASSETS:
        assert f"remuda/ui/dashboard/assets/{asset}" in names
    assert "remuda/py.typed" in names


def test_the_sdist_builds_the_same_wheel(built, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again")],
        cwd=source,
        check=True,
        capture_output=True,
    )
    (first,), (second,) = built.glob("*.whl"), (tmp_path / "again").glob("*.whl")
    assert zipfile.ZipFile(first).namelist() == zipfile.ZipFile(second).namelist()


def test_it_is_installed_and_used_without_the_makefile(built, tmp_path):
    (wheel,) = built.glob("*.whl")
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python, remuda = home / "bin" / "python", home / "bin" / "remuda"
    pip = [str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt")]
    subprocess.run([*pip, "torch==2.13.0"], check=True)
    subprocess.run([*pip, f"{wheel}[dashboard]"], check=True)
    begun = time.monotonic()
    # Nothing of this checkout is found.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA"))}
    words = [str(remuda), "train", "treasure_hunt", "--run.turns", "2000", "--run.live", "false"]
    done = subprocess.run(
        [*words, "--run.directory", "runs/first"],
        cwd=tmp_path,
        env=clean | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "agent_0" in done.stdout
    print(f"the first command took {time.monotonic() - begun:.0f} s")
    listed = subprocess.run(
        [str(remuda), "runs"], cwd=tmp_path, env=clean, capture_output=True, text=True, check=True
    )
    assert "treasure_hunt" in listed.stdout
