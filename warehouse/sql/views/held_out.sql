-- Whether a row of `evaluations` is of held-out tasks: measured by an evaluation (the phase `evaluation`, or none), and not by a
-- monitor, a probe or a replay.
create macro is_held_out(phase, benchmark) as
coalesce(phase, 'evaluation') = 'evaluation' and benchmark not like '% monitor';
