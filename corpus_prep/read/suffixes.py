"""Endings of file names, without the slow imports of the readers, for the command line."""

ROW_FILES = (".json", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".csv", ".tsv", ".parquet")
