"""The Prefect installation of one checkout: its files, port, secret and processes.

Everything Prefect writes stays in `data/prefect`. The secret is made at first use and kept in the
git-ignored `.env`, which plain `.venv/bin/prefect` reads when typed in the project folder; the
other settings are in pyproject.toml.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flows.app.service.process import Process
from flows.runtime.store_root import SOURCE

PORT = 4217
USER = "selfplay"
PORTS = range(1024, 65536)
USERS_TMPDIR = "SELFPLAY_TMPDIR"  # carries the user's TMPDIR past the worker to its flows
PROFILES_FILE = 'active = "selfplay"\n\n[profiles.selfplay]\n'


@dataclass(frozen=True)
class Site:
    """`root` holds the flows, `home` is Prefect's home.

    With `port_choice` None, the port is that in the env file.
    """

    root: Path = SOURCE
    home: Path = SOURCE / "data" / "prefect"
    port_choice: int | None = None

    @classmethod
    def here(cls) -> Site:
        """This checkout's site, unless the environment names another, as tests do.

        The variables are SELFPLAY_PREFECT_HOME and SELFPLAY_PREFECT_PORT.
        """
        home = cls.home
        port = None
        if own_home := os.environ.get("SELFPLAY_PREFECT_HOME"):
            home = Path(own_home).resolve()
        if own_port := os.environ.get("SELFPLAY_PREFECT_PORT"):
            port = _port(own_port, "SELFPLAY_PREFECT_PORT is set to")
        return cls(SOURCE, home, port)

    @property
    def env_file(self) -> Path:
        is_default = self.home == self.root / "data" / "prefect"
        folder = self.root if is_default else self.home
        return folder / ".env"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    @cached_property
    def secret(self) -> str:
        """`user:password`. Raises ValueError if the env file has another form."""
        kept = self._kept("PREFECT_API_AUTH_STRING")
        if kept and not all(kept.partition(":")):
            raise ValueError(
                f"PREFECT_API_AUTH_STRING in {self.env_file} is not of the form user:password:"
                " remove that line, then `selfplay down` and `selfplay up`, which makes a new one"
            )
        return kept or f"{USER}:{secrets.token_urlsafe(32)}"

    @cached_property
    def port(self) -> int:
        if self.port_choice:
            return self.port_choice
        kept = self._kept("PREFECT_SERVER_API_PORT")
        if not kept:
            return PORT
        return _port(kept, f"PREFECT_SERVER_API_PORT in {self.env_file} is")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def page(self, flow_run: dict[str, Any]) -> str:
        """The address of a flow run's page."""
        return f"http://127.0.0.1:{self.port}/runs/flow-run/{flow_run['id']}"

    def prepare(self) -> None:
        """Create the home, and write port and secret to the env file (mode 600).

        Its other lines stay.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o700)  # logs and database would show other users what is run
        profiles = self.home / "profiles.toml"
        if not profiles.exists():
            profiles.write_text(PROFILES_FILE)
        ours = self._secrets()
        others = [line for line in self._env_lines() if line.split("=", 1)[0] not in ours]
        text = "\n".join([*others, *(f"{key}={value}" for key, value in ours.items())]) + "\n"
        if not self.env_file.exists() or self.env_file.read_text() != text:
            fresh = self.env_file.with_suffix(".fresh")
            with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
            fresh.replace(self.env_file)

    def environment(self) -> dict[str, str]:
        """The environment of a process that uses this site from any folder.

        It has no other Prefect settings of the user.
        """
        foreign = {
            key
            for key in os.environ
            if key.startswith("PREFECT_") and not key.startswith("PREFECT_LOGGING_")
        }
        inherited = {key: value for key, value in os.environ.items() if key not in foreign}
        python_path = os.pathsep.join(
            filter(None, [str(self.root), str(SOURCE), os.environ.get("PYTHONPATH")])
        )
        paths = {
            "PREFECT_HOME": "",
            "PREFECT_PROFILES_PATH": "profiles.toml",
            "PREFECT_RESULTS_LOCAL_STORAGE_PATH": "storage",
            "PREFECT_LOGGING_CONFIG_PATH": "logging.yml",
            "PREFECT_SERVER_MEMO_STORE_PATH": "memo_store.toml",
        }
        return {
            **inherited,
            **{key: str(self.home / name) for key, name in paths.items()},
            **self._secrets(),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": (
                f"sqlite+aiosqlite:///{self.home / 'prefect.db'}"
            ),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",  # seconds, the least that Prefect takes
            "PREFECT_LOGGING_EXTRA_LOGGERS": "selfplay",
            "DO_NOT_TRACK": "1",
            **dict.fromkeys(("NO_PROXY", "no_proxy"), _unproxied()),
            "PYTHONPATH": python_path,
        }

    def activate(self) -> None:
        """Make this process a client of the site. Call it before Prefect is imported."""
        for key in [k for k in os.environ if k.startswith("PREFECT_")]:
            del os.environ[key]
        os.environ.update(self.environment())

    def process(self, name: str) -> Process:
        return Process(self.home / "pids" / f"{name}.json")

    def processes(self, prefix: str) -> list[Process]:
        return [Process(path) for path in sorted((self.home / "pids").glob(f"{prefix}*.json"))]

    def start(self, name: str, command: Sequence[str]) -> Process:
        """Start a background process of this site that outlives us.

        It has a log file and a pid file of its own.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        with open(self.logs / f"{name}.log", "ab") as log:
            started = subprocess.Popen(
                [sys.executable, *command],
                cwd=self.root,
                env={**self.environment(), **self._own_scratch()},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = self.process(name)
        process.write(started.pid)
        return process

    def _own_scratch(self) -> dict[str, str]:
        """A temporary folder of our own.

        In the system's, the worker's `runner_storage` may belong to another user.
        """
        scratch = self.home / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        return {"TMPDIR": str(scratch), USERS_TMPDIR: os.environ.get("TMPDIR", "")}

    def log_tail(self, name: str, lines: int = 15) -> str:
        path = self.logs / f"{name}.log"
        text = ""
        if path.exists():
            text = path.read_text(errors="replace")
        return f"the end of {path}:\n" + "\n".join(text.splitlines()[-lines:])

    def _secrets(self) -> dict[str, str]:
        return {
            "PREFECT_API_URL": self.url,
            "PREFECT_SERVER_API_HOST": "127.0.0.1",
            "PREFECT_SERVER_API_PORT": str(self.port),
            "PREFECT_API_AUTH_STRING": self.secret,
            "PREFECT_SERVER_API_AUTH_STRING": self.secret,
        }

    def _env_lines(self) -> list[str]:
        if not self.env_file.exists():
            return []
        try:
            return self.env_file.read_text().splitlines()
        except UnicodeDecodeError:
            raise ValueError(
                f"{self.env_file} is not text: move it away, then `selfplay down` and `selfplay"
                " up`, which writes it"
            ) from None

    def _kept(self, key: str) -> str | None:
        return next(
            (line.split("=", 1)[1] for line in self._env_lines() if line.startswith(f"{key}=")),
            None,
        )


def _port(text: str, where: str) -> int:
    if not text.isdecimal() or int(text) not in PORTS:
        raise ValueError(
            f"{where} {text!r}, which is no port: give a number from {PORTS[0]} to {PORTS[-1]}"
        )
    return int(text)


def _unproxied() -> str:
    """Hosts that bypass a proxy: ours, and those that the user names in either variable."""
    hosts = ["127.0.0.1"]
    for name in ("NO_PROXY", "no_proxy"):
        hosts += os.environ.get(name, "").split(",")
    return ",".join(dict.fromkeys(filter(None, map(str.strip, hosts))))
