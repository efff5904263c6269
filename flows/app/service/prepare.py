"""The last step of an installation: create Prefect's home, secret and empty database.

This makes the first start fast.
"""

from __future__ import annotations

import subprocess
import sys

from flows.app.service.site import Site


def main() -> None:
    """Prepare the workspace's site."""
    prepare(Site.here())


def prepare(site: Site) -> None:
    """Create the home, the secret and the database of a site. Raises CalledProcessError if Prefect
    cannot make the database."""
    site.prepare()
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y"]
    subprocess.run(
        command, cwd=site.root, env=site.environment(), stdout=subprocess.DEVNULL, check=True
    )


if __name__ == "__main__":
    main()
