"""The Prefect installation of one workspace: its files, port, secret and processes.

Everything that Prefect writes stays in `data/prefect`. The secret is created at first use and kept
in the git-ignored `.env`, with all settings of `prefect.toml`. The plain command `prefect` reads
that file when run in the workspace, which in a checkout is the project folder.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flows.app.service.process import Process
from flows.runtime.store_root import IN_CHECKOUT, SOURCE, WORKSPACE, open_workspace

PORT = 4217
USER = "selfplay"
PORTS = range(1024, 65536)
USERS_TMPDIR = "SELFPLAY_TMPDIR"  # carries the user's TMPDIR past the worker to its flows
SETTINGS = Path(__file__).parent / "prefect.toml"
PROFILES_FILE = 'active = "selfplay"\n\n[profiles.selfplay]\n'


@dataclass(frozen=True)
class Site:
    """A Prefect installation: flows run in `root`, and `home` is Prefect's home.

    If `port_choice` is None, the port is the one in the env file.
    """

    root: Path = WORKSPACE
    home: Path = WORKSPACE / "data" / "prefect"
    port_choice: int | None = None

    @classmethod
    def here(cls) -> Site:
        """The workspace's site, unless the environment names another one, as in tests.

        The variables are SELFPLAY_PREFECT_HOME and SELFPLAY_PREFECT_PORT.
        """
        home = cls.home
        port = None
        if own_home := os.environ.get("SELFPLAY_PREFECT_HOME"):
            home = Path(own_home).resolve()
        if own_port := os.environ.get("SELFPLAY_PREFECT_PORT"):
            port = _port(own_port, "SELFPLAY_PREFECT_PORT is set to")
        return cls(WORKSPACE, home, port)

    @property
    def code(self) -> Path:
        """The folder of the package `flows`, with the methods that are deployed."""
        if self.root == WORKSPACE:
            return SOURCE
        return self.root

    @property
    def env_file(self) -> Path:
        """The file with the port and the secret: `.env` in the workspace, or in Prefect's home if
        that is elsewhere."""
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
        """The chosen port, else the port in the env file, else `PORT`. Raises ValueError if the env
        file has an invalid port."""
        return self.port_choice or self.kept_port or PORT

    @property
    def kept_port(self) -> int | None:
        """The port in the env file; None if it has none. Raises ValueError if it is invalid."""
        kept = self._kept("PREFECT_SERVER_API_PORT")
        if not kept:
            return None
        return _port(kept, f"PREFECT_SERVER_API_PORT in {self.env_file} is")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def page(self, flow_run: dict[str, Any]) -> str:
        """The URL of a flow run's page."""
        return f"http://127.0.0.1:{self.port}/runs/flow-run/{flow_run['id']}"

    def prepare(self) -> None:
        """Create the home, and write settings, port and secret to the env file (mode 600).

        Other lines of the env file stay.
        """
        if self.root == WORKSPACE:
            open_workspace()
        self.logs.mkdir(parents=True, exist_ok=True)
        self.home.chmod(0o700)  # logs and database would reveal to other users what is run
        profiles = self.home / "profiles.toml"
        if not profiles.exists():
            profiles.write_text(PROFILES_FILE)
        ours = self._settings()
        others = [line for line in self._env_lines() if line.split("=", 1)[0] not in ours]
        text = "\n".join([*others, *(f"{key}={value}" for key, value in ours.items())]) + "\n"
        if not self.env_file.exists() or self.env_file.read_text() != text:
            fresh = self.env_file.with_suffix(".fresh")
            with open(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
                file.write(text)
            fresh.replace(self.env_file)

    def environment(self) -> dict[str, str]:
        """The environment of a process that uses this site from any folder.

        It contains none of the user's other Prefect settings.
        """
        foreign = {
            key
            for key in os.environ
            if key.startswith("PREFECT_") and not key.startswith("PREFECT_LOGGING_")
        }
        inherited = {key: value for key, value in os.environ.items() if key not in foreign}
        environment = {
            **inherited,
            **self._settings(),
            "DO_NOT_TRACK": "1",
            **dict.fromkeys(("NO_PROXY", "no_proxy"), _unproxied()),
        }
        if IN_CHECKOUT:
            # Python finds an installed package anyway; here, its folder would hide Python's own
            environment["PYTHONPATH"] = os.pathsep.join(
                filter(None, [str(self.root), str(SOURCE), os.environ.get("PYTHONPATH")])
            )
        else:
            environment["SELFPLAY_HOME"] = str(WORKSPACE)  # made absolute: the user's may not be
        return environment

    def activate(self) -> None:
        """Make this process a client of the site. Call it before Prefect is imported."""
        for key in [k for k in os.environ if k.startswith("PREFECT_")]:
            del os.environ[key]
        os.environ.update(self.environment())

    def process(self, name: str) -> Process:
        """The process of this name in this site, whether or not it is running."""
        return Process(self.home / "pids" / f"{name}.json")

    def processes(self, prefix: str) -> list[Process]:
        """The processes that have a pid file and a name that begins with `prefix`, running or
        not."""
        return [Process(path) for path in sorted((self.home / "pids").glob(f"{prefix}*.json"))]

    def start(self, name: str, command: Sequence[str]) -> Process:
        """Start a background process of this site that outlives this process.

        It gets its own log file and pid file.
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
        """Environment variables that set a temporary folder of the site's own.

        In the system's folder, the worker's `runner_storage` may belong to another user.
        """
        scratch = self.home / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        return {"TMPDIR": str(scratch), USERS_TMPDIR: os.environ.get("TMPDIR", "")}

    def log_tail(self, name: str, lines: int = 15) -> str:
        """For an error message: a line with the path of a process's log, then the last `lines`
        lines of the log."""
        path = self.logs / f"{name}.log"
        text = ""
        if path.exists():
            text = path.read_text(errors="replace")
        return f"the end of {path}:\n" + "\n".join(text.splitlines()[-lines:])

    def _settings(self) -> dict[str, str]:
        """Every setting of Prefect, as an environment variable."""
        database = f"sqlite+aiosqlite:///{self.home / 'prefect.db'}"
        return {
            **dict(_variables("PREFECT", tomllib.loads(SETTINGS.read_text(encoding="utf-8")))),
            "PREFECT_HOME": str(self.home),
            "PREFECT_PROFILES_PATH": str(self.home / "profiles.toml"),
            "PREFECT_RESULTS_LOCAL_STORAGE_PATH": str(self.home / "storage"),
            "PREFECT_LOGGING_CONFIG_PATH": str(self.home / "logging.yml"),
            "PREFECT_SERVER_MEMO_STORE_PATH": str(self.home / "memo_store.toml"),
            "PREFECT_SERVER_DATABASE_CONNECTION_URL": database,
            "PREFECT_API_URL": self.url,
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


def _variables(prefix: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the settings of a TOML table as environment variables.

    >>> list(_variables("PREFECT", {"server": {"api": {"port": 1}, "ui": False}}))
    [('PREFECT_SERVER_API_PORT', '1'), ('PREFECT_SERVER_UI', 'false')]
    """
    for name, value in settings.items():
        variable = f"{prefix}_{name.upper()}"
        if isinstance(value, Mapping):
            yield from _variables(variable, value)
        elif isinstance(value, bool):
            yield variable, str(value).lower()
        else:
            yield variable, str(value)


def _port(text: str, where: str) -> int:
    if not text.isdecimal() or int(text) not in PORTS:
        raise ValueError(
            f"{where} {text!r}, which is no port: give a number from {PORTS[0]} to {PORTS[-1]}"
        )
    return int(text)


def _unproxied() -> str:
    """Hosts that bypass a proxy: ours, and those that the user lists in `no_proxy` or
    `NO_PROXY`."""
    hosts = ["127.0.0.1"]
    for name in ("NO_PROXY", "no_proxy"):
        hosts += os.environ.get(name, "").split(",")
    return ",".join(dict.fromkeys(filter(None, map(str.strip, hosts))))
