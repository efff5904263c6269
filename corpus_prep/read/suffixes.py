"""Endings of file names, without the readers' imports, which a command line must not wait for."""

ROW_FILES = (".json", ".jsonl", ".jsonl.gz", ".jsonl.zst", ".csv", ".tsv", ".parquet")
