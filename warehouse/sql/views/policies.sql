-- grain: one policy of a run: those it started from and one for every update.
create view policies as
select run, iteration, phase, step, policy, parent, role, policy_hash, weights, adapter, optimizer_state
from policies_table
union all
select distinct run, iteration, phase, step, policy, parent, role, policy_hash, weights, adapter, optimizer_state
from updates;
