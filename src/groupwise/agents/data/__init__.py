"""Problems with one answer: what to ask, and how to grade the answer.

problems           the contract (`Problem`, `Problems`) and the built-in tasks; start here
dataset            `task.environment` → problems; a data file's columns and how answers are checked
kept_problems      problems of large files, kept for the next start
rows               JSON lines, JSON, Parquet and Hugging Face folders → rows
reasoning_gym      problems of the reasoning-gym library
"""
