"""Installed packages are pinned by version and by the hashes of their files."""

import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).resolve().parent.parent / "requirements"
PINNED = re.compile(r"^([\w.\[\],-]+)==([\w.+!]+)((?:[^\n\\]|\\\n)*)$", re.MULTILINE)
WITHOUT = {"cpu.txt": ["torch"]}  # PyTorch's index alone knows the hashes of its CPU builds


LOCKS = sorted(path.name for path in REQUIREMENTS.glob("*.txt") if "overrides" not in path.name)


@pytest.mark.parametrize("name", LOCKS)
def test_every_package_of_a_lock_has_the_hashes_of_its_files(name):
    text = (REQUIREMENTS / name).read_text()
    packages = PINNED.findall(text)
    assert len(packages) == sum(line[:1].isalnum() for line in text.splitlines()) > 0
    found = [
        (package, len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", rest)))
        for package, _, rest in packages
    ]
    assert [package for package, number in found if not number] == WITHOUT.get(name, [])
    assert sum(number for _, number in found) == text.count("--hash=")


def test_what_is_installed_is_compared_with_them():
    script = (REQUIREMENTS / "install.sh").read_text()
    installs = [line for line in script.splitlines() if '-r "$lock"' in line]
    assert len(installs) == 2 and all('"$check"' in line for line in installs)
    assert "check=--verify-hashes; else check=--require-hashes" in script


def test_cudas_python_bindings_are_of_one_release():
    """Of different ones, two packages write the same files."""
    pinned = {
        package: version
        for package, version, _ in PINNED.findall((REQUIREMENTS / "gpu.txt").read_text())
    }
    assert pinned["cuda-python"].split(".")[:2] == pinned["cuda-bindings"].split(".")[:2]
