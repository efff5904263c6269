-- grain:  a task that has the text, in itself or in its reference answer
-- inputs: tasks; $run, $text, $regex
select run, iteration, phase, step, task_id, concat_ws(chr(10), text, reference) as text
from tasks
where
    ($run = '' or run = $run)
    and case
        when $regex then regexp_matches(concat_ws(chr(10), text, reference), $text)
        else contains(concat_ws(chr(10), text, reference), $text) or task_id = $text
    end
limit 50
