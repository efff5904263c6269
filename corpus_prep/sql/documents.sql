-- Grain: a document of the corpus, with its number: the 0-based row over all files.
-- In: document_rows (rows of the files), files (filename, first_number).
create view documents as
select
    first_number + file_row_number as document,
    document_rows.* exclude (filename, file_row_number)
from document_rows
join files using (filename)
