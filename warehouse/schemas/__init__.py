"""Every table: its grain, key, columns, units and nulls, and the type of its rows.

`conversations` holds prompts and rollouts; `tasks` and `answers` what is parsed from them and how
it is judged; `groups` what one step passes to the next; `pools` statistics over many tasks;
`training` what updates read and produce; `corpus` the tables of corpus preparation; `benchmarks`
those of evaluation; `evidence` trees of quotes and needles in haystacks; `annotations` people's
labels on any of these. `columns` defines how a table is described.

Rows carry the ids of the rows they came from, so any row of an update's batch leads back to its
document: batches.rollout_id -> rollouts.prompt_id -> prompts.task_id -> tasks.document_id ->
documents.
Run, iteration, phase and step are not columns: they are in the address, and the views of
`warehouse.query` parse it.
"""

from __future__ import annotations

from warehouse.schemas.annotations import ANNOTATIONS as ANNOTATIONS
from warehouse.schemas.annotations import Annotation as Annotation
from warehouse.schemas.answers import ADVANTAGES as ADVANTAGES
from warehouse.schemas.answers import ANSWERS as ANSWERS
from warehouse.schemas.answers import EXECUTIONS as EXECUTIONS
from warehouse.schemas.answers import JUDGMENTS as JUDGMENTS
from warehouse.schemas.answers import MARKS as MARKS
from warehouse.schemas.answers import MATCHES as MATCHES
from warehouse.schemas.answers import REWARDS as REWARDS
from warehouse.schemas.answers import VOTES as VOTES
from warehouse.schemas.answers import Advantage as Advantage
from warehouse.schemas.answers import Answer as Answer
from warehouse.schemas.answers import ExecutionRow as ExecutionRow
from warehouse.schemas.answers import Judgment as Judgment
from warehouse.schemas.answers import Mark as Mark
from warehouse.schemas.answers import Match as Match
from warehouse.schemas.answers import Reward as Reward
from warehouse.schemas.answers import Vote as Vote
from warehouse.schemas.benchmarks import COMPARISONS as COMPARISONS
from warehouse.schemas.benchmarks import EVALUATIONS as EVALUATIONS
from warehouse.schemas.benchmarks import ITEM_CONTEXTS as ITEM_CONTEXTS
from warehouse.schemas.benchmarks import ITEM_SCORES as ITEM_SCORES
from warehouse.schemas.benchmarks import ITEMS as ITEMS
from warehouse.schemas.benchmarks import Comparison as Comparison
from warehouse.schemas.benchmarks import Evaluation as Evaluation
from warehouse.schemas.benchmarks import Item as Item
from warehouse.schemas.benchmarks import ItemContext as ItemContext
from warehouse.schemas.benchmarks import ItemScore as ItemScore
from warehouse.schemas.columns import TABLES as TABLES
from warehouse.schemas.columns import Column as Column
from warehouse.schemas.columns import Flag as Flag
from warehouse.schemas.columns import Hash as Hash
from warehouse.schemas.columns import Logprob as Logprob
from warehouse.schemas.columns import Long as Long
from warehouse.schemas.columns import ReplyColumns as ReplyColumns
from warehouse.schemas.columns import Row as Row
from warehouse.schemas.columns import Schema as Schema
from warehouse.schemas.columns import WhyMalformed as WhyMalformed
from warehouse.schemas.columns import define as define
from warehouse.schemas.conversations import LIKELIHOODS as LIKELIHOODS
from warehouse.schemas.conversations import PROMPTS as PROMPTS
from warehouse.schemas.conversations import ROLLOUTS as ROLLOUTS
from warehouse.schemas.conversations import Likelihood as Likelihood
from warehouse.schemas.conversations import Message as Message
from warehouse.schemas.conversations import PromptRow as PromptRow
from warehouse.schemas.conversations import Rollout as Rollout
from warehouse.schemas.conversations import SearchResult as SearchResult
from warehouse.schemas.conversations import Turn as Turn
from warehouse.schemas.conversations import Usage as Usage
from warehouse.schemas.corpus import BANDS as BANDS
from warehouse.schemas.corpus import CLUSTERS as CLUSTERS
from warehouse.schemas.corpus import CONTAINMENTS as CONTAINMENTS
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
from warehouse.schemas.corpus import Band as Band
from warehouse.schemas.corpus import Cluster as Cluster
from warehouse.schemas.corpus import ContainmentRow as ContainmentRow
from warehouse.schemas.corpus import Contamination as Contamination
from warehouse.schemas.corpus import Document as Document
from warehouse.schemas.corpus import Duplicate as Duplicate
from warehouse.schemas.corpus import Embedding as Embedding
from warehouse.schemas.corpus import Length as Length
from warehouse.schemas.corpus import Measurement as Measurement
from warehouse.schemas.corpus import Membership as Membership
from warehouse.schemas.corpus import Passage as Passage
from warehouse.schemas.corpus import Screening as Screening
from warehouse.schemas.corpus import SegmentRow as SegmentRow
from warehouse.schemas.corpus import SetMember as SetMember
from warehouse.schemas.evidence import NEEDLES as NEEDLES
from warehouse.schemas.evidence import NODES as NODES
from warehouse.schemas.evidence import Needle as Needle
from warehouse.schemas.evidence import Node as Node
from warehouse.schemas.groups import GROUPS as GROUPS
from warehouse.schemas.groups import MEMORIES as MEMORIES
from warehouse.schemas.groups import Group as Group
from warehouse.schemas.groups import Memory as Memory
from warehouse.schemas.pools import DRAWS as DRAWS
from warehouse.schemas.pools import LABELS as LABELS
from warehouse.schemas.pools import NOVELTIES as NOVELTIES
from warehouse.schemas.pools import POOLS as POOLS
from warehouse.schemas.pools import Draw as Draw
from warehouse.schemas.pools import Label as Label
from warehouse.schemas.pools import Novelty as Novelty
from warehouse.schemas.pools import PoolEntry as PoolEntry
from warehouse.schemas.tasks import CHOICES as CHOICES
from warehouse.schemas.tasks import GATES as GATES
from warehouse.schemas.tasks import RUBRICS as RUBRICS
from warehouse.schemas.tasks import SAMPLES as SAMPLES
from warehouse.schemas.tasks import SELECTIONS as SELECTIONS
from warehouse.schemas.tasks import TASKS as TASKS
from warehouse.schemas.tasks import Choice as Choice
from warehouse.schemas.tasks import Criterion as Criterion
from warehouse.schemas.tasks import Gate as Gate
from warehouse.schemas.tasks import Sample as Sample
from warehouse.schemas.tasks import Selection as Selection
from warehouse.schemas.tasks import Task as Task
from warehouse.schemas.training import BATCHES as BATCHES
from warehouse.schemas.training import PAIRS as PAIRS
from warehouse.schemas.training import POLICIES as POLICIES
from warehouse.schemas.training import PROBES as PROBES
from warehouse.schemas.training import REFERENCES as REFERENCES
from warehouse.schemas.training import UPDATES as UPDATES
from warehouse.schemas.training import Datum as Datum
from warehouse.schemas.training import OptimizerStep as OptimizerStep
from warehouse.schemas.training import Pair as Pair
from warehouse.schemas.training import PolicyRow as PolicyRow
from warehouse.schemas.training import Probe as Probe
from warehouse.schemas.training import ReferenceRow as ReferenceRow
