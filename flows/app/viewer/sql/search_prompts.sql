-- grain:  a prompt that has the text in one of its messages
-- inputs: prompts; $run, $text, $regex
select run, iteration, phase, step, role, prompt_id, array_to_string([m.content for m in messages], chr(10)) as text
from prompts
where
    ($run = '' or run = $run)
    and case
        when $regex then regexp_matches(array_to_string([m.content for m in messages], chr(10)), $text)
        else contains(array_to_string([m.content for m in messages], chr(10)), $text)
    end
limit 50
