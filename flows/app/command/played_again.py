"""Play a run again without running any stage, to see what its stages were called with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flows.app.command.start import play_by
from flows.app.service.waiting import waiting

if TYPE_CHECKING:
    from flows.environments.recorded import Recording
    from warehouse.store import Store


def record(store: Store, run: str) -> Recording:
    """The calls of all stages that the run has reached.

    Raises ValueError if there is no such run, or if its flow or models are gone.
    """
    from flows.app.command.parameters import method_of
    from flows.environments.recorded import Recording
    from flows.pilot.data_engine import WANTED, kind_of
    from flows.pilot.play import of_first_step
    from flows.run import Run
    from flows.runtime.record import last_request
    from flows.settings.profile import MethodSettings

    request = last_request(store, run)
    wanted = store.kept(run, WANTED)
    settings = {}
    kind = Run
    with waiting("the run to be played again"):
        if wanted is not None:  # `selfplay tasks` made it, which repeats until it kept enough
            cfg = method_of(request).load(request, loads=False)
            assert isinstance(cfg, MethodSettings)
            settings = of_first_step(cfg)
            kind = kind_of(wanted["keep"])
        return play_by(Recording(), request, settings, kind)
