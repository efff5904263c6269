-- grain:  the prepared corpus
-- inputs: documents; $run
select count(*) as documents, sum(num_chars) as chars from documents where run = $run and label = 'prepared';
