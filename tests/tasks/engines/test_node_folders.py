"""Folders that a node fetches from the flow, over real connections."""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any, cast

import pytest

from tasks.engines import node_folders
from tasks.engines.node_folders import CACHE, MOST_KEPT, NodeFolders, folder_files, send_folders
from tasks.models.engine import EngineConfig, Policy


class Flow:
    """Listens as a flow does, and counts the bytes of files that it sends."""

    def __init__(self) -> None:
        key = secrets.token_hex(32)
        self.listener = Listener(("127.0.0.1", 0), authkey=bytes.fromhex(key))
        host, port = cast(tuple[str, int], self.listener.address)
        self.address = (host, str(port), key)
        self.num_bytes = 0
        self.damages = False
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection: Any = Counted(self.listener.accept(), self)
            except OSError:
                return
            send_folders(connection)


class Counted:
    """A connection whose bytes are counted, and damaged if the flow says so."""

    def __init__(self, connection: Connection, flow: Flow):
        self._connection = connection
        self._flow = flow

    def send_bytes(self, chunk: bytes) -> None:
        self._flow.num_bytes += len(chunk)
        self._connection.send_bytes(chunk[::-1] if self._flow.damages else chunk)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def __enter__(self) -> Counted:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()


@pytest.fixture
def flow() -> Iterator[Flow]:
    made = Flow()
    yield made
    made.listener.close()


def node(flow: Flow, cache: Path) -> NodeFolders:
    """A node's folders; all are copied, since the flow's paths exist on this machine, too."""
    dial = NodeFolders.of_flow(*flow.address)._dial
    return NodeFolders(dial, {CACHE: str(cache)})


def weights(folder: Path, text: str = "weights") -> str:
    (folder / "shards").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "empty").touch()
    (folder / "shards" / "1.safetensors").write_text(text)
    return str(folder)


def contents(folder: str | Path) -> dict[str, str]:
    found = Path(folder)
    files = (path for path in found.rglob("*") if path.is_file())
    return {path.relative_to(found).as_posix(): path.read_text() for path in files}


def test_a_folder_arrives_as_it_is_and_only_once(flow: Flow, tmp_path: Path) -> None:
    path = weights(tmp_path / "flow")
    here = node(flow, tmp_path / "cache").path(path)
    assert Path(here).parent == tmp_path / "cache"
    assert contents(here) == contents(path)
    sent = flow.num_bytes
    assert sent == sum(map(len, contents(path).values()))
    assert node(flow, tmp_path / "cache").path(path) == here
    assert flow.num_bytes == sent


def test_another_content_under_the_same_path_is_fetched(flow: Flow, tmp_path: Path) -> None:
    path = weights(tmp_path / "flow")
    first = node(flow, tmp_path / "cache").path(path)
    (tmp_path / "flow" / "config.json").write_text('{"changed": 1}')
    second = node(flow, tmp_path / "cache").path(path)
    assert second != first
    assert contents(second) == contents(path)


def test_a_path_that_exists_here_and_a_name_on_the_hub_stay(flow: Flow, tmp_path: Path) -> None:
    path = weights(tmp_path / "shared")
    shared = NodeFolders(NodeFolders.of_flow(*flow.address)._dial, {})
    assert shared.path(path) == path
    assert node(flow, tmp_path / "cache").path("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
    assert flow.num_bytes == 0


def test_policies_and_configurations_name_the_folders_of_the_node(
    flow: Flow, tmp_path: Path
) -> None:
    folders = node(flow, tmp_path / "cache")
    base = weights(tmp_path / "base")
    adapter = weights(tmp_path / "adapter", "adapter")
    policy = Policy(id="p", weights=base, adapter=adapter, content_hash="h")
    here = folders.policy(policy)
    assert contents(here.weights) == contents(base)
    assert here.adapter
    assert contents(here.adapter) == contents(adapter)
    assert (here.id, here.content_hash) == ("p", "h")
    assert folders.policy(Policy(id="p", weights=base, content_hash="h")).adapter is None
    config = folders.config(EngineConfig(model=base, max_model_len=64))
    assert config.model == here.weights


def test_a_folder_that_the_flow_does_not_have_is_an_error(flow: Flow, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot read /nowhere"):
        node(flow, tmp_path / "cache").path("/nowhere")


def test_a_damaged_file_is_an_error_and_leaves_nothing(flow: Flow, tmp_path: Path) -> None:
    path = weights(tmp_path / "flow")
    flow.damages = True
    with pytest.raises(OSError, match=r"config\.json arrived damaged"):
        node(flow, tmp_path / "cache").path(path)
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    flow.damages = False
    assert contents(node(flow, tmp_path / "cache").path(path)) == contents(path)


def test_a_file_that_shrinks_while_it_is_sent_is_an_error_and_no_endless_wait(
    flow: Flow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = weights(tmp_path / "flow")

    def listed(folder: Path) -> list[node_folders.FolderFile]:
        files = folder_files(folder)
        (folder / files[-1].name).write_text("short")
        return files

    monkeypatch.setattr(node_folders, "folder_files", listed)
    said = list[str]()

    def fetch() -> None:
        try:
            node(flow, tmp_path / "cache").path(path)
        except OSError as problem:
            said.append(str(problem))

    fetching = threading.Thread(target=fetch, daemon=True)
    fetching.start()
    fetching.join(timeout=30)
    assert said == ["shards/1.safetensors did not arrive whole"]


def test_what_a_killed_process_left_is_replaced(flow: Flow, tmp_path: Path) -> None:
    path = weights(tmp_path / "flow")
    cache = tmp_path / "cache"
    here = Path(node(flow, cache).path(path))
    here.rename(here.with_suffix(".part"))
    (here.with_suffix(".part") / "half").touch()
    assert contents(node(flow, cache).path(path)) == contents(path)


def test_two_engines_of_a_node_fetch_a_folder_once(flow: Flow, tmp_path: Path) -> None:
    path = weights(tmp_path / "flow")
    cache = tmp_path / "cache"
    key = Path(node(flow, cache).path(path)).name
    os.rename(cache / key, tmp_path / "fetched")
    found = list[str]()
    with (cache / f"{key}.lock").open("w") as other:  # as if another engine were fetching it
        fcntl.flock(other, fcntl.LOCK_EX)
        sent = flow.num_bytes
        second = threading.Thread(target=lambda: found.append(node(flow, cache).path(path)))
        second.start()
        time.sleep(0.2)
        assert found == []
        os.rename(tmp_path / "fetched", cache / key)
    second.join(timeout=30)
    assert found == [str(cache / key)]
    assert flow.num_bytes == sent


def test_folders_that_were_not_used_for_longest_are_removed(flow: Flow, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    base = weights(tmp_path / "base")
    kept = node(flow, cache).path(base)
    for number in range(2 * MOST_KEPT):
        node(flow, cache).path(weights(tmp_path / str(number), str(number)))
        assert node(flow, cache).path(base) == kept
    folders = [path for path in cache.iterdir() if path.is_dir()]
    assert len(folders) == MOST_KEPT
    assert Path(kept) in folders
