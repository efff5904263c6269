"""Every table: its grain, key, columns, units and nulls.

`selfplay` has the tables of an iteration, `groups` what one step leaves to the next, `training` what updates read and
make, `corpus` those of corpus preparation. `columns` says what a table is described by.
"""

from __future__ import annotations

from warehouse.schemas.columns import TABLES as TABLES
from warehouse.schemas.columns import Column as Column
from warehouse.schemas.columns import Schema as Schema
from warehouse.schemas.corpus import BANDS as BANDS
from warehouse.schemas.corpus import CLUSTERS as CLUSTERS
from warehouse.schemas.corpus import CONTAMINATIONS as CONTAMINATIONS
from warehouse.schemas.corpus import DOCUMENT_SETS as DOCUMENT_SETS
from warehouse.schemas.corpus import DOCUMENTS as DOCUMENTS
from warehouse.schemas.corpus import DUPLICATES as DUPLICATES
from warehouse.schemas.corpus import EMBEDDINGS as EMBEDDINGS
from warehouse.schemas.corpus import LENGTHS as LENGTHS
from warehouse.schemas.corpus import MEASUREMENTS as MEASUREMENTS
from warehouse.schemas.corpus import MEMBERSHIPS as MEMBERSHIPS
from warehouse.schemas.corpus import PASSAGES as PASSAGES
from warehouse.schemas.corpus import SCREENINGS as SCREENINGS
from warehouse.schemas.corpus import SEGMENTS as SEGMENTS
from warehouse.schemas.groups import GROUPS as GROUPS
from warehouse.schemas.groups import MEMORIES as MEMORIES
from warehouse.schemas.selfplay import ANSWERS as ANSWERS
from warehouse.schemas.selfplay import CHOICES as CHOICES
from warehouse.schemas.selfplay import EVALUATIONS as EVALUATIONS
from warehouse.schemas.selfplay import GATES as GATES
from warehouse.schemas.selfplay import JUDGMENTS as JUDGMENTS
from warehouse.schemas.selfplay import LIKELIHOODS as LIKELIHOODS
from warehouse.schemas.selfplay import MATCHES as MATCHES
from warehouse.schemas.selfplay import PROMPTS as PROMPTS
from warehouse.schemas.selfplay import REWARDS as REWARDS
from warehouse.schemas.selfplay import ROLLOUTS as ROLLOUTS
from warehouse.schemas.selfplay import RUBRICS as RUBRICS
from warehouse.schemas.selfplay import SAMPLES as SAMPLES
from warehouse.schemas.selfplay import SCORES as SCORES
from warehouse.schemas.selfplay import SELECTIONS as SELECTIONS
from warehouse.schemas.selfplay import TASKS as TASKS
from warehouse.schemas.selfplay import VOTES as VOTES
from warehouse.schemas.training import BATCHES as BATCHES
from warehouse.schemas.training import POLICIES as POLICIES
from warehouse.schemas.training import UPDATES as UPDATES
